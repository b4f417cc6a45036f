//! What a process leaves when it ends in the middle of something, and what the next one makes of it.

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::Options;
use atproto_backfill::job::JobState;
use atproto_backfill::sim::{Change, Gate, HandlerFault, RandomWrites, Sizes, World};
use atproto_backfill::store::{MemoryStore, Store};

use crate::rig::{LIMIT, Rig};

fn short_grace() -> Options {
    Options { stop_grace: Duration::from_millis(50), ..Options::default() }
}

/// Ends a backfiller while deliveries are with the handler, which has taken them and never says so.
async fn cut_off(rig: &Rig, deliveries: u64) {
    let waiting = async {
        while rig.handler.taken() < deliveries {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.expect("the handler was never called");
    rig.backfiller.stop().await.expect_err("the handler was to hang");
    rig.handler.heal();
}

async fn what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more(store: Arc<dyn Store>) {
    let world = World::builder().seed(51).hosts(1).repos(1).sizes(Sizes::Each(900));
    let mut rig = Rig::with(world, Default::default(), short_grace(), store).await;
    let did = rig.world.dids()[0].clone();
    rig.handler.inject(HandlerFault::Hold(Gate::new()), u64::MAX);
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    rig.backfiller.start().await.unwrap();
    cut_off(&rig, 2).await;
    let taken = rig.copy.repo(&did).records;
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert!(taken.len() > 800 && job.records == 0, "{} taken, {} recorded", taken.len(), job.records);
    // While the process is down, half of what it had handed over is deleted.
    let gone = taken.keys().step_by(2).map(|path| Change::Delete(path.clone()));
    for chunk in gone.collect::<Vec<_>>().chunks(100) {
        rig.world.write(&did, chunk.to_vec()).unwrap();
    }
    rig.restart(Options::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more_in_memory() {
    what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more(Arc::new(MemoryStore::new())).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = atproto_backfill::store::SqliteStore::open(folder.path().join("store.db")).unwrap();
    what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more(Arc::new(store)).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more_on_postgres() {
    let test = "what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more_on_postgres";
    let Some(database) = crate::database::Database::create(test) else { return };
    let store = atproto_backfill::store::PostgresStore::open(&database.url).unwrap();
    what_was_taken_and_not_recorded_is_deleted_when_it_is_no_more(Arc::new(store)).await;
}

#[tokio::test]
async fn an_op_set_that_was_taken_and_not_recorded_comes_again_in_order() {
    let world = World::builder().seed(52).hosts(1).repos(1).sizes(Sizes::Each(100));
    let mut rig = Rig::with(world, Default::default(), short_grace(), Arc::new(MemoryStore::new())).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.start().await.unwrap();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    rig.handler.inject(HandlerFault::Hold(Gate::new()), u64::MAX);
    let deliveries = rig.handler.taken();
    let mut writes = RandomWrites::new(52);
    for _ in 0..20 {
        rig.backfiller.buffer(&writes.write_to(&rig.world, &did).unwrap()).await.unwrap();
    }
    cut_off(&rig, deliveries + 1).await;
    rig.restart(Options::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    // The repeated delivery is a violation for the copy, and the one thing that a crash may do: it repeats.
    let repeated = rig.copy.take_violations();
    assert!(
        repeated.len() <= 1 && repeated.iter().all(|fault| fault.contains("came twice") || fault.contains("went back")),
        "{repeated:?}"
    );
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_database_that_is_opened_again_goes_on_where_it_was_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    opened_again(|| Arc::new(atproto_backfill::store::SqliteStore::open(&path).unwrap())).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_database_that_is_opened_again_goes_on_where_it_was_on_postgres() {
    let test = "a_database_that_is_opened_again_goes_on_where_it_was_on_postgres";
    let Some(database) = crate::database::Database::create(test) else { return };
    opened_again(|| Arc::new(atproto_backfill::store::PostgresStore::open(&database.url).unwrap())).await;
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
async fn opened_again(open: impl Fn() -> Arc<dyn Store>) {
    let world = World::builder().seed(53).hosts(2).repos(20).sizes(Sizes::Each(100));
    let mut rig = Rig::with(world, Default::default(), Options::default(), open()).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    let mut writes = RandomWrites::new(53);
    for round in 0..4 {
        rig.backfiller.start().await.unwrap();
        for _ in 0..100 {
            let op_set = writes.write(&rig.world).unwrap();
            rig.backfiller.buffer(&op_set).await.unwrap();
        }
        if round == 3 {
            rig.idle().await;
        }
        rig.backfiller.stop().await.unwrap();
        // Both the rig and its backfiller hold the store, which must be closed before it is opened again.
        rig.store = Arc::new(MemoryStore::new());
        rig.restart(Options::default()).await;
        rig.store = open();
        rig.restart(Options::default()).await;
    }
    rig.assert_truth_after_restart().await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_disk_that_fills_up_stops_nothing_for_good() {
    use atproto_backfill::store::{SqliteOptions, SqliteStore};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let small = SqliteOptions { max_bytes: Some(400_000), ..SqliteOptions::default() };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open_with(&path, small).unwrap());
    let world = World::builder().seed(54).hosts(2).repos(6).sizes(Sizes::Each(4000));
    let mut rig = Rig::with(world, Default::default(), short_grace(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    // More is delivered than the manifests have room for, or a worker waits for room; either way nothing completes from some point on.
    let full = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let (mut still, mut last) = (0, 0);
        while still < 50 {
            ticks.tick().await;
            let records = rig.backfiller.progress().await.unwrap().totals.records;
            still = if records == last && records > 0 { still + 1 } else { 0 };
            last = records;
        }
        last
    };
    let held = tokio::time::timeout(LIMIT, full).await.expect("the disk never filled up");
    assert!((1..24_000).contains(&held), "{held} records held: the quota was not put to the test");
    assert!(!rig.backfiller.is_broken(), "a full disk was taken for corruption");
    // Whether all parts end in time or some are let go: the next process finds what is there.
    let _ = rig.backfiller.stop().await;
    rig.store = Arc::new(MemoryStore::new());
    rig.restart(Options::default()).await;
    rig.store = Arc::new(SqliteStore::open(&path).unwrap());
    rig.restart(Options::default()).await;
    rig.backfiller.start().await.unwrap();
    for did in rig.world.dids() {
        // Those that failed meanwhile would be tried again in a minute.
        assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    }
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}
