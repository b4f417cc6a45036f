//! Seeded schedules of everything at once: faults, missed op sets, failing handlers, stops, purges. At the end the consumer equals the world.

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::Options;
use atproto_backfill::job::JobState;
use atproto_backfill::sim::{Ending, Fault, HandlerFault, Missing, Position, RandomWrites, RetryHint, Rule, Sizes, World};
use atproto_backfill::store::{MemoryStore, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::rig::{LIMIT, Rig};

const REPOS: usize = 12;
const STEPS: usize = 400;

fn options() -> Options {
    Options {
        buffer_bytes: 20_000,
        delivery_records: 64.try_into().unwrap(),
        handler_attempts: 2.try_into().unwrap(),
        stop_grace: Duration::from_secs(10),
        ..Options::default()
    }
}

fn any_fault(random: &mut StdRng) -> Fault {
    match random.random_range(0..11) {
        0 => Fault::Html,
        1 => Fault::Cut(Position::Byte(random.random_range(0..30_000)), Ending::Clean),
        2 => Fault::Cut(Position::Block(random.random_range(0..200)), Ending::Clean),
        3 => Fault::Cut(Position::Byte(random.random_range(0..30_000)), Ending::Reset),
        4 => Fault::FlipByte(random.random_range(0..1_000_000)),
        5 => Fault::MissingBlock(Missing::Node),
        6 => Fault::MissingBlock(Missing::Record),
        7 => Fault::StaleReplica,
        8 => Fault::TornExport(random.random_range(1..20)),
        9 => Fault::Status(500, "InternalServerError"),
        _ => Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(0))),
    }
}

async fn schedule(seed: u64, store: Arc<dyn Store>) {
    println!("oracle seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::builder().seed(seed).hosts(3).repos(REPOS).sizes(Sizes::Each(250));
    let mut rig = Rig::with(world, Default::default(), options(), store).await;
    let dids = rig.world.dids();
    rig.backfiller.enqueue(&dids).await.unwrap();
    rig.backfiller.start().await.unwrap();
    let mut writes = RandomWrites::new(seed);
    let mut faults = Vec::new();
    let (mut missed, mut restarts, mut purges) = (0, 0, 0);
    for _ in 0..STEPS {
        let did = &dids[random.random_range(0..dids.len())];
        match random.random_range(0..100) {
            0..70 => {
                for _ in 0..random.random_range(1..4) {
                    let op_set = writes.write_to(&rig.world, did).unwrap();
                    // An op set in thirty is never heard of.
                    if random.random_range(0..30) == 0 {
                        missed += 1;
                    } else {
                        rig.backfiller.buffer(&op_set).await.unwrap();
                    }
                }
            }
            70..78 => faults.push(rig.network.faults().inject(Rule::new(any_fault(&mut random)).did(did).times(1))),
            78..88 => {
                rig.backfiller.enqueue(std::slice::from_ref(did)).await.unwrap();
                rig.store.want(consumer(&rig).await, did).await.unwrap();
            }
            88..92 => rig.handler.inject(HandlerFault::Refuse, random.random_range(1..4)),
            92..94 => {
                // What the handler was given of a purged repo is its own to forget.
                purges += 1;
                rig.backfiller.purge(did).await.unwrap();
                rig.copy.forget(did);
                rig.backfiller.enqueue(std::slice::from_ref(did)).await.unwrap();
            }
            94..96 => {
                restarts += 1;
                rig.backfiller.stop().await.unwrap();
                rig.restart(options()).await;
                rig.backfiller.start().await.unwrap();
            }
            _ => tokio::task::yield_now().await,
        }
    }
    // The faults are over. One more commit of each repo shows what was missed.
    faults.iter().for_each(|rule| rig.network.faults().heal(*rule));
    rig.handler.heal();
    for did in &dids {
        rig.backfiller.buffer(&writes.write_to(&rig.world, did).unwrap()).await.unwrap();
    }
    let at_rest = async {
        loop {
            rig.backfiller.idle().await.unwrap();
            let mut waiting = false;
            for did in &dids {
                let job = rig.backfiller.job(did).await.unwrap().unwrap();
                if matches!(job.state, JobState::Failed { .. }) {
                    waiting = true;
                    rig.backfiller.backfill_repo(did).await.unwrap();
                }
            }
            if !waiting {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, at_rest).await.unwrap_or_else(|_| panic!("seed {seed}: never at rest"));
    // Missed op sets can let a rev repeat to the consumer (a failed attempt, a crash), never an end that differs.
    rig.copy.take_violations();
    rig.assert_truth_after_restart().await;
    assert!(missed > 0 && restarts > 0 && purges > 0 && !faults.is_empty(), "seed {seed} put nothing to the test");
    rig.backfiller.stop().await.unwrap();
}

async fn consumer(rig: &Rig) -> atproto_backfill::job::ConsumerId {
    rig.store.consumer("test").await.unwrap()
}

/// How many schedules are tried: `BACKFILL_SEEDS`, or so many.
fn seeds(usual: u64) -> u64 {
    std::env::var("BACKFILL_SEEDS").map_or(usual, |number| number.parse().expect("BACKFILL_SEEDS is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_schedule_ends_in_the_truth_in_memory() {
    for seed in 0..seeds(12) {
        schedule(seed, Arc::new(MemoryStore::new())).await;
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_schedule_ends_in_the_truth_on_postgres() {
    for seed in 2000..2000 + seeds(3) {
        let Some(database) = crate::database::Database::create("every_schedule_ends_in_the_truth_on_postgres") else { return };
        schedule(seed, Arc::new(atproto_backfill::store::PostgresStore::open(&database.url).unwrap())).await;
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_schedule_ends_in_the_truth_on_sqlite() {
    for seed in 1000..1000 + seeds(6) {
        let folder = tempfile::tempdir().unwrap();
        let store = atproto_backfill::store::SqliteStore::open(folder.path().join("store.db")).unwrap();
        schedule(seed, Arc::new(store)).await;
    }
}
