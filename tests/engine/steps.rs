//! Op sets that arrive at each step of a job's life, and what else can come in between.

use std::sync::Arc;

use atproto_backfill::engine::Options;
use atproto_backfill::job::{JobState, Route};
use atproto_backfill::sim::{Fault, Gate, HandlerFault, Position, RandomWrites, Rule, Sizes, World};
use atproto_backfill::store::MemoryStore;
use atproto_backfill::syntax::Did;

use crate::rig::{LIMIT, Rig};

/// A rig whose one repo stands still in the middle of its fetch: its export was made, and is sent on when the gate opens.
async fn while_fetching(seed: u64) -> (Rig, Did, RandomWrites, Gate) {
    while_fetching_with(seed, Options::default()).await
}

async fn while_fetching_with(seed: u64, options: Options) -> (Rig, Did, RandomWrites, Gate) {
    let world = World::builder().seed(seed).hosts(1).repos(1).sizes(Sizes::Each(1500));
    let rig = Rig::with(world, Default::default(), options, Arc::new(MemoryStore::new())).await;
    let did = rig.world.dids()[0].clone();
    let gate = Gate::new();
    rig.network.faults().inject(Rule::new(Fault::Hold(Position::Byte(20_000), gate.clone())).times(1));
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    rig.backfiller.start().await.unwrap();
    tokio::time::timeout(LIMIT, gate.reached(1)).await.expect("the checkout never began");
    assert_eq!(rig.backfiller.job(&did).await.unwrap().unwrap().state, JobState::InProgress);
    (rig, did, RandomWrites::new(seed), gate)
}

#[tokio::test]
async fn op_sets_of_unknown_waiting_and_failed_repos_are_answered_as_such() {
    let rig = Rig::new(World::builder().seed(41).hosts(1).repos(1)).await;
    let did = rig.world.dids()[0].clone();
    let mut writes = RandomWrites::new(41);
    let mut hand_in = async || rig.backfiller.buffer(&writes.write_to(&rig.world, &did).unwrap()).await.unwrap();
    assert_eq!(hand_in().await, Route::Unknown);
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    assert_eq!(hand_in().await, Route::Discarded);
    rig.network.faults().inject(Rule::new(Fault::Html).times(1));
    rig.backfiller.start().await.unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(matches!(job.state, JobState::Failed { .. }));
    assert_eq!(hand_in().await, Route::Discarded);
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    assert_eq!(hand_in().await, Route::Buffered { complete: true });
    rig.idle().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn op_sets_that_arrive_while_fetching_are_flushed_in_order_after_the_checkout() {
    let (rig, did, mut writes, gate) = while_fetching(42).await;
    for _ in 0..100 {
        let op_set = writes.write_to(&rig.world, &did).unwrap();
        assert_eq!(rig.backfiller.buffer(&op_set).await.unwrap(), Route::Buffered { complete: false });
    }
    gate.open();
    rig.idle().await;
    rig.assert_truth().await;
    let counts = rig.backfiller.progress().await.unwrap().counts;
    assert_eq!((counts.op_sets_buffered, counts.op_sets_flushed, counts.checkouts_completed), (100, 100, 1), "{counts:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn an_op_set_missed_while_fetching_has_the_repo_checked_out_again() {
    let (rig, did, mut writes, gate) = while_fetching(43).await;
    for step in 0..10 {
        let op_set = writes.write_to(&rig.world, &did).unwrap();
        if step != 5 {
            rig.backfiller.buffer(&op_set).await.unwrap();
        }
    }
    gate.open();
    rig.idle().await;
    rig.assert_truth().await;
    let counts = rig.backfiller.progress().await.unwrap().counts;
    assert_eq!(counts.checkouts_repeated, 1, "{counts:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn op_sets_handed_in_twice_are_stale() {
    let (rig, did, mut writes, gate) = while_fetching(44).await;
    let op_sets: Vec<_> = (0..20).map(|_| writes.write_to(&rig.world, &did).unwrap()).collect();
    for op_set in op_sets.iter().chain(&op_sets) {
        rig.backfiller.buffer(op_set).await.unwrap();
    }
    gate.open();
    rig.idle().await;
    for op_set in &op_sets {
        assert_eq!(rig.backfiller.buffer(op_set).await.unwrap(), Route::Stale);
    }
    rig.assert_truth().await;
    assert_eq!(rig.backfiller.progress().await.unwrap().counts.op_sets_stale, 40);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn more_op_sets_than_the_buffer_may_hold_lose_nothing() {
    let options = Options { buffer_bytes: 4000, ..Options::default() };
    let (rig, did, mut writes, gate) = while_fetching_with(45, options).await;
    let mut gaps = 0;
    for _ in 0..200 {
        let route = rig.backfiller.buffer(&writes.write_to(&rig.world, &did).unwrap()).await.unwrap();
        gaps += usize::from(route == Route::Gap);
        assert!(rig.backfiller.job(&did).await.unwrap().unwrap().buffered_bytes <= 4000);
    }
    assert!(gaps > 0, "the budget was never reached");
    gate.open();
    rig.idle().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_repo_purged_during_its_checkout_is_gone_and_may_come_again() {
    let (rig, did, mut writes, gate) = while_fetching(46).await;
    assert!(rig.backfiller.purge(&did).await.unwrap());
    assert_eq!(rig.backfiller.buffer(&writes.write_to(&rig.world, &did).unwrap()).await.unwrap(), Route::Unknown);
    gate.open();
    rig.idle().await;
    assert_eq!(rig.backfiller.job(&did).await.unwrap(), None, "the purged job came back");
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_in_the_middle_of_a_fetch_is_no_attempt() {
    let (mut rig, did, mut writes, gate) = while_fetching(47).await;
    rig.backfiller.buffer(&writes.write_to(&rig.world, &did).unwrap()).await.unwrap();
    rig.backfiller.stop().await.unwrap();
    gate.open();
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert_eq!((job.state, job.failures), (JobState::Enqueued, 0));
    rig.restart(Options::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_fails_after_the_checkout_holds_up_its_repo_and_no_op_set_is_lost() {
    let options = Options { handler_attempts: 2.try_into().unwrap(), ..Options::default() };
    let world = World::builder().seed(48).hosts(1).repos(2).sizes(Sizes::Each(100));
    let rig = Rig::with(world, Default::default(), options, Arc::new(MemoryStore::new())).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.handler.inject(HandlerFault::Refuse, 5);
    let mut writes = RandomWrites::new(48);
    for _ in 0..50 {
        let op_set = writes.write(&rig.world).unwrap();
        assert_eq!(rig.backfiller.buffer(&op_set).await.unwrap(), Route::Buffered { complete: true });
    }
    let failing = async {
        let said = |job: atproto_backfill::job::Job| job.state == JobState::Complete && job.failure.contains("told to fail");
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(1));
        loop {
            for did in rig.world.dids() {
                if said(rig.backfiller.job(&did).await.unwrap().unwrap()) {
                    return;
                }
            }
            ticks.tick().await;
        }
    };
    tokio::time::timeout(LIMIT, failing).await.expect("the failure never showed on a job");
    rig.idle().await;
    assert_eq!(rig.handler.fired(), 5, "the failures were never met");
    for did in rig.world.dids() {
        assert_eq!(rig.backfiller.job(&did).await.unwrap().unwrap().failure, "");
    }
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}
