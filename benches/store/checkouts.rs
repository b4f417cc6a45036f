//! What checkouts and live ops cost the store.

use std::sync::Arc;

use atproto_backfill::job::{BufferSeq, ConsumerId, Job, Position};
use atproto_backfill::manifest::{Chunk, Edit};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, ManifestChange, Store};
use atproto_backfill::syntax::RecordPath;

use super::clock::Clock;
use super::database::Database;
use super::manifest::{build, link};
use super::op_sets::op_set;
use super::{advance, claimed, did, rev};

const LIVE_JOBS: u64 = 2_000;
const LIVE_PAIRS: u64 = 100_000;

pub(crate) async fn measure(database: &Database, chunks: &[Chunk], paths: &[RecordPath], links: &[Link]) {
    let consumer = database.store.consumer("checkouts@1").await.expect("consumer");
    bulk(&*database.store, consumer, chunks).await;
    repos(&database.store, consumer, paths, links).await;
    live(&database.store, consumer).await;
}

/// One million records in one go: the writer's time alone.
async fn bulk(store: &dyn Store, consumer: ConsumerId, chunks: &[Chunk]) {
    let job = claimed(store, consumer, &did(0)).await;
    let clock = Clock::start();
    for part in chunks.chunks(4) {
        let append = Advance { manifest: ManifestChange::Append(part.to_vec()), ..advance(&job) };
        store.advance(append).await.expect("advance");
    }
    let passed = clock.passed();
    let entries = chunks.iter().map(|chunk| u64::from(chunk.entries)).sum();
    passed.print("manifest entries acknowledged", entries, "one job, a commit for every 4 chunks");
}

/// Repos of 500 records, completed as a checkout does it, and the room that they take.
async fn repos(store: &Arc<dyn Store>, consumer: ConsumerId, paths: &[RecordPath], links: &[Link]) {
    let clock = Clock::start();
    for (n, (paths, links)) in paths.chunks(500).zip(links.chunks(500)).enumerate() {
        let job = claimed(&**store, consumer, &did(1 + n as u64)).await;
        let position = Some(Position { rev: rev(0), data: Some(link(0)) });
        let manifest = ManifestChange::Append(build(paths, links));
        store.advance(Advance { manifest, position, finish: true, ..advance(&job) }).await.expect("advance");
    }
    clock.passed().print("checkouts", paths.len() as u64 / 500, "repos of 500 records, one after the other");
}

/// Ops of many repos, each appended, read and advanced as a lane does it, 256 repos at once.
async fn live(store: &Arc<dyn Store>, consumer: ConsumerId) {
    let clock = Clock::start();
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
    clock.passed().print("live", LIVE_PAIRS, "pairs of append and advance");
}

async fn pair(store: &dyn Store, consumer: ConsumerId, job: &Job, round: u64) {
    let op_set = op_set(job, round);
    store.append(consumer, &op_set, 1 << 20).await.expect("append");
    let edits = op_set.ops.iter().map(|op| Edit { path: op.path.clone(), cid: op_set.data }).collect();
    let position = Some(Position { rev: op_set.rev, data: op_set.data });
    let manifest = ManifestChange::Apply(edits);
    store.advance(Advance { manifest, flushed: Some(BufferSeq(i64::MAX)), position, ..advance(job) }).await.expect("advance");
}
