//! What the manifest and the store cost: `cargo bench --bench store`. Prints one line for each figure.
//!
//! `cargo bench --features postgres --bench store -- --postgres URL` measures the store in a PostgreSQL database, which is empty and is not emptied afterwards.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use atproto_backfill::job::{ConsumerId, Job, Op, OpAction, OpSet, Position, Timestamp};
use atproto_backfill::manifest::{Builder, Chunk, Diff, Edit, Step};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, ManifestChange, SqliteStore, Store};
use atproto_backfill::syntax::{Did, RecordPath, Rev};

const RECORDS: u64 = 1_000_000;
const LIVE_JOBS: u64 = 2_000;
const LIVE_PAIRS: u64 = 100_000;

/// A record about every ten minutes, in four collections.
fn paths(records: u64) -> Vec<RecordPath> {
    let collections = ["app.bsky.feed.like", "app.bsky.feed.post", "app.bsky.feed.repost", "app.bsky.graph.follow"];
    let each = records / 4;
    let path = |n: u64, collection| {
        let tid = Rev::from_parts(1_600_000_000_000_000 + n * 612_345_678, (n * 7 % 1024) as u16);
        RecordPath::new(&format!("{collection}/{tid}")).expect("a path")
    };
    collections.into_iter().flat_map(|collection| (0..each).map(move |n| path(n, collection))).collect()
}

fn link(n: usize) -> Link {
    Link::of(&n.to_le_bytes())
}

fn build(paths: &[RecordPath], links: &[Link]) -> Vec<Chunk> {
    let mut builder = Builder::default();
    let mut chunks: Vec<Chunk> =
        paths.iter().zip(links).filter_map(|(path, &cid)| builder.push(path.as_ref(), cid).expect("in order")).collect();
    chunks.extend(builder.finish());
    chunks
}

fn per_entry(what: &str, started: Instant, entries: usize) {
    println!("{what}: {:.1} ns for each entry", started.elapsed().as_nanos() as f64 / entries as f64);
}

fn manifest(paths: &[RecordPath], links: &[Link]) -> Vec<Chunk> {
    let started = Instant::now();
    let chunks = build(paths, links);
    per_entry("manifest encode", started, paths.len());
    let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len() + chunk.first.as_str().len()).sum();
    println!("manifest size: {:.1} bytes for each entry", bytes as f64 / paths.len() as f64);

    let started = Instant::now();
    let mut read = 0;
    for chunk in &chunks {
        let mut entries = chunk.read();
        while entries.entry().expect("a chunk").is_some() {
            read += 1;
        }
    }
    assert_eq!(read, paths.len());
    per_entry("manifest decode", started, read);

    let started = Instant::now();
    let mut pages = chunks.chunks(16);
    let mut diff = Diff::new(Vec::new());
    for (path, &cid) in paths.iter().zip(links) {
        while diff.leaf(path.as_ref(), cid, &mut |_| ()).expect("in order") == Step::Starved {
            diff.feed(pages.next().unwrap_or_default().to_vec());
        }
    }
    assert_eq!(diff.same(), paths.len() as u64);
    per_entry("manifest diff, all the same", started, paths.len());
    chunks
}

fn did(n: u64) -> Did {
    Did::new(&format!("did:plc:{n:024}")).expect("a DID")
}

fn rev(n: u64) -> Rev {
    Rev::from_parts(1_700_000_000_000_000 + n, 0)
}

fn advance(job: &Job) -> Advance {
    Advance::new(job.id, job.epoch)
}

async fn claimed(store: &dyn Store, consumer: ConsumerId, n: u64) -> Job {
    store.enqueue(consumer, &[did(n)]).await.expect("enqueue");
    store.claim(&did(n), Timestamp(1)).await.expect("claim").pop().expect("a job")
}

/// One million records in one go: the writer's time alone.
async fn bulk(store: &dyn Store, consumer: ConsumerId, chunks: &[Chunk]) {
    let job = claimed(store, consumer, 0).await;
    let started = Instant::now();
    for part in chunks.chunks(4) {
        let append = Advance { manifest: ManifestChange::Append(part.to_vec()), ..advance(&job) };
        store.advance(append).await.expect("advance");
    }
    let elapsed = started.elapsed();
    println!("bulk append: {} chunks in {:.2} s, a commit for every 4", chunks.len(), elapsed.as_secs_f64());
}

/// Repos of 500 records, completed as a checkout does it, and the room that they take.
async fn repos(store: &Arc<dyn Store>, consumer: ConsumerId, paths: &[RecordPath], links: &[Link]) {
    let started = Instant::now();
    for (n, (paths, links)) in paths.chunks(500).zip(links.chunks(500)).enumerate() {
        let job = claimed(&**store, consumer, 1 + n as u64).await;
        let position = Some(Position { rev: rev(0), data: Some(link(0)) });
        let manifest = ManifestChange::Append(build(paths, links));
        store.advance(Advance { manifest, position, finish: true, ..advance(&job) }).await.expect("advance");
    }
    println!(
        "checkouts: {:.0} repos of 500 records a second, one after the other",
        (paths.len() / 500) as f64 / started.elapsed().as_secs_f64()
    );
    live(store, consumer).await;
}

/// Ops of many repos, each appended, read and advanced as a lane does it, 256 repos at once.
async fn live(store: &Arc<dyn Store>, consumer: ConsumerId) {
    let started = Instant::now();
    let lanes = (0..256u64).map(|lane| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mine: Vec<u64> = (1 + lane..=LIVE_JOBS).step_by(256).collect();
            let mut jobs = Vec::new();
            for &n in &mine {
                jobs.push(store.job(consumer, &did(n)).await.expect("job").expect("a job"));
            }
            for round in 1..=LIVE_PAIRS / LIVE_JOBS {
                for job in &jobs {
                    pair(&*store, consumer, job, round).await;
                }
            }
        })
    });
    for lane in lanes.collect::<Vec<_>>() {
        lane.await.expect("a lane");
    }
    println!("live: {:.0} pairs of append and advance a second", LIVE_PAIRS as f64 / started.elapsed().as_secs_f64());
}

async fn pair(store: &dyn Store, consumer: ConsumerId, job: &Job, round: u64) {
    let path = RecordPath::new(&format!("app.bsky.feed.post/{}", rev(round))).expect("a path");
    let cid = link(round as usize);
    let create = OpAction::Create { cid, record: vec![9; 300].into() };
    let ops = vec![Op { path: path.clone(), action: create }];
    let op_set = OpSet { did: job.did.clone(), rev: rev(round), since: Some(rev(round - 1)), data: Some(cid), prev_data: None, ops };
    store.append(consumer, &op_set, 1 << 20).await.expect("append");
    let edit = Edit { path, cid: Some(cid) };
    let position = Some(Position { rev: rev(round), data: Some(cid) });
    let flushed = Some(atproto_backfill::job::BufferSeq(i64::MAX));
    let manifest = ManifestChange::Apply(vec![edit]);
    store.advance(Advance { manifest, flushed, position, ..advance(job) }).await.expect("advance");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let paths = paths(RECORDS);
    let links: Vec<Link> = (0..paths.len()).map(link).collect();
    let chunks = manifest(&paths, &links);
    let mut arguments = std::env::args().skip_while(|argument| argument != "--postgres").skip(1);
    if let Some(url) = arguments.next() {
        let store = postgres(&url);
        let consumer = store.consumer("bench@1").await.expect("consumer");
        bulk(&*store, consumer, &chunks).await;
        repos(&store, consumer, &paths, &links).await;
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("bulk.db")).expect("open");
    let consumer = store.consumer("bench@1").await.expect("consumer");
    bulk(&store, consumer, &chunks).await;
    drop(store);
    let file = directory.path().join("repos.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file).expect("open"));
    let consumer = store.consumer("bench@1").await.expect("consumer");
    repos(&store, consumer, &paths, &links).await;
    drop(store);
    let size = std::fs::metadata(file).expect("the database").len();
    println!("store size: {:.1} bytes for each record, after the live ops", size as f64 / (paths.len() as u64 + LIVE_PAIRS) as f64);
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Arc<dyn Store> {
    Arc::new(atproto_backfill::store::PostgresStore::open(url).expect("open"))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str) -> Arc<dyn Store> {
    panic!("--postgres needs the feature \"postgres\"")
}
