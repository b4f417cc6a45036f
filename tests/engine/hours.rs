//! Hosts, directories and limits that are away for hours: they are asked now and then and no more, and once they are back nothing waits longer than the longest delay.
//!
//! The hours are simulated. Tokio's clock is paused, and moves by itself only while nobody has anything to do; but that somebody waits for a socket it does
//! not see. So whoever waits here keeps busy, which holds the clock while the sockets are served, and moves it by hand.

use std::time::{Duration, Instant};

use atproto_backfill::job::{FailureKind, JobState};
use atproto_backfill::sim::{Endpoint, Fault, RandomWrites, RetryHint, Rule, Sizes, World};

use crate::rig::Rig;

const HOUR: Duration = Duration::from_secs(3600);
/// By how much the clock is moved at once.
const STEP: Duration = Duration::from_secs(1);
/// How long, in real time, everybody has turns in between; longer while a checkout is under way, though it may be one that hangs.
const TURNS: Duration = Duration::from_micros(300);
const PATIENCE: Duration = Duration::from_millis(500);

/// Lets time pass.
pub(crate) async fn pass(rig: &Rig, time: Duration) {
    let until = tokio::time::Instant::now() + time;
    loop {
        let began = Instant::now();
        while began.elapsed() < TURNS || began.elapsed() < PATIENCE && rig.backfiller.progress().await.unwrap().totals.in_progress > 0 {
            tokio::task::yield_now().await;
        }
        if tokio::time::Instant::now() >= until {
            return;
        }
        tokio::time::advance(STEP).await;
    }
}

/// Lets time pass until all repos are complete.
async fn until_complete(rig: &Rig, within: Duration) {
    let began = tokio::time::Instant::now();
    while rig.backfiller.progress().await.unwrap().totals.complete < rig.world.dids().len() as u64 {
        assert!(began.elapsed() <= within, "not complete after {within:?}: {:?}", rig.backfiller.progress().await.unwrap().totals);
        pass(rig, 10 * STEP).await;
    }
}

async fn started(seed: u64, before: impl AsyncFnOnce(&Rig)) -> Rig {
    let rig = Rig::new(World::builder().seed(seed).hosts(2).repos(8).sizes(Sizes::Each(60))).await;
    before(&rig).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_gone_for_hours_is_tried_ever_more_rarely_and_copied_within_the_hour_of_its_return() {
    let rig = started(411, async |rig: &Rig| rig.network.shut_host(0).await).await;
    pass(&rig, 6 * HOUR).await;
    let progress = rig.backfiller.progress().await.unwrap();
    assert_eq!((progress.totals.complete, progress.totals.failed), (4, 4), "{progress:?}");
    for did in rig.world.dids().into_iter().filter(|did| rig.world.host_of(did) == Some(0)) {
        let job = rig.backfiller.job(&did).await.unwrap().unwrap();
        assert!(matches!(job.state, JobState::Failed { kind: FailureKind::Connect, .. }), "{job:?}");
        // At least half of 1 + 2 + 4 + ... + 32 minutes, then half an hour each time.
        assert!((4..=6 + 2 * 6).contains(&job.failures), "{} attempts in six hours", job.failures);
    }
    rig.network.open_host(0).await;
    until_complete(&rig, HOUR + HOUR / 6).await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_refusals_for_hours_is_no_attempt_and_ends_with_the_storm() {
    let seconds = Duration::from_secs;
    for (fault, pause) in [
        (Fault::TooManyRequests(RetryHint::None), 300),
        (Fault::TooManyRequests(RetryHint::Seconds(seconds(30))), 30),
        (Fault::TooManyRequests(RetryHint::Date(seconds(1800))), 1800),
        (Fault::TooManyRequests(RetryHint::ResetAt(seconds(300))), 300),
        (Fault::TooManyRequests(RetryHint::ResetIn(seconds(300))), 300),
        (Fault::ServiceUnavailable(None), 10),
        (Fault::ServiceUnavailable(Some(seconds(60))), 60),
    ] {
        let named = format!("{fault:?}");
        let rule = std::cell::Cell::new(None);
        let rig = started(412, async |rig: &Rig| rule.set(Some(rig.network.faults().inject(Rule::new(fault.clone()))))).await;
        let rule = rule.get().unwrap();
        pass(&rig, 3 * HOUR).await;
        let (progress, refusals) = (rig.backfiller.progress().await.unwrap(), rig.network.faults().fired(rule));
        assert_eq!(
            (progress.totals.enqueued, progress.totals.failed, progress.counts.checkouts_failed),
            (8, 0, 0),
            "{named}: {progress:?}"
        );
        // Each of eight repos once a pause at most.
        assert!((8..=8 * (1 + 3 * 3600 / pause)).contains(&refusals), "{named}: {refusals} requests in three hours");
        println!("{named}: {refusals} requests in three hours");
        rig.network.faults().heal(rule);
        until_complete(&rig, HOUR).await;
        rig.assert_truth().await;
        rig.backfiller.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_fails_for_hours_is_not_overrun_and_costs_no_repo() {
    let rule = std::cell::Cell::new(None);
    let out = Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::DidDocument);
    let rig = started(413, async |rig: &Rig| rule.set(Some(rig.network.faults().inject(out)))).await;
    let rule = rule.get().unwrap();
    pass(&rig, 3 * HOUR).await;
    let (progress, asked) = (rig.backfiller.progress().await.unwrap(), rig.network.faults().fired(rule));
    assert_eq!((progress.totals.complete, progress.totals.failed), (0, 8), "{progress:?}");
    assert!((8..=8 * 30).contains(&asked), "{asked} look-ups of eight accounts in three hours");
    rig.network.faults().heal(rule);
    until_complete(&rig, HOUR + HOUR / 6).await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_that_has_lost_its_newest_commits_is_believed_after_ten_minutes_and_no_sooner() {
    let rig = started(414, async |_: &Rig| ()).await;
    pass(&rig, 10 * STEP).await;
    let (did, mut writes) = (rig.world.dids().remove(0), RandomWrites::new(414));
    let (backup, before) = (rig.world.snapshot(&did).unwrap(), rig.world.head(&did).unwrap());
    for _ in 0..20 {
        rig.backfiller.buffer(&writes.write_to(&rig.world, &did).unwrap()).await.unwrap();
    }
    pass(&rig, 10 * STEP).await;
    let newest = rig.world.head(&did).unwrap();
    rig.world.restore(&did, &backup);
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(matches!(job.state, JobState::Failed { kind: FailureKind::Stale, .. }), "{job:?}");
    pass(&rig, HOUR / 6 - 10 * STEP).await;
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert_eq!(job.rev, Some(newest.0), "it was believed too soon: {job:?}");
    assert!(job.failures >= 3, "it was not asked again and again: {job:?}");
    until_complete(&rig, HOUR).await;
    let (progress, job) = (rig.backfiller.progress().await.unwrap(), rig.backfiller.job(&did).await.unwrap().unwrap());
    assert_eq!((progress.counts.restored, job.rev, job.records), (1, Some(before.0), before.2), "{job:?}");
    assert!(rig.copy.take_violations().iter().all(|violation| violation.contains("went back")));
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}
