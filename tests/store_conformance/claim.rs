use atproto_backfill::job::{JobEvent, JobState, Timestamp};
use atproto_backfill::store::{Advance, Standing};

use crate::world::{NOW, World, advance, at, did, epoch_after, failed, op_set, path, rev};

crate::conformance!(
    a_claim_takes_all_jobs_of_a_repo_once,
    a_failed_job_is_claimed_when_its_time_has_come,
    a_new_claim_ends_the_old_one,
    recovery_enqueues_what_was_in_progress_and_nothing_else,
    a_retry_that_a_clock_ahead_of_ours_has_dated_comes_at_once_after_a_restart,
    what_was_buffered_before_a_restart_is_in_doubt_at_the_next_claim,
);

async fn a_claim_takes_all_jobs_of_a_repo_once(world: World) {
    let other = world.store.consumer("likes@1").await.unwrap();
    world.enqueue(&did(1)).await;
    world.store.enqueue(other, &[did(1), did(2)]).await.unwrap();
    let claimed = world.store.claim(&did(1), NOW).await.unwrap();
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|job| job.did == did(1) && job.state == JobState::InProgress && job.epoch.0 == 1), "{claimed:?}");
    assert!(world.store.claim(&did(1), NOW).await.unwrap().is_empty());
    assert!(world.store.claim(&did(77), NOW).await.unwrap().is_empty());
    assert_eq!(world.job(&did(1)).await, claimed[0], "what was claimed is not what is stored");
    assert_eq!(world.store.job(other, &did(2)).await.unwrap().unwrap().state, JobState::Enqueued);
}

async fn a_failed_job_is_claimed_when_its_time_has_come(world: World) {
    let job = world.claimed(&did(1)).await;
    assert_eq!(world.settle(&job, failed(3, Timestamp(NOW.0 + 1))).await, Standing::Ended);
    assert!(world.store.claim(&did(1), NOW).await.unwrap().is_empty());
    let again = world.store.claim(&did(1), Timestamp(NOW.0 + 1)).await.unwrap().pop().unwrap();
    assert_eq!((again.failures, again.failure.as_str()), (3, "because"), "the failures are forgotten");
    assert!(again.epoch > job.epoch);
    world.finish_at(&again, 4).await;
    let complete = world.job(&did(1)).await;
    assert_eq!((complete.failures, complete.failure.as_str()), (0, ""));
}

async fn a_new_claim_ends_the_old_one(world: World) {
    let old = world.claimed(&did(1)).await;
    world.settle(&old, JobEvent::Released).await;
    let new = world.claim(&did(1)).await;
    let before = world.job(&did(1)).await;
    let stale = Advance { position: at(9), finish: true, ..advance(&old) };
    assert_eq!(world.store.advance(stale).await.unwrap(), Standing::Superseded);
    assert_eq!(world.settle(&old, JobEvent::Released).await, Standing::Superseded);
    assert_eq!(world.store.intend(old.id, old.epoch, &[path("x")]).await.unwrap(), None);
    assert_eq!(world.job(&did(1)).await, before, "a superseded claim has written");
    assert_eq!(world.finish_at(&new, 9).await, Standing::Complete);
}

async fn recovery_enqueues_what_was_in_progress_and_nothing_else(world: World) {
    let complete = world.complete(&did(1), 5).await;
    let claimed = world.claimed(&did(2)).await;
    let failing = world.claimed(&did(3)).await;
    world.settle(&failing, failed(1, NOW)).await;
    let failed = world.job(&did(3)).await;
    world.enqueue(&did(4)).await;
    assert_eq!(world.store.recover(NOW).await.unwrap(), 1);
    assert_eq!(world.store.recover(NOW).await.unwrap(), 0);
    assert_eq!(world.job(&did(1)).await, complete);
    assert_eq!(world.job(&did(3)).await, failed);
    let recovered = world.job(&did(2)).await;
    assert_eq!((recovered.state, recovered.epoch), (JobState::Enqueued, epoch_after(&claimed, 1)));
}

async fn a_retry_that_a_clock_ahead_of_ours_has_dated_comes_at_once_after_a_restart(world: World) {
    const HOUR: i64 = 3_600_000;
    for (number, hours) in [(1, 1), (2, 9)] {
        let job = world.claimed(&did(number)).await;
        world.settle(&job, failed(number, Timestamp(NOW.0 + hours * HOUR))).await;
        if number == 1 {
            world.store.place(&did(number), "pds.test").await.unwrap();
        }
    }
    let placed = world.claimed(&did(3)).await;
    world.store.place(&did(3), "pds.test").await.unwrap();
    world.settle(&placed, failed(3, Timestamp(NOW.0 + 9 * HOUR))).await;
    let in_time = world.job(&did(1)).await;
    assert_eq!(world.store.recover(NOW).await.unwrap(), 0);
    assert_eq!(world.job(&did(1)).await, in_time, "an hour is what a job may have to wait");
    for number in [2, 3] {
        let job = world.job(&did(number)).await;
        assert_eq!((job.state, job.failures), (JobState::Enqueued, number), "{number}");
        assert_eq!(world.store.claim(&did(number), NOW).await.unwrap().len(), 1);
    }
}

async fn what_was_buffered_before_a_restart_is_in_doubt_at_the_next_claim(world: World) {
    let job = world.complete(&did(1), 5).await;
    world.store.want(world.consumer, &did(1)).await.unwrap();
    let claimed = world.claim(&did(1)).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    world.append(&op_set(&did(1), 6, 7)).await;
    world.store.recover(NOW).await.unwrap();
    let again = world.claim(&did(1)).await;
    assert_eq!((again.buffered_op_sets, again.buffered_bytes, again.min_rev), (0, 0, Some(rev(7))));
    assert!(world.buffered_revs(job.id).await.is_empty());
    assert_eq!(world.doubted(job.id).await, ["app.bsky.feed.post/r006", "app.bsky.feed.post/r007"]);
    assert!(claimed.epoch < again.epoch);
    assert_eq!(world.finish_at(&again, 7).await, Standing::Complete);
    assert!(world.doubted(job.id).await.is_empty(), "the doubt outlives the checkout that ended it");
}
