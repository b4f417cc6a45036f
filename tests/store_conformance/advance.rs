use atproto_backfill::job::{FailureKind, JobEvent, JobId, JobState, OlderRev, Position, Timestamp};
use atproto_backfill::store::{Advance, ManifestChange, Standing, StoreError};

use crate::world::{NOW, World, advance, at, created, did, failed, op_set, rev, root};

crate::conformance!(
    an_advance_moves_everything_together,
    a_job_is_complete_only_when_its_buffer_is_empty,
    a_lane_advances_a_complete_job,
    why_a_handler_fails_is_kept_until_the_job_advances,
    a_rev_never_moves_back_and_nothing_is_written_by_the_attempt,
    an_older_rev_is_remembered_and_can_be_accepted_by_name,
    an_accepted_older_rev_is_still_behind_what_is_buffered,
    a_position_of_unknown_root_forgets_the_root,
    an_advance_of_a_job_that_is_gone_is_superseded,
    a_purge_ends_a_claim_and_nothing_brings_the_job_back,
);

async fn an_advance_moves_everything_together(world: World) {
    let job = world.claimed(&did(1)).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    let seq = world.last_buffered(job.id).await;
    let intent = world.store.intend(job.id, job.epoch, &[created(6).path]).await.unwrap();
    let all = Advance {
        manifest: ManifestChange::Apply(vec![created(6)]),
        flushed: Some(seq),
        intent,
        position: at(6),
        finish: true,
        ..advance(&job)
    };
    assert_eq!(world.store.advance(all).await.unwrap(), Standing::Complete);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.rev, after.data), (JobState::Complete, Some(rev(6)), Some(root(6))));
    assert_eq!((after.records, after.buffered_op_sets, after.buffered_bytes), (1, 0, 0));
    assert!(world.doubted(job.id).await.is_empty());
    assert_eq!(world.held_paths(job.id).await, ["app.bsky.feed.post/r006"]);
}

async fn a_job_is_complete_only_when_its_buffer_is_empty(world: World) {
    let job = world.claimed(&did(1)).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    assert_eq!(world.finish_at(&job, 5).await, Standing::Held);
    assert_eq!(world.job(&did(1)).await.state, JobState::InProgress);
    // One more arrives after the flush has read the first.
    let seq = world.last_buffered(job.id).await;
    world.append(&op_set(&did(1), 6, 7)).await;
    let flush = |seq, to| Advance { flushed: Some(seq), position: at(to), finish: true, ..advance(&job) };
    assert_eq!(world.store.advance(flush(seq, 6)).await.unwrap(), Standing::Held);
    let seq = world.last_buffered(job.id).await;
    assert_eq!(world.store.advance(flush(seq, 7)).await.unwrap(), Standing::Complete);
}

async fn a_lane_advances_a_complete_job(world: World) {
    let job = world.complete(&did(1), 5).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    let seq = world.last_buffered(job.id).await;
    for finish in [false, true] {
        let lane = Advance { flushed: Some(seq), position: at(6), finish, ..advance(&job) };
        assert_eq!(world.store.advance(lane).await.unwrap(), Standing::Complete);
    }
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.rev, after.epoch), (JobState::Complete, Some(rev(6)), job.epoch));
}

async fn why_a_handler_fails_is_kept_until_the_job_advances(world: World) {
    let job = world.complete(&did(1), 5).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    let words = "no room in the index".to_owned();
    world.store.advance(Advance { failure: Some(words.clone()), ..advance(&job) }).await.unwrap();
    let failing = world.job(&did(1)).await;
    assert_eq!((failing.state, failing.failure, failing.failures), (JobState::Complete, words, 0));
    let seq = world.last_buffered(job.id).await;
    world.store.advance(Advance { flushed: Some(seq), position: at(6), ..advance(&job) }).await.unwrap();
    assert_eq!(world.job(&did(1)).await.failure, "");
}

async fn a_rev_never_moves_back_and_nothing_is_written_by_the_attempt(world: World) {
    let job = world.complete(&did(1), 5).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    let before = world.job(&did(1)).await;
    let seq = world.last_buffered(job.id).await;
    let back = Advance { manifest: ManifestChange::Apply(vec![created(6)]), flushed: Some(seq), position: at(4), ..advance(&job) };
    let error = world.store.advance(back).await.unwrap_err();
    assert!(matches!(error, StoreError::RevMovesBack { job: id, from, to } if (id, from, to) == (job.id, rev(5), rev(4))), "{error}");
    assert_eq!(world.job(&did(1)).await, before);
    assert_eq!(world.buffered_revs(job.id).await, [rev(6)]);
    assert!(world.held_paths(job.id).await.is_empty());
}

async fn an_older_rev_is_remembered_and_can_be_accepted_by_name(world: World) {
    world.complete(&did(1), 5).await;
    world.store.want(world.consumer, &did(1)).await.unwrap();
    world.append(&op_set(&did(1), 8, 9)).await;
    let claimed = world.claim(&did(1)).await;
    let older = OlderRev { rev: rev(3), confirmations: 2, since: Timestamp(NOW.0 - 77) };
    world.settle(&claimed, JobEvent::Older { older, attempt: 4, retry_at: NOW }).await;
    let job = world.job(&did(1)).await;
    assert_eq!((job.older, job.failures, job.known_rev()), (Some(older), 4, Some(rev(9))));
    assert_eq!(job.state, JobState::Failed { kind: FailureKind::Stale, attempt: 4, retry_at: NOW });
    let claimed = world.claim(&did(1)).await;
    assert_eq!(claimed.older, Some(older));
    let accept = Advance { position: at(3), accept_older: true, finish: true, ..advance(&claimed) };
    assert_eq!(world.store.advance(accept).await.unwrap(), Standing::Complete);
    let job = world.job(&did(1)).await;
    assert_eq!((job.rev, job.data, job.min_rev, job.older), (Some(rev(3)), Some(root(3)), Some(rev(3)), None));
}

async fn an_accepted_older_rev_is_still_behind_what_is_buffered(world: World) {
    world.complete(&did(1), 5).await;
    world.store.want(world.consumer, &did(1)).await.unwrap();
    let claimed = world.claim(&did(1)).await;
    world.append(&op_set(&did(1), 3, 8)).await;
    let accept = Advance { position: at(3), accept_older: true, finish: true, ..advance(&claimed) };
    assert_eq!(world.store.advance(accept).await.unwrap(), Standing::Held);
    let job = world.job(&did(1)).await;
    assert_eq!((job.rev, job.min_rev), (Some(rev(3)), Some(rev(8))));
    let seq = world.last_buffered(job.id).await;
    let flush = Advance { flushed: Some(seq), position: at(8), finish: true, ..advance(&claimed) };
    assert_eq!(world.store.advance(flush).await.unwrap(), Standing::Complete);
}

async fn a_position_of_unknown_root_forgets_the_root(world: World) {
    let job = world.complete(&did(1), 5).await;
    let unknown = Advance { position: Some(Position { rev: rev(6), data: None }), ..advance(&job) };
    world.store.advance(unknown).await.unwrap();
    let after = world.job(&did(1)).await;
    assert_eq!((after.rev, after.data), (Some(rev(6)), None), "a root of an older rev would chain what does not");
}

async fn an_advance_of_a_job_that_is_gone_is_superseded(world: World) {
    let mut job = world.claimed(&did(1)).await;
    job.id = JobId(job.id.0 + 1_000);
    assert_eq!(world.finish_at(&job, 5).await, Standing::Superseded);
    assert_eq!(world.settle(&job, failed(1, NOW)).await, Standing::Superseded);
    assert_eq!(world.store.intend(job.id, job.epoch, &[]).await.unwrap(), None);
}

async fn a_purge_ends_a_claim_and_nothing_brings_the_job_back(world: World) {
    let job = world.claimed(&did(1)).await;
    let intent = world.store.intend(job.id, job.epoch, &[created(6).path]).await.unwrap();
    world.store.purge(world.consumer, &did(1)).await.unwrap();
    let act = || Advance { manifest: ManifestChange::Apply(vec![created(6)]), intent, position: at(6), finish: true, ..advance(&job) };
    assert_eq!(world.store.advance(act()).await.unwrap(), Standing::Superseded);
    assert_eq!(world.settle(&job, failed(1, NOW)).await, Standing::Superseded);
    assert_eq!(world.store.job(world.consumer, &did(1)).await.unwrap(), None);
    // A new job of the same repo, claimed as often as the old one, is not the old one.
    let anew = world.claimed(&did(1)).await;
    assert_eq!(anew.epoch, job.epoch);
    assert_eq!(world.store.advance(act()).await.unwrap(), Standing::Superseded);
    assert_eq!(world.job(&did(1)).await, anew);
}
