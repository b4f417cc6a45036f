//! A machine whose clock is wrong by hours, and is set: nothing is lost by it, waits hours for it, or is done in haste.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atproto_backfill::job::{FailureKind, JobState};
use atproto_backfill::sim::{Fault, NetworkOptions, RandomWrites, Rule, Sizes, WallClock, World};
use atproto_backfill::store::{MemoryStore, Store};

use crate::hours::pass;
use crate::rig::{Following, Rig};

const HOURS: Duration = Duration::from_secs(10 * 3600);

fn with(clock: &WallClock) -> Following {
    Following { clock: clock.clone(), ..Following::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_a_clock_behind_takes_for_the_future_are_made_up_for_once_it_is_set() {
    let clock = WallClock::new();
    clock.set_behind(HOURS);
    let world = World::builder().seed(401).hosts(2).repos(8).sizes(Sizes::Each(60));
    let rig = Rig::copied(world, NetworkOptions::default(), with(&clock)).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    rig.world.clock().set(u64::try_from(now.as_micros()).unwrap());
    let (dids, mut writes) = (rig.world.dids(), RandomWrites::new(401));
    dids[..5].iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
    rig.caught_up().await;
    let dropped = rig.backfiller.progress().await.unwrap().follow.unwrap().dropped;
    assert_eq!(dropped.get("future"), Some(&5), "{dropped:?}");
    clock.set_ahead(Duration::ZERO);
    // Of the five nobody hears any more.
    writes.write_to(&rig.world, &dids[6]).unwrap();
    rig.up_to_date(&dids).await;
    rig.caught_up().await;
    let dropped = rig.backfiller.progress().await.unwrap().follow.unwrap().dropped;
    assert_eq!(dropped.get("future"), Some(&5), "a clock that is right is not believed");
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_while_commits_come_makes_none_of_them_the_future() {
    let clock = WallClock::new();
    let world = World::builder().seed(402).hosts(2).repos(8).sizes(Sizes::Each(60));
    let rig = Rig::copied(world, NetworkOptions::default(), with(&clock)).await;
    let checkouts = rig.checkouts();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    rig.world.clock().set(u64::try_from(now.as_micros()).unwrap());
    let mut writes = RandomWrites::new(402);
    for set in [WallClock::set_behind, WallClock::set_ahead] {
        set(&clock, HOURS);
        (0..30).for_each(|_| _ = writes.write(&rig.world).unwrap());
        rig.caught_up().await;
    }
    rig.assert_truth().await;
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    assert_eq!((rig.checkouts(), follow.dropped.len(), follow.gaps.len()), (checkouts, 0, 0), "{follow:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_moves_no_retry() {
    let clock = WallClock::new();
    let world = World::builder().seed(403).hosts(1).repos(4).sizes(Sizes::Each(60));
    let rig = Rig::following(world, NetworkOptions::default(), with(&clock), Arc::new(MemoryStore::new())).await;
    let rule = rig.network.faults().inject(Rule::new(Fault::Html).times(4));
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    pass(&rig, Duration::from_secs(5)).await;
    assert_eq!((rig.network.faults().fired(rule), rig.checkouts()), (4, 4));
    clock.set_ahead(HOURS);
    // They come again after half a minute to a whole one.
    pass(&rig, Duration::from_secs(20)).await;
    assert_eq!(rig.checkouts(), 4, "a repo was tried again because the clock was set forward");
    clock.set_behind(HOURS);
    pass(&rig, Duration::from_secs(45)).await;
    assert_eq!(rig.checkouts(), 8, "a repo waits because the clock was set back");
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

/// The first process dates its failures by a clock that is ahead; the next one has the right time.
async fn dated_ahead(store: Arc<dyn Store>) {
    let clock = WallClock::new();
    clock.set_ahead(HOURS);
    let world = World::builder().seed(404).hosts(1).repos(3).sizes(Sizes::Each(60));
    let mut rig = Rig::following(world, NetworkOptions::default(), with(&clock), store).await;
    let did = rig.world.dids().remove(0);
    let rule = rig.network.faults().inject(Rule::new(Fault::Html).did(&did).times(1));
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert!(
        matches!(job.state, JobState::Failed { kind: FailureKind::MalformedCar, .. }) && rig.network.faults().fired(rule) == 1,
        "{job:?}"
    );
    rig.backfiller.stop().await.unwrap();
    rig.restart_following(Following::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.until(|progress| progress.totals.complete == 3).await;
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_that_a_clock_ahead_has_dated_comes_after_the_restart_in_memory() {
    dated_ahead(Arc::new(MemoryStore::new())).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_retry_that_a_clock_ahead_has_dated_comes_after_the_restart_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    dated_ahead(Arc::new(atproto_backfill::store::SqliteStore::open(folder.path().join("store.db")).unwrap())).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_retry_that_a_clock_ahead_has_dated_comes_after_the_restart_on_postgres() {
    let test = "a_retry_that_a_clock_ahead_has_dated_comes_after_the_restart_on_postgres";
    let Some(database) = crate::database::Database::create(test) else { return };
    dated_ahead(Arc::new(atproto_backfill::store::PostgresStore::open(&database.url).unwrap())).await;
}
