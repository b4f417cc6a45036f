use atproto_backfill::job::{Account, Epoch, JobEvent, JobState, OpAction, OpSet, Route, UnavailableStatus};
use atproto_backfill::store::{Advance, ManifestChange, Standing};

use crate::world::{ROOMY, World, advance, at, created, did, failed, op_set, path, rev, root};

crate::conformance!(
    an_op_set_of_an_unknown_repo_is_answered_as_such,
    while_a_job_waits_op_sets_are_discarded_and_raise_the_least_rev,
    an_op_set_that_nobody_knew_of_rearms_an_unavailable_job_once,
    of_a_deleted_account_no_rev_from_before_rearms_its_job,
    in_progress_op_sets_are_buffered_in_order_and_read_back_whole,
    a_complete_job_takes_only_what_chains_to_the_end_of_its_buffer,
    a_gap_enqueues_a_complete_job_again_and_puts_its_buffer_in_doubt,
    the_first_commit_of_a_repo_is_never_taken_as_the_whole_of_it,
    past_its_budget_the_buffer_of_a_complete_job_is_a_gap,
    past_its_budget_the_buffer_of_a_job_in_progress_is_emptied_and_the_checkout_must_be_newer,
    the_buffer_is_read_up_to_a_number_of_bytes_but_at_least_one,
    complete_jobs_with_a_buffer_are_found_at_start_up,
);

async fn an_op_set_of_an_unknown_repo_is_answered_as_such(world: World) {
    assert_eq!(world.append(&op_set(&did(1), 1, 2)).await, Route::Unknown);
    let other = world.store.consumer("likes@1").await.unwrap();
    world.enqueue(&did(1)).await;
    assert_eq!(world.store.append(other, &op_set(&did(1), 1, 2), ROOMY).await.unwrap(), Route::Unknown);
}

async fn while_a_job_waits_op_sets_are_discarded_and_raise_the_least_rev(world: World) {
    world.enqueue(&did(1)).await;
    assert_eq!(world.append(&op_set(&did(1), 8, 9)).await, Route::Discarded);
    assert_eq!(world.append(&op_set(&did(1), 3, 4)).await, Route::Discarded);
    let job = world.job(&did(1)).await;
    assert_eq!((job.min_rev, job.buffered_op_sets, job.state), (Some(rev(9)), 0, JobState::Enqueued));
    let claimed = world.claim(&did(1)).await;
    assert_eq!(world.finish_at(&claimed, 8).await, Standing::Behind);
    let job = world.job(&did(1)).await;
    assert_eq!(
        (job.state.clone(), job.rev),
        (JobState::InProgress, Some(rev(8))),
        "what was acknowledged is kept, and the job is not complete"
    );
    world.settle(&job, failed(1, crate::world::NOW)).await;
    assert_eq!(world.append(&op_set(&did(1), 9, 10)).await, Route::Discarded);
    assert_eq!(world.job(&did(1)).await.min_rev, Some(rev(10)));
    let claimed = world.claim(&did(1)).await;
    assert_eq!(world.finish_at(&claimed, 10).await, Standing::Complete);
}

async fn an_op_set_that_nobody_knew_of_rearms_an_unavailable_job_once(world: World) {
    let unavailable = JobEvent::Unavailable { status: UnavailableStatus::Takendown };
    let job = world.complete(&did(1), 5).await;
    world.settle(&job, unavailable.clone()).await;
    assert_eq!(world.append(&op_set(&did(1), 3, 4)).await, Route::Unavailable);
    assert_eq!(world.append(&op_set(&did(1), 4, 5)).await, Route::Unavailable, "the job stands there");
    assert_eq!(world.job(&did(1)).await.state, JobState::Unavailable { status: UnavailableStatus::Takendown });

    assert_eq!(world.append(&op_set(&did(1), 5, 6)).await, Route::Rearmed);
    let job = world.job(&did(1)).await;
    assert_eq!((job.state.clone(), job.min_rev, job.rev, job.buffered_op_sets), (JobState::Enqueued, Some(rev(6)), Some(rev(5)), 0));
    assert_eq!(job.account, Account::Unavailable(UnavailableStatus::Takendown), "whether it is back is for its host to say");
    assert_eq!(world.store.totals(world.consumer).await.unwrap().unavailable, 0);
    assert_eq!(world.append(&op_set(&did(1), 6, 7)).await, Route::Discarded);

    let claimed = world.claim(&did(1)).await;
    world.settle(&claimed, unavailable).await;
    for again in [6, 7] {
        assert_eq!(world.append(&op_set(&did(1), again - 1, again)).await, Route::Unavailable, "a replay re-arms");
    }
    assert_eq!(world.append(&op_set(&did(1), 7, 8)).await, Route::Rearmed);
    let claimed = world.claim(&did(1)).await;
    assert_eq!(world.finish_at(&claimed, 7).await, Standing::Behind, "a checkout from before it is enough");
    assert_eq!(world.finish_at(&claimed, 8).await, Standing::Complete);
}

async fn of_a_deleted_account_no_rev_from_before_rearms_its_job(world: World) {
    let job = world.complete(&did(1), 5).await;
    world.settle(&job, JobEvent::Unavailable { status: UnavailableStatus::Deleted }).await;
    assert_eq!(world.append(&op_set(&did(1), 4, 5)).await, Route::Unavailable);
    assert_eq!(world.append(&op_set(&did(1), 5, 6)).await, Route::Rearmed);
    // The same of one that was never there.
    let claimed = world.claimed(&did(2)).await;
    world.settle(&claimed, JobEvent::Unavailable { status: UnavailableStatus::NotFound }).await;
    assert_eq!(world.append(&op_set(&did(2), 0, 1)).await, Route::Rearmed);
}

async fn in_progress_op_sets_are_buffered_in_order_and_read_back_whole(world: World) {
    let job = world.claimed(&did(1)).await;
    let mut whole = op_set(&did(1), 6, 7);
    whole.ops.push(atproto_backfill::job::Op { path: path("gone"), action: OpAction::Delete });
    let legacy = OpSet { prev_data: None, data: None, ..op_set(&did(1), 9, 10) };
    // Neither chains to the other: where the checkout will end is not known yet.
    for op_set in [&whole, &legacy] {
        assert_eq!(world.append(op_set).await, Route::Buffered { complete: false });
    }
    assert_eq!(world.append(&whole).await, Route::Stale, "a replay was buffered again");
    let buffered = world.store.buffered(job.id, u64::MAX).await.unwrap();
    assert!(buffered.is_sorted_by_key(|(seq, _)| *seq));
    assert_eq!(buffered.into_iter().map(|(_, op_set)| op_set).collect::<Vec<_>>(), [whole.clone(), legacy.clone()]);
    let after = world.job(&did(1)).await;
    assert_eq!((after.buffered_op_sets, after.epoch), (2, job.epoch));
    assert_eq!(after.buffered_bytes, (whole.encode().len() + legacy.encode().len()) as u64);
}

async fn a_complete_job_takes_only_what_chains_to_the_end_of_its_buffer(world: World) {
    let job = world.complete(&did(1), 5).await;
    let complete = Route::Buffered { complete: true };
    assert_eq!(world.append(&op_set(&did(1), 4, 5)).await, Route::Stale);
    assert_eq!(world.append(&op_set(&did(1), 5, 6)).await, complete);
    assert_eq!(world.append(&op_set(&did(1), 5, 6)).await, Route::Stale);
    assert_eq!(world.append(&op_set(&did(1), 6, 8)).await, complete);
    let by_since = OpSet { prev_data: None, ..op_set(&did(1), 8, 9) };
    assert_eq!(world.append(&by_since).await, complete);
    assert_eq!(world.buffered_revs(job.id).await, [rev(6), rev(8), rev(9)]);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.rev), (JobState::Complete, Some(rev(5))), "the rev moves only with the handler's acknowledgement");
}

async fn a_gap_enqueues_a_complete_job_again_and_puts_its_buffer_in_doubt(world: World) {
    let job = world.complete(&did(1), 5).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    assert_eq!(world.append(&op_set(&did(1), 7, 8)).await, Route::Gap);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.rev, after.min_rev, after.buffered_op_sets), (JobState::Enqueued, Some(rev(5)), Some(rev(8)), 0));
    assert_eq!(world.doubted(job.id).await, ["app.bsky.feed.post/r006"]);
    let lane = Advance { manifest: ManifestChange::Apply(vec![created(6)]), position: at(6), ..advance(&job) };
    assert_eq!(world.store.advance(lane).await.unwrap(), Standing::Superseded, "the lane of the complete job may still write");
    assert!(world.held_paths(job.id).await.is_empty());
    let again = world.claim(&did(1)).await;
    assert_eq!(world.finish_at(&again, 7).await, Standing::Behind, "the gap was overwritten by complete");
}

async fn the_first_commit_of_a_repo_is_never_taken_as_the_whole_of_it(world: World) {
    let first = OpSet { since: None, prev_data: None, ..op_set(&did(1), 0, 1) };
    assert_eq!(world.append(&first).await, Route::Unknown);
    world.enqueue(&did(1)).await;
    assert_eq!(world.append(&first).await, Route::Discarded);
    let claimed = world.claim(&did(1)).await;
    assert_eq!(world.append(&OpSet { rev: rev(2), ..first.clone() }).await, Route::Buffered { complete: false });
    let nowhere = Advance { finish: true, flushed: Some(world.last_buffered(claimed.id).await), ..advance(&claimed) };
    assert_eq!(world.store.advance(nowhere).await.unwrap(), Standing::Behind, "a job without a rev is complete");
}

async fn past_its_budget_the_buffer_of_a_complete_job_is_a_gap(world: World) {
    let job = world.complete(&did(1), 5).await;
    let budget = op_set(&did(1), 5, 6).encode().len() as u64 * 2;
    for to in [6, 7] {
        assert_eq!(
            world.store.append(world.consumer, &op_set(&did(1), to - 1, to), budget).await.unwrap(),
            Route::Buffered { complete: true }
        );
    }
    assert_eq!(world.store.append(world.consumer, &op_set(&did(1), 7, 8), budget).await.unwrap(), Route::Gap);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.min_rev, after.buffered_bytes), (JobState::Enqueued, Some(rev(8)), 0));
    assert_eq!(world.doubted(job.id).await, ["app.bsky.feed.post/r006", "app.bsky.feed.post/r007"]);
}

async fn past_its_budget_the_buffer_of_a_job_in_progress_is_emptied_and_the_checkout_must_be_newer(world: World) {
    let job = world.claimed(&did(1)).await;
    let budget = op_set(&did(1), 5, 6).encode().len() as u64;
    world.store.append(world.consumer, &op_set(&did(1), 5, 6), budget).await.unwrap();
    assert_eq!(world.store.append(world.consumer, &op_set(&did(1), 6, 7), budget).await.unwrap(), Route::Gap);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.epoch, after.min_rev), (JobState::InProgress, job.epoch, Some(rev(7))));
    assert!(world.buffered_revs(job.id).await.is_empty());
    assert_eq!(world.store.append(world.consumer, &op_set(&did(1), 7, 8), budget).await.unwrap(), Route::Buffered { complete: false });
    let seq = world.last_buffered(job.id).await;
    // The checkout stands at 5, so the flush finds that 8 does not chain: it cannot complete.
    assert_eq!(world.finish_at(&job, 5).await, Standing::Held);
    let drop = Advance { flushed: Some(seq), finish: true, ..advance(&job) };
    assert_eq!(world.store.advance(drop).await.unwrap(), Standing::Behind);
    // One that stands at 8 already may.
    assert_eq!(world.finish_at(&job, 8).await, Standing::Complete);
}

async fn the_buffer_is_read_up_to_a_number_of_bytes_but_at_least_one(world: World) {
    let job = world.claimed(&did(1)).await;
    for to in 6..10 {
        world.append(&op_set(&did(1), to - 1, to)).await;
    }
    let one = op_set(&did(1), 5, 6).encode().len() as u64;
    for (bytes, expected) in [(0, 1), (1, 1), (one, 1), (one * 2 - 1, 1), (one * 2, 2), (one * 4, 4), (u64::MAX, 4)] {
        assert_eq!(world.store.buffered(job.id, bytes).await.unwrap().len(), expected, "within {bytes} bytes");
    }
    let (third, _) = world.store.buffered(job.id, u64::MAX).await.unwrap()[2].clone();
    let flushed = Advance { flushed: Some(third), position: at(8), ..advance(&job) };
    assert_eq!(world.store.advance(flushed).await.unwrap(), Standing::Held);
    assert_eq!(world.buffered_revs(job.id).await, [rev(9)]);
    let after = world.job(&did(1)).await;
    assert_eq!((after.buffered_op_sets, after.buffered_bytes, after.data), (1, one, Some(root(8))));
}

async fn complete_jobs_with_a_buffer_are_found_at_start_up(world: World) {
    for n in 1..=4 {
        world.complete(&did(n), 5).await;
    }
    for n in [1, 2, 4] {
        world.append(&op_set(&did(n), 5, 6)).await;
    }
    let claimed = world.claimed(&did(5)).await;
    world.append(&op_set(&did(5), 5, 6)).await;
    assert_eq!(claimed.epoch, Epoch(1));
    let found = world.store.unflushed(None, 2).await.unwrap();
    assert_eq!(found.iter().map(|job| job.did.clone()).collect::<Vec<_>>(), [did(1), did(2)]);
    let rest = world.store.unflushed(Some(found[1].id), 9).await.unwrap();
    assert_eq!(rest, [world.job(&did(4)).await]);
}
