//! Op sets that come for complete repos: buffered only, and the whole way of a live op.

use std::sync::Arc;

use atproto_backfill::job::{BufferSeq, ConsumerId, Job, Op, OpAction, OpSet, Position};
use atproto_backfill::manifest::Edit;
use atproto_backfill::store::{Advance, ManifestChange, Store};
use atproto_backfill::syntax::RecordPath;

use super::clock::Clock;
use super::database::Database;
use super::floor;
use super::manifest::link;
use super::{advance, claimed, did, rev};

/// How many each job gets.
const ROUNDS: u64 = 20;
const CALLERS: u64 = 1024;
const RECORD_BYTES: usize = 300;

pub(crate) async fn measure(database: &Database, op_sets: u64) {
    let store = &database.store;
    let consumer = store.consumer("op-sets@1").await.expect("consumer");
    let jobs = complete(store, consumer, op_sets / ROUNDS).await;
    let op_sets = jobs.len() as u64 * ROUNDS;
    let clock = Clock::start();
    appends(store, consumer, &jobs).await;
    let buffered = clock.passed();
    buffered.print("op sets buffered", op_sets, &format!("{CALLERS} callers"));
    if let Some(folder) = database.folder() {
        let ids: Vec<i64> = jobs.iter().map(|job| job.id.0).collect();
        let floor = floor::rows_a_second(&folder.join("floor.db"), &op_set(&jobs[0], 1), op_sets, &ids, CALLERS);
        let ratio = op_sets as f64 / buffered.wall.as_secs_f64() / floor;
        println!("op sets buffered: {ratio:.2} of the floor, {floor:.0} rows a second put by one thread of SQLite that does nothing else");
    }
    let clock = Clock::start();
    take(store, &jobs).await;
    clock.passed().print("op sets taken", op_sets, &format!("{ROUNDS} at once"));
}

/// Jobs that follow, with nothing in their manifests.
async fn complete(store: &Arc<dyn Store>, consumer: ConsumerId, number: u64) -> Arc<[Job]> {
    let callers = (0..64).map(|caller| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut jobs = Vec::new();
            for n in (caller..number).step_by(64) {
                let job = claimed(&*store, consumer, &did(n)).await;
                let position = Some(Position { rev: rev(0), data: Some(link(0)) });
                store.advance(Advance { position, finish: true, ..advance(&job) }).await.expect("advance");
                jobs.push(job);
            }
            jobs
        })
    });
    let mut jobs = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        jobs.extend(caller.await.expect("a caller"));
    }
    jobs.into()
}

pub(crate) fn op_set(job: &Job, round: u64) -> OpSet {
    let path = RecordPath::new(&format!("app.bsky.feed.post/{}", rev(round))).expect("a path");
    let cid = link(round as usize);
    let create = OpAction::Create { cid, record: vec![9; RECORD_BYTES].into() };
    let ops = vec![Op { path, action: create }];
    OpSet { did: job.did.clone(), rev: rev(round), since: Some(rev(round - 1)), data: Some(cid), prev_data: None, ops }
}

async fn appends(store: &Arc<dyn Store>, consumer: ConsumerId, jobs: &Arc<[Job]>) {
    let callers = (0..CALLERS).map(|caller| {
        let (store, jobs) = (Arc::clone(store), Arc::clone(jobs));
        tokio::spawn(async move {
            for round in 1..=ROUNDS {
                for job in jobs.iter().skip(caller as usize).step_by(CALLERS as usize) {
                    store.append(consumer, &op_set(job, round), 1 << 20).await.expect("append");
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller");
    }
}

/// Each buffer in one delivery, as a lane takes one that has grown.
async fn take(store: &Arc<dyn Store>, jobs: &Arc<[Job]>) {
    let callers = (0..CALLERS).map(|caller| {
        let (store, jobs) = (Arc::clone(store), Arc::clone(jobs));
        tokio::spawn(async move {
            for job in jobs.iter().skip(caller as usize).step_by(CALLERS as usize) {
                let rows = store.buffered(job.id, 1 << 20).await.expect("buffered");
                assert_eq!(rows.len() as u64, ROUNDS);
                let edit = |(_, op_set): &(BufferSeq, OpSet)| {
                    op_set.ops.iter().map(|op| Edit { path: op.path.clone(), cid: op_set.data }).collect::<Vec<_>>()
                };
                let manifest = ManifestChange::Apply(rows.iter().flat_map(edit).collect());
                let position = Some(Position { rev: rev(ROUNDS), data: Some(link(ROUNDS as usize)) });
                let flushed = rows.last().map(|(seq, _)| *seq);
                store.advance(Advance { manifest, flushed, position, ..advance(job) }).await.expect("advance");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller");
    }
}
