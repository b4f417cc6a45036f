//! Against the reference PDS and PLC, which `tests/interop/setup` installs; where they are not, these tests skip themselves.
#![allow(clippy::print_stderr, reason = "what a failed test is understood by")]

#[path = "interop/copy.rs"]
mod copy;
#[cfg(all(unix, feature = "cli"))]
#[path = "common/fold.rs"]
mod fold;
#[cfg(all(unix, feature = "cli"))]
#[path = "interop/killed.rs"]
mod killed;
#[path = "interop/network.rs"]
mod network;
#[path = "interop/ops.rs"]
mod ops;
#[cfg(all(unix, feature = "cli"))]
#[path = "interop/program.rs"]
mod program;
#[path = "interop/truth.rs"]
mod truth;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::Backfiller;
use atproto_backfill::fetch::HttpOptions;
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::job::{FailureKind, JobState, Route};
use atproto_backfill::store::{MemoryStore, Store};
use atproto_backfill::syntax::{Did, Rev};
use copy::Copy;
use network::Network;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Accounts whose repos are filled, and one more that has nothing but what is written during the test.
const FILLED: [&str; 5] = ["aler", "belo", "cami", "deru", "elzo"];
const RECORDS_EACH: usize = 420;
/// Records that are there at the end, at least: the writer creates more than it deletes, but not in every repo.
const RECORDS: usize = 2000;
const WRITE_EVERY_MS: u64 = 20;
/// Commits that are followed after the last checkout.
const FOLLOW: u64 = 100;
const ATTEMPTS: u32 = 10;
const WHOLE_TEST: Duration = Duration::from_secs(300);

/// What became of the op sets that were handed in.
#[derive(Debug, Default)]
struct Handed {
    buffered_in_progress: u64,
    buffered_complete: u64,
    stale: u64,
    discarded: u64,
    unknown: u64,
    lost_track: Vec<String>,
}

/// Hands in every commit as it happens, until the network ends. Half of the repos come without the root that a commit was made on,
/// as from a host that sends none.
struct Feed {
    backfiller: Backfiller,
    events: mpsc::Receiver<Value>,
    /// The newest rev of each repo that was buffered during its checkout.
    buffered: watch::Sender<HashMap<Did, Rev>>,
    /// How many commits of complete repos were buffered.
    followed: watch::Sender<u64>,
}

impl Feed {
    async fn run(mut self) -> Handed {
        let (mut handed, mut proven) = (Handed::default(), HashMap::new());
        while let Some(event) = self.events.recv().await {
            let Some(did) = event["did"].as_str() else { continue };
            let count = proven.len();
            let proven = *proven.entry(did.to_owned()).or_insert(count % 2 == 0);
            let Some(op_set) = ops::op_set(&event, proven) else { continue };
            match self.backfiller.buffer(&op_set).await.unwrap() {
                Route::Buffered { complete: true } => {
                    handed.buffered_complete += 1;
                    self.followed.send_replace(handed.buffered_complete);
                }
                Route::Buffered { complete: false } => {
                    handed.buffered_in_progress += 1;
                    self.buffered.send_modify(|revs| {
                        revs.insert(op_set.did, op_set.rev);
                    });
                }
                Route::Stale => handed.stale += 1,
                Route::Discarded => handed.discarded += 1,
                Route::Unknown => handed.unknown += 1,
                route @ (Route::Gap | Route::Unavailable | Route::Rearmed) => {
                    handed.lost_track.push(format!("{route:?}: {} {}", op_set.did, op_set.rev))
                }
            }
        }
        handed
    }
}

async fn backfiller(network: &Network, store: Arc<dyn Store>, copy: Copy) -> Backfiller {
    let plc_url = network.plc.parse().unwrap();
    let resolver = HttpResolver::new(ResolverOptions { plc_url, development: true, ..ResolverOptions::default() }).unwrap();
    Backfiller::builder("interop", store, copy)
        .resolver(Arc::new(CachedResolver::new(resolver, CacheOptions::default())))
        .http(HttpOptions { development: true, ..HttpOptions::default() })
        .build()
        .await
        .unwrap()
}

/// The PDS exports a repo without a transaction: a commit that comes between makes the CAR lack blocks. The library takes that for the
/// passing failure that it is; its pause before the next attempt is cut short here. Returns how many attempts failed.
async fn checked_out(backfiller: &Backfiller, did: &Did) -> u32 {
    for failed in 0..ATTEMPTS {
        let job = backfiller.backfill_repo(did).await.unwrap();
        match job.state {
            JobState::Complete => return failed,
            JobState::Failed { kind: FailureKind::MissingBlock, .. } => eprintln!("{did}: {}", job.failure),
            state => panic!("{did}: {state:?}: {}", job.failure),
        }
    }
    panic!("{did} is not checked out after {ATTEMPTS} attempts");
}

/// A network whose repos are filled, all but the last one. Returns the DIDs.
async fn filled(network: &mut Network) -> Vec<String> {
    let mut dids = network.accounts(&FILLED).await;
    for did in &dids {
        network.command(json!({"cmd": "fill", "did": did, "records": RECORDS_EACH})).await;
    }
    dids.extend(network.accounts(&["vacua"]).await);
    dids
}

/// The repos are checked out while all of them are written to, then followed; at the end every one is what the PDS lists.
async fn checks_out_and_follows(test: &str, store: Arc<dyn Store>) {
    let Some(mut network) = Network::start(test).await else { return };
    let dids = filled(&mut network).await;
    let parsed: Vec<Did> = dids.iter().map(|did| did.parse().unwrap()).collect();

    let (buffered_in, buffered) = watch::channel(HashMap::new());
    let (followed_in, mut followed) = watch::channel(0);
    let copy = Copy::new(buffered);
    let backfiller = backfiller(&network, store, copy.clone()).await;
    backfiller.start().await.unwrap();
    let feed = Feed { backfiller: backfiller.clone(), events: network.take_events(), buffered: buffered_in, followed: followed_in };
    let feed = tokio::spawn(feed.run());
    network.command(json!({"cmd": "start", "dids": dids, "intervalMs": WRITE_EVERY_MS})).await;
    let failed = futures::future::join_all(parsed.iter().map(|did| checked_out(&backfiller, did))).await;
    let so_far = *followed.borrow();
    followed.wait_for(|count| *count >= so_far + FOLLOW).await.unwrap();
    let written = network.command(json!({"cmd": "stop"})).await;

    let mut truth = Vec::new();
    for did in &dids {
        truth.push((truth::list_records(&network.pds, did).await, truth::latest_rev(&network.pds, did).await));
    }
    network.stop().await;
    let handed = feed.await.unwrap();
    let progress = backfiller.idle().await.unwrap();
    eprintln!("written: {written}\nhanded in: {handed:?}\n{progress:?}");
    for (did, (records, rev)) in parsed.iter().zip(&truth) {
        assert_eq!(&copy.records(did), records, "{did}");
        let job = backfiller.job(did).await.unwrap().unwrap();
        assert_eq!((job.state, job.rev.map(|rev| rev.to_string())), (JobState::Complete, Some(rev.clone())), "{did}");
        assert_eq!(job.records, records.len() as u64, "{did}");
    }
    backfiller.stop().await.unwrap();
    let excused: Vec<&Did> = parsed.iter().zip(failed).filter_map(|(did, failed)| (failed > 0).then_some(did)).collect();
    assert_eq!(copy.violations(&excused), Vec::<String>::new());
    assert_the_test_tested(&handed, &written, truth.iter().map(|(records, _)| records.len()).sum());
}

/// Everything that the test is about has happened.
fn assert_the_test_tested(handed: &Handed, written: &Value, records: usize) {
    assert_eq!(handed.lost_track, Vec::<String>::new());
    assert!(records >= RECORDS, "{records}");
    assert!(handed.buffered_in_progress >= FILLED.len() as u64, "{handed:?}");
    for change in ["create", "update", "delete"] {
        assert!(written[change].as_u64().unwrap() > 0, "{written}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_memory_store_checkouts_during_writes_end_in_what_the_pds_lists() {
    let test = "with_the_memory_store_checkouts_during_writes_end_in_what_the_pds_lists";
    timeout(WHOLE_TEST, checks_out_and_follows(test, Arc::new(MemoryStore::new()))).await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlite_checkouts_during_writes_end_in_what_the_pds_lists() {
    let test = "with_sqlite_checkouts_during_writes_end_in_what_the_pds_lists";
    let folder = tempfile::tempdir().unwrap();
    let store = atproto_backfill::store::SqliteStore::open(folder.path().join("interop.db")).unwrap();
    timeout(WHOLE_TEST, checks_out_and_follows(test, Arc::new(store))).await.unwrap();
}

#[cfg(feature = "cli")]
#[tokio::test]
async fn the_program_prints_what_the_pds_lists() {
    let Some(mut network) = Network::start("the_program_prints_what_the_pds_lists").await else { return };
    let did = network.accounts(&["priva"]).await.remove(0);
    network.command(json!({"cmd": "fill", "did": did, "records": 700})).await;
    let program = tokio::process::Command::new(env!("CARGO_BIN_EXE_backfill"))
        .args(["checkout", "--development", "--plc-url", &network.plc, &did])
        .output();
    let output = timeout(WHOLE_TEST, program).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let printed: Vec<_> = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()).collect();
    let printed: Vec<_> = printed.iter().map(|line| (text(line, "path"), (text(line, "cid"), line["record"].clone()))).collect();
    assert_eq!(printed, truth::list_records(&network.pds, &did).await.into_iter().collect::<Vec<_>>());
    network.stop().await;
}

#[cfg(all(unix, feature = "cli"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_ten_times_while_it_follows_a_pds_the_program_ends_with_what_the_pds_lists() {
    let test = "killed_ten_times_while_it_follows_a_pds_the_program_ends_with_what_the_pds_lists";
    timeout(WHOLE_TEST, killed::killed_ten_times_it_ends_with_what_the_pds_lists(test, "--pds")).await.unwrap();
}

#[cfg(all(unix, feature = "cli"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_ten_times_while_it_follows_a_relay_the_program_ends_with_what_the_pds_lists() {
    let test = "killed_ten_times_while_it_follows_a_relay_the_program_ends_with_what_the_pds_lists";
    timeout(WHOLE_TEST, killed::killed_ten_times_it_ends_with_what_the_pds_lists(test, "--relay")).await.unwrap();
}
