use atproto_backfill::job::{JobEvent, JobState, UnavailableStatus};
use atproto_backfill::store::{Standing, StoreError};

use crate::world::{NOW, World, did, failed, failed_state, op_set, path, rev};

crate::conformance!(
    op_sets_that_come_during_a_claim_contradict_that_the_account_is_gone,
    settling_ends_the_claim_whatever_the_event,
    settling_empties_the_buffer_and_puts_its_paths_in_doubt,
    failure_text_is_kept_to_512_bytes_and_cut_between_characters,
    failure_text_may_be_anything_that_an_upstream_says,
    an_illegal_event_is_an_error_and_writes_nothing,
    an_account_event_settles_a_job_that_nobody_holds,
);

async fn settling_ends_the_claim_whatever_the_event(world: World) {
    let events = [JobEvent::Released, failed(2, NOW), JobEvent::Gap, JobEvent::Unavailable { status: UnavailableStatus::NotFound }];
    let states =
        [JobState::Enqueued, failed_state(2, NOW), JobState::Enqueued, JobState::Unavailable { status: UnavailableStatus::NotFound }];
    for (n, (event, state)) in events.into_iter().zip(states).enumerate() {
        let job = world.claimed(&did(n as u32)).await;
        assert_eq!(world.settle(&job, event.clone()).await, Standing::Ended);
        let after = world.job(&did(n as u32)).await;
        assert_eq!(after.state, state);
        assert_eq!(world.finish_at(&job, 5).await, Standing::Superseded, "after {event:?} the worker may still write");
        assert_eq!(world.settle(&job, event).await, Standing::Superseded);
        assert_eq!(world.job(&did(n as u32)).await, after);
    }
}

async fn settling_empties_the_buffer_and_puts_its_paths_in_doubt(world: World) {
    let job = world.claimed(&did(1)).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    world.append(&op_set(&did(1), 6, 7)).await;
    let doubted = [path("b"), path("a"), path("r006")];
    world.store.settle(job.id, job.epoch, failed(1, NOW), "handler said no", &doubted).await.unwrap();
    let after = world.job(&did(1)).await;
    assert_eq!((after.buffered_op_sets, after.buffered_bytes, after.min_rev), (0, 0, Some(rev(7))));
    assert_eq!((after.failures, after.failure.as_str()), (1, "handler said no"));
    assert!(world.buffered_revs(job.id).await.is_empty());
    let expected = ["a", "b", "r006", "r007"].map(|key| path(key).to_string());
    assert_eq!(world.doubted(job.id).await, expected);
    let again = world.claim(&did(1)).await;
    assert_eq!(world.doubted(job.id).await, expected, "a claim alone ends no doubt");
    assert_eq!(world.finish_at(&again, 7).await, Standing::Complete);
    assert!(world.doubted(job.id).await.is_empty());
}

async fn failure_text_may_be_anything_that_an_upstream_says(world: World) {
    let job = world.claimed(&did(1)).await;
    let said = "quote ' backslash \\ NUL \0 and \u{10ffff}";
    world.store.settle(job.id, job.epoch, failed(1, NOW), said, &[]).await.unwrap();
    assert_eq!(world.job(&did(1)).await.failure, said.replace('\0', "\u{fffd}"));
}

async fn failure_text_is_kept_to_512_bytes_and_cut_between_characters(world: World) {
    let job = world.claimed(&did(1)).await;
    let long = format!("x{}", "\u{00e4}".repeat(600));
    world.store.settle(job.id, job.epoch, failed(1, NOW), &long, &[]).await.unwrap();
    let kept = world.job(&did(1)).await.failure;
    assert_eq!(kept.len(), 511);
    assert!(long.starts_with(&kept));
}

async fn an_illegal_event_is_an_error_and_writes_nothing(world: World) {
    world.enqueue(&did(1)).await;
    let before = world.job(&did(1)).await;
    let settled = world.store.settle(before.id, before.epoch, JobEvent::Finished, "", &[path("a")]).await;
    assert!(matches!(settled, Err(StoreError::Illegal(ref illegal)) if illegal.state == JobState::Enqueued), "{settled:?}");
    assert_eq!(world.job(&did(1)).await, before);
    assert!(world.doubted(before.id).await.is_empty());
}

async fn an_account_event_settles_a_job_that_nobody_holds(world: World) {
    world.enqueue(&did(1)).await;
    let job = world.job(&did(1)).await;
    assert_eq!(world.settle(&job, JobEvent::Unavailable { status: UnavailableStatus::Deactivated }).await, Standing::Ended);
    let job = world.job(&did(1)).await;
    assert_eq!(world.settle(&job, JobEvent::Unavailable { status: UnavailableStatus::Deleted }).await, Standing::Ended);
    assert_eq!(world.job(&did(1)).await.state, JobState::Unavailable { status: UnavailableStatus::Deleted });
}

async fn op_sets_that_come_during_a_claim_contradict_that_the_account_is_gone(world: World) {
    let gone = JobEvent::Unavailable { status: UnavailableStatus::Deactivated };
    let job = world.claimed(&did(1)).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    assert_eq!(world.settle(&job, gone.clone()).await, Standing::Ended);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state.clone(), after.buffered_op_sets, after.min_rev), (JobState::Enqueued, 0, Some(rev(6))));
    assert!(after.account.is_active() && after.untold.is_empty(), "it was told: {after:?}");
    // None has come since, so that it is so.
    let job = world.claim(&did(1)).await;
    world.settle(&job, gone).await;
    assert_eq!(world.job(&did(1)).await.state, JobState::Unavailable { status: UnavailableStatus::Deactivated });
}
