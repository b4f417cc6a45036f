//! Commits that no firehose will bring any more: exactly the repos that moved are checked out again, whatever comes in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atproto_backfill::engine::{Counts, Options};
use atproto_backfill::fetch::{Backoff, PaceOptions};
use atproto_backfill::job::{ConsumerId, JobState, UnavailableStatus};
use atproto_backfill::sim::{
    AccountStatus, Endpoint, Fault, Gate, Network, NetworkOptions, Position, RandomWrites, RetryHint, Rule, Sizes, World, WorldBuilder,
};
use atproto_backfill::store::{AuditState, MemoryStore, Store};
use atproto_backfill::syntax::Did;
use axum::response::IntoResponse;

use crate::rig::{LIMIT, Rig, backfiller_at, fast};

/// A rig whose repos are all complete.
async fn complete(world: WorldBuilder, store: Arc<dyn Store>) -> Rig {
    let rig = Rig::with(world, NetworkOptions::default(), Options::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.assert_truth().await;
    rig
}

fn in_memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Commits that nobody hands in.
fn miss(rig: &Rig, dids: &[Did]) {
    let mut writes = RandomWrites::new(rig.world.seed());
    for did in dids {
        for _ in 0..20 {
            writes.write_to(&rig.world, did).unwrap();
        }
    }
}

/// How often each repo was asked for, by all hosts.
fn exports(world: &World, network: &Network) -> BTreeMap<Did, u64> {
    let hosts = 0..world.hosts();
    world.dids().into_iter().map(|did| (did.clone(), hosts.clone().map(|host| network.host(host).exports_of(&did)).sum())).collect()
}

fn requests(rig: &Rig, endpoint: Endpoint) -> u64 {
    (0..rig.world.hosts()).map(|host| rig.network.host(host).requests(endpoint)).sum()
}

async fn counts(rig: &Rig) -> Counts {
    rig.backfiller.progress().await.unwrap().counts
}

async fn due(store: &Arc<dyn Store>) -> Option<AuditState> {
    let consumer: ConsumerId = store.consumer("test").await.unwrap();
    store.audit(consumer).await.unwrap()
}

/// Audits, and returns the repos that were asked for since, each once.
async fn audited(rig: &Rig) -> BTreeSet<Did> {
    let before = exports(&rig.world, &rig.network);
    rig.backfiller.audit().await.unwrap();
    rig.idle().await;
    assert_eq!(due(&rig.store).await, None);
    asked_since(rig, &before)
}

fn asked_since(rig: &Rig, before: &BTreeMap<Did, u64>) -> BTreeSet<Did> {
    let after = exports(&rig.world, &rig.network);
    let asked: BTreeMap<Did, u64> = after.into_iter().map(|(did, times)| (did.clone(), times - before[&did])).collect();
    assert!(asked.values().all(|times| *times <= 1), "asked for more than once: {asked:?}");
    asked.into_iter().filter(|(_, times)| *times > 0).map(|(did, _)| did).collect()
}

/// Every tenth repo moves, and they alone are checked out again. Returns requests for listings and for single repos.
async fn exactly_those_that_moved(world: WorldBuilder, store: Arc<dyn Store>) -> (u64, u64) {
    let rig = complete(world, store).await;
    let dids = rig.world.dids();
    assert_eq!(audited(&rig).await, BTreeSet::new(), "nothing had moved");
    let moved: Vec<Did> = dids.iter().step_by(10).cloned().collect();
    miss(&rig, &moved);
    let before = counts(&rig).await;
    let singly = requests(&rig, Endpoint::GetLatestCommit);
    let listed = requests(&rig, Endpoint::ListRepos);
    assert_eq!(audited(&rig).await, moved.iter().cloned().collect());
    let after = counts(&rig).await;
    assert_eq!(after.audited - before.audited, dids.len() as u64);
    assert_eq!((after.audit_moved, after.audit_failed), (moved.len() as u64, 0));
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
    (requests(&rig, Endpoint::ListRepos) - listed, requests(&rig, Endpoint::GetLatestCommit) - singly)
}

fn many_a_host() -> WorldBuilder {
    World::builder().seed(81).hosts(2).repos(60).sizes(Sizes::Each(40))
}

fn few_a_host() -> WorldBuilder {
    World::builder().seed(82).hosts(6).repos(40).sizes(Sizes::Each(40))
}

#[tokio::test]
async fn exactly_the_repos_that_moved_are_checked_out_again() {
    assert_eq!(exactly_those_that_moved(many_a_host(), in_memory()).await, (2, 0), "one page of each host tells all");
    assert_eq!(exactly_those_that_moved(few_a_host(), in_memory()).await, (0, 40), "listing would not pay");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn exactly_the_repos_that_moved_are_checked_out_again_on_sqlite() {
    for world in [many_a_host(), few_a_host()] {
        let folder = tempfile::tempdir().unwrap();
        let store = atproto_backfill::store::SqliteStore::open(folder.path().join("store.db")).unwrap();
        exactly_those_that_moved(world, Arc::new(store)).await;
    }
}

/// Has the question about one repo stand still, once.
fn hold(network: &Network, did: &Did) -> Gate {
    let gate = Gate::new();
    let rule = Rule::new(Fault::Hold(Position::Byte(0), gate.clone())).endpoint(Endpoint::GetLatestCommit).did(did).times(1);
    network.faults().inject(rule);
    gate
}

async fn reached(gate: &Gate) {
    tokio::time::timeout(LIMIT, gate.reached(1)).await.expect("it was never asked");
}

/// A process of its own, as far as a runtime is one: it ends in the middle of everything.
struct Process(tokio::runtime::Runtime);

impl Process {
    /// Starts a backfiller with an audit to do in a process of its own.
    async fn start(rig: &Rig, begin: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (plc_url, handler, store) = (rig.network.plc_url().to_owned(), Arc::clone(&rig.handler), Arc::clone(&rig.store));
        let started = runtime.spawn(async move {
            let backfiller = backfiller_at(&plc_url, &handler, Options::default(), &store, fast()).await;
            if begin {
                backfiller.audit().await.unwrap();
            }
            backfiller.start().await.unwrap();
        });
        started.await.unwrap();
        Self(runtime)
    }

    async fn kill(self) {
        tokio::task::spawn_blocking(move || self.0.shutdown_timeout(LIMIT)).await.unwrap();
    }
}

/// More repos than are passed between two checkpoints. The process is killed behind the first, and the next one goes on there.
async fn a_kill_is_gone_on_from(store: Arc<dyn Store>) {
    const HOSTS: usize = 75;
    let world = World::builder().seed(83).hosts(HOSTS).repos(1100).sizes(Sizes::Each(2));
    let rig = complete(world, store).await;
    rig.backfiller.stop().await.unwrap();
    let dids = rig.world.dids();
    let moved = [dids[3].clone(), dids[500].clone(), dids[1050].clone(), dids[1099].clone()];
    miss(&rig, &moved);
    let before = exports(&rig.world, &rig.network);
    // The last repo of all, so that it is asked about when the first thousand are done with.
    let gate = hold(&rig.network, &dids[1099]);
    let process = Process::start(&rig, true).await;
    reached(&gate).await;
    let left = due(&rig.store).await.expect("it is not over");
    assert_eq!((left.passed, left.after.is_some()), (1000, true));
    process.kill().await;
    assert_eq!(due(&rig.store).await, Some(left));
    let asked_before = requests(&rig, Endpoint::GetLatestCommit);
    gate.open();
    let mut rig = rig;
    rig.restart(Options::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    for did in &moved {
        // The parts of a runtime that ends may see errors, which a kill would not let them record.
        if matches!(rig.backfiller.job(did).await.unwrap().unwrap().state, JobState::Failed { .. }) {
            rig.backfiller.backfill_repo(did).await.unwrap();
        }
    }
    // But for those of the last hundred that wait for their checkout already.
    let asked_again = requests(&rig, Endpoint::GetLatestCommit) - asked_before;
    assert!((98..=100).contains(&asked_again), "{asked_again}: not the last hundred");
    // A checkout that was cut off is asked for once more.
    let after = exports(&rig.world, &rig.network);
    let asked: BTreeSet<Did> = after.into_iter().filter(|(did, times)| *times > before[did]).map(|(did, _)| did).collect();
    assert_eq!(asked, moved.into_iter().collect());
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_kill_in_the_middle_is_gone_on_from_in_memory() {
    a_kill_is_gone_on_from(in_memory()).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_kill_in_the_middle_is_gone_on_from_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = atproto_backfill::store::SqliteStore::open(folder.path().join("store.db")).unwrap();
    a_kill_is_gone_on_from(Arc::new(store)).await;
}

/// One host of ten repos, which is asked about them one after the other, and stands still at one.
async fn held_at(seed: u64, at: usize) -> (Rig, Vec<Did>, Gate) {
    let rig = complete(World::builder().seed(seed).hosts(1).repos(10).sizes(Sizes::Each(40)), in_memory()).await;
    let dids = rig.world.dids();
    let gate = hold(&rig.network, &dids[at]);
    rig.backfiller.audit().await.unwrap();
    reached(&gate).await;
    let shown = rig.backfiller.progress().await.unwrap().audit;
    assert_eq!(shown.map(|audit| (audit.reason, audit.passed)), Some(("asked for by hand".into(), 0)));
    (rig, dids, gate)
}

#[tokio::test]
async fn a_stop_in_the_middle_leaves_the_audit_to_the_next_process() {
    let (mut rig, dids, gate) = held_at(84, 9).await;
    miss(&rig, &dids[9..]);
    rig.backfiller.stop().await.unwrap();
    assert!(due(&rig.store).await.is_some());
    gate.open();
    rig.restart(Options::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.assert_truth_after_restart().await;
    assert_eq!(due(&rig.store).await, None);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_gap_has_the_audit_begin_anew() {
    let (rig, dids, gate) = held_at(85, 9).await;
    let before = exports(&rig.world, &rig.network);
    // Of the first, the audit has had the host's word already.
    miss(&rig, &dids[..1]);
    let first = due(&rig.store).await.expect("one is under way");
    rig.backfiller.audit().await.unwrap();
    assert_ne!(due(&rig.store).await.map(|audit| audit.id), Some(first.id));
    gate.open();
    rig.idle().await;
    assert_eq!(asked_since(&rig, &before), dids[..1].iter().cloned().collect());
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_repo_that_was_fetched_before_the_gap_is_looked_at_after_its_checkout() {
    let rig = Rig::new(World::builder().seed(86).hosts(1).repos(3).sizes(Sizes::Each(1500))).await;
    let dids = rig.world.dids();
    let gate = Gate::new();
    // The export is made, and stands still on its way.
    rig.network.faults().inject(Rule::new(Fault::Hold(Position::Byte(20_000), gate.clone())).did(&dids[1]).times(1));
    rig.backfiller.enqueue(&dids).await.unwrap();
    rig.backfiller.start().await.unwrap();
    reached(&gate).await;
    miss(&rig, &dids[1..2]);
    rig.backfiller.audit().await.unwrap();
    let audited = async {
        while counts(&rig).await.audited < 2 {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(LIMIT, audited).await.expect("the others were not audited");
    assert!(due(&rig.store).await.is_some(), "it did not wait for the checkout");
    gate.open();
    rig.idle().await;
    assert_eq!(rig.network.host(0).exports_of(&dids[1]), 2);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn op_sets_that_come_meanwhile_cost_no_checkout() {
    let (rig, dids, gate) = held_at(87, 0).await;
    let before = exports(&rig.world, &rig.network);
    // The audit has read where the last repo stands, and has not asked its host yet.
    let mut writes = RandomWrites::new(87);
    for _ in 0..5 {
        rig.backfiller.buffer(&writes.write_to(&rig.world, &dids[9]).unwrap()).await.unwrap();
    }
    gate.open();
    rig.idle().await;
    assert_eq!(asked_since(&rig, &before), BTreeSet::new());
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

/// Listed (many repos) or asked about one by one (few): accounts come and go the same way.
async fn accounts_that_came_or_went(world: WorldBuilder) {
    let rig = Rig::with(world, NetworkOptions::default(), Options::default(), in_memory()).await;
    let dids = rig.world.dids();
    let (back, away, gone, deleted) = (&dids[0], &dids[1], &dids[2], &dids[4]);
    rig.world.set_status(back, AccountStatus::Deactivated);
    rig.world.set_status(away, AccountStatus::Takendown);
    rig.world.set_status(deleted, AccountStatus::Deactivated);
    rig.backfiller.enqueue(&dids).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.world.set_status(back, AccountStatus::Active);
    rig.world.set_status(gone, AccountStatus::Suspended);
    rig.world.set_status(deleted, AccountStatus::Deleted);
    let moved = &dids[3];
    rig.world.move_account(moved, (rig.world.host_of(moved).unwrap() + 1) % rig.world.hosts());
    let before = exports(&rig.world, &rig.network);
    rig.backfiller.audit().await.unwrap();
    rig.idle().await;
    let state = async |did: &Did| rig.backfiller.job(did).await.unwrap().unwrap().state;
    assert_eq!(state(back).await, JobState::Complete);
    assert_eq!(state(away).await, JobState::Unavailable { status: UnavailableStatus::Takendown });
    assert_eq!(state(gone).await, JobState::Unavailable { status: UnavailableStatus::Suspended });
    assert_eq!(state(moved).await, JobState::Complete);
    let ended = state(deleted).await;
    assert!(matches!(ended, JobState::Unavailable { status: UnavailableStatus::Deleted | UnavailableStatus::NotFound }), "{ended:?}");
    let audit = counts(&rig).await;
    assert_eq!((audit.audited, audit.audit_moved, audit.audit_failed), (dids.len() as u64, 4, 0));
    let after = exports(&rig.world, &rig.network);
    let asked: BTreeSet<&Did> = after.iter().filter(|(did, times)| **times > before[*did]).map(|(did, _)| did).collect();
    // What was deleted may be known from its document alone.
    let asked: BTreeSet<&Did> = asked.into_iter().filter(|did| *did != deleted).collect();
    assert_eq!(asked, [back, gone, moved].into_iter().collect());
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn accounts_that_came_back_moved_or_went_are_noticed() {
    accounts_that_came_or_went(World::builder().seed(88).hosts(2).repos(50).sizes(Sizes::Each(20))).await;
    accounts_that_came_or_went(World::builder().seed(89).hosts(4).repos(12).sizes(Sizes::Each(20))).await;
}

/// A pace that probes a host that is down without long pauses.
fn impatient() -> PaceOptions {
    let unreachable = Backoff { first: Duration::from_millis(5), last: Duration::from_millis(20) };
    PaceOptions { unreachable, ..fast() }
}

async fn a_host_is_down(world: WorldBuilder) {
    let mut rig = complete(world, in_memory()).await;
    rig.backfiller.stop().await.unwrap();
    rig.backfiller = backfiller_at(rig.network.plc_url(), &rig.handler, Options::default(), &rig.store, impatient()).await;
    rig.backfiller.start().await.unwrap();
    let at_it: Vec<Did> = rig.world.dids().into_iter().filter(|did| rig.world.host_of(did) == Some(1)).collect();
    miss(&rig, &at_it[..1]);
    rig.network.shut_host(1).await;
    let before = exports(&rig.world, &rig.network);
    rig.backfiller.audit().await.unwrap();
    let ended = async {
        while due(&rig.store).await.is_some() {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(LIMIT, ended).await.expect("the audit hangs");
    let count = counts(&rig).await;
    assert_eq!((count.audit_failed, count.audit_moved), (at_it.len() as u64, 0), "{count:?}");
    rig.network.open_host(1).await;
    for did in &at_it {
        assert_eq!(rig.backfiller.backfill_repo(did).await.unwrap().state, JobState::Complete);
    }
    let after = exports(&rig.world, &rig.network);
    let asked: BTreeSet<&Did> = after.iter().filter(|(did, times)| **times > before[*did]).map(|(did, _)| did).collect();
    assert_eq!(asked, at_it.iter().collect(), "repos of other hosts were asked for");
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn the_repos_of_a_host_that_stays_down_are_checked_out_again() {
    a_host_is_down(World::builder().seed(90).hosts(2).repos(40).sizes(Sizes::Each(20))).await;
    a_host_is_down(World::builder().seed(91).hosts(2).repos(12).sizes(Sizes::Each(20))).await;
}

#[tokio::test]
async fn refusals_and_passing_failures_are_waited_out() {
    let rig = complete(many_a_host(), in_memory()).await;
    let few = complete(few_a_host(), in_memory()).await;
    for (rig, endpoint) in [(&rig, Endpoint::ListRepos), (&few, Endpoint::GetLatestCommit)] {
        let faults = rig.network.faults();
        let refused = Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(1)));
        let rules = [
            faults.inject(Rule::new(refused).endpoint(endpoint).host(0).times(2)),
            faults.inject(Rule::new(Fault::Status(500, "InternalServerError")).endpoint(endpoint).host(1).times(2)),
        ];
        assert_eq!(audited(rig).await, BTreeSet::new(), "{endpoint:?}");
        let count = counts(rig).await;
        assert_eq!((count.audited, count.audit_failed, count.refused), (rig.world.dids().len() as u64, 0, 2), "{endpoint:?}: {count:?}");
        assert_eq!(rules.map(|rule| faults.fired(rule)), [2, 2]);
        rig.backfiller.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_repo_of_which_the_host_says_nothing_that_makes_sense_is_checked_out_again() {
    for (fault, times) in [(Fault::Html, 3), (Fault::Status(400, "InvalidRequest"), 1), (Fault::Reset, 3)] {
        let rig = complete(World::builder().seed(92).hosts(2).repos(10).sizes(Sizes::Each(20)), in_memory()).await;
        let did = rig.world.dids()[4].clone();
        let rule = rig.network.faults().inject(Rule::new(fault.clone()).endpoint(Endpoint::GetLatestCommit).did(&did));
        assert_eq!(audited(&rig).await, [did].into_iter().collect(), "{fault:?}");
        assert_eq!((rig.network.faults().fired(rule), counts(&rig).await.audit_failed), (times, 1), "{fault:?}");
        rig.assert_truth().await;
        rig.backfiller.stop().await.unwrap();
    }
}

/// A fault that answers each request for a listing with what `page` makes of its number, from 0.
fn listing(page: impl Fn(u64) -> serde_json::Value + Send + Sync + 'static) -> Rule {
    let asked = AtomicU64::new(0);
    let answer = move |_: &_| page(asked.fetch_add(1, Ordering::SeqCst)).to_string().into_response();
    Rule::new(Fault::Custom(Arc::new(answer))).endpoint(Endpoint::ListRepos)
}

#[tokio::test]
async fn a_listing_that_never_ends_is_given_up_and_what_it_leaves_open_is_asked_singly() {
    let rig = complete(World::builder().seed(93).hosts(1).repos(40).sizes(Sizes::Each(20)), in_memory()).await;
    let dids = rig.world.dids();
    let stranger = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
    let rows = serde_json::json!([{"did": stranger, "rev": "3zzzzzzzzzzzz", "active": true}, {"did": dids[0], "rev": ""}, 7]);
    let page = move |number: u64| serde_json::json!({"cursor": number.to_string(), "repos": rows});
    let rule = rig.network.faults().inject(listing(page));
    miss(&rig, &dids[7..8]);
    assert_eq!(audited(&rig).await, dids[7..8].iter().cloned().collect());
    assert_eq!(rig.network.faults().fired(rule), 10, "a listing may cost a quarter of what it can save");
    assert_eq!(requests(&rig, Endpoint::GetLatestCommit), 40);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_host_has_no_say_on_the_repos_of_another() {
    let rig = complete(many_a_host(), in_memory()).await;
    let dids = rig.world.dids();
    let at = |host| dids.iter().filter(|did| rig.world.host_of(did) == Some(host)).cloned().collect::<Vec<_>>();
    let (own, others) = (at(0), at(1));
    let claims: Vec<_> =
        own[..1].iter().chain(&others).map(|did| serde_json::json!({"did": did, "rev": "3zzzzzzzzzzzz", "active": true})).collect();
    let rule = rig.network.faults().inject(listing(move |_| serde_json::json!({"repos": claims})).host(0));
    assert_eq!(audited(&rig).await, own[..1].iter().cloned().collect());
    assert_eq!(rig.network.faults().fired(rule), 1);
    // The rest of its own were not listed.
    assert_eq!(requests(&rig, Endpoint::GetLatestCommit), own.len() as u64 - 1);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn an_unavailable_account_that_has_moved_since_is_found_at_its_new_host() {
    let rig = complete(World::builder().seed(171).hosts(2).repos(6), in_memory()).await;
    let dids = rig.world.dids();
    for did in &dids[..3] {
        rig.world.set_status(did, AccountStatus::Deactivated);
        rig.backfiller.backfill_repo(did).await.unwrap();
    }
    // One moves and is active again, one moves and stays as it is, one does neither; nobody tells.
    for did in &dids[..2] {
        rig.world.migrate(did, 1 - rig.world.host_of(did).unwrap()).unwrap();
    }
    rig.world.set_status(&dids[0], AccountStatus::Active);
    rig.world.set_status(&dids[1], AccountStatus::Deactivated);
    let state = async |did: &Did| rig.backfiller.job(did).await.unwrap().unwrap().state;
    assert_eq!(state(&dids[0]).await, JobState::Unavailable { status: UnavailableStatus::Deactivated });
    assert_eq!(audited(&rig).await, dids[..2].iter().cloned().collect());
    assert_eq!(state(&dids[0]).await, JobState::Complete);
    for did in &dids[1..3] {
        assert_eq!(state(did).await, JobState::Unavailable { status: UnavailableStatus::Deactivated }, "{did}");
    }
    rig.backfiller.stop().await.unwrap();
}
