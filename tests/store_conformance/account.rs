use atproto_backfill::firehose::SavedCursor;
use atproto_backfill::job::{Account, JobState, Route, Timestamp, UnavailableStatus};
use atproto_backfill::store::{AccountRoute, Advance, ManifestChange, Standing, UpstreamId};
use atproto_backfill::syntax::{Did, Seq};

use crate::world::{World, advance, at, chunks_of, did, op_set, path, rev};

crate::conformance!(
    an_inactive_account_ends_the_claim_and_an_active_one_is_enqueued_again,
    an_event_that_its_upstream_has_passed_changes_nothing,
    a_deleted_account_leaves_nothing_but_its_rev,
    what_is_to_be_told_is_found_until_it_is_acknowledged,
    a_checkout_tells_that_the_account_is_to_be_had,
    what_was_lost_of_a_held_job_enqueues_it_again,
    a_cursor_is_kept_by_upstream_until_its_sequence_restarts,
);

const DEACTIVATED: Account = Account::Unavailable(UnavailableStatus::Deactivated);
const DELETED: Account = Account::Unavailable(UnavailableStatus::Deleted);

fn seq(number: u64) -> Seq {
    Seq::new(number).unwrap()
}

fn saved(seq: Seq, time: i64) -> SavedCursor {
    SavedCursor { seq, time: Timestamp(time) }
}

async fn hear(world: &World, did: &Did, number: u64, account: Account) -> AccountRoute {
    let (upstream, _) = world.store.upstream("relay").await.unwrap();
    world.store.account(world.consumer, did, upstream, seq(number), account).await.unwrap()
}

async fn an_inactive_account_ends_the_claim_and_an_active_one_is_enqueued_again(world: World) {
    assert_eq!(hear(&world, &did(1), 1, DEACTIVATED).await, AccountRoute::Unknown);
    let job = world.claimed(&did(1)).await;
    world.append(&op_set(&did(1), 5, 6)).await;
    assert_eq!(hear(&world, &did(1), 2, Account::Active).await, AccountRoute::Unchanged);
    assert_eq!(world.job(&did(1)).await.state, JobState::InProgress);
    assert_eq!(hear(&world, &did(1), 3, DEACTIVATED).await, AccountRoute::Changed);
    let after = world.job(&did(1)).await;
    assert_eq!(after.state, JobState::Unavailable { status: UnavailableStatus::Deactivated });
    assert_eq!((after.account, &after.untold[..]), (DEACTIVATED, &[DEACTIVATED][..]));
    assert_eq!(world.finish_at(&job, 6).await, Standing::Superseded);
    assert_eq!(world.doubted(job.id).await, [path("r006").to_string()]);
    assert_eq!(hear(&world, &did(1), 4, DEACTIVATED).await, AccountRoute::Unchanged);
    assert_eq!(hear(&world, &did(1), 5, Account::Active).await, AccountRoute::Changed);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.account), (JobState::Enqueued, Account::Active));
    assert_eq!(after.untold, [Account::Active]);
}

async fn an_event_that_its_upstream_has_passed_changes_nothing(world: World) {
    world.complete(&did(1), 5).await;
    assert_eq!(hear(&world, &did(1), 10, DEACTIVATED).await, AccountRoute::Changed);
    assert_eq!(hear(&world, &did(1), 12, Account::Active).await, AccountRoute::Changed);
    let before = world.job(&did(1)).await;
    assert_eq!(hear(&world, &did(1), 10, DEACTIVATED).await, AccountRoute::Stale);
    assert_eq!(hear(&world, &did(1), 12, DELETED).await, AccountRoute::Stale);
    assert_eq!(world.job(&did(1)).await, before);
    let (other, _) = world.store.upstream("other").await.unwrap();
    let heard = world.store.account(world.consumer, &did(1), other, seq(1), DEACTIVATED).await.unwrap();
    assert_eq!(heard, AccountRoute::Changed, "the numbers of two upstreams were compared");
    world.store.restart_upstream("relay").await.unwrap();
    assert_eq!(hear(&world, &did(1), 1, Account::Active).await, AccountRoute::Changed, "a restarted sequence was compared with its past");
}

async fn a_deleted_account_leaves_nothing_but_its_rev(world: World) {
    let job = world.claimed(&did(1)).await;
    let paths = ["a", "b", "c"].map(path);
    let manifest = ManifestChange::Append(chunks_of(&paths, 2));
    world.store.intend(job.id, job.epoch, &paths).await.unwrap();
    let whole = Advance { manifest, position: at(5), finish: true, ..advance(&job) };
    assert_eq!(world.store.advance(whole).await.unwrap(), Standing::Complete);
    world.append(&op_set(&did(1), 5, 6)).await;
    assert_eq!(hear(&world, &did(1), 1, DELETED).await, AccountRoute::Changed);
    let after = world.job(&did(1)).await;
    assert_eq!(after.state, JobState::Unavailable { status: UnavailableStatus::Deleted });
    assert_eq!((after.rev, after.data, after.min_rev), (None, None, Some(rev(6))));
    assert_eq!((after.records, after.buffered_op_sets, after.buffered_bytes), (0, 0, 0));
    assert!(world.held_paths(job.id).await.is_empty() && world.doubted(job.id).await.is_empty());
    assert!(world.buffered_revs(job.id).await.is_empty());
    let totals = world.store.totals(world.consumer).await.unwrap();
    assert_eq!((totals.records, totals.buffered_op_sets, totals.dropped_op_sets, totals.unavailable), (0, 0, 1, 1));
}

async fn what_is_to_be_told_is_found_until_it_is_acknowledged(world: World) {
    for n in 1..=3 {
        world.complete(&did(n), 5).await;
    }
    world.append(&op_set(&did(2), 5, 6)).await;
    hear(&world, &did(3), 1, DELETED).await;
    hear(&world, &did(3), 2, Account::Active).await;
    let found = |jobs: Vec<atproto_backfill::job::Job>| jobs.into_iter().map(|job| job.did).collect::<Vec<_>>();
    assert_eq!(found(world.store.unflushed(None, 10).await.unwrap()), [did(2), did(3)]);
    let (second, third) = (world.job(&did(2)).await, world.job(&did(3)).await);
    assert_eq!(found(world.store.unflushed(Some(second.id), 10).await.unwrap()), [did(3)]);
    assert_eq!(found(world.store.unflushed(None, 1).await.unwrap()), [did(2)]);
    world.store.told(third.id, Account::Active).await.unwrap();
    assert_eq!(world.job(&did(3)).await.untold, [DELETED, Account::Active], "an answer to what was not asked yet counted");
    world.store.told(third.id, DELETED).await.unwrap();
    world.store.told(third.id, DELETED).await.unwrap();
    assert_eq!(world.job(&did(3)).await.untold, [Account::Active]);
    assert_eq!(world.store.totals(world.consumer).await.unwrap().untold, 1);
    world.store.told(third.id, Account::Active).await.unwrap();
    assert_eq!(found(world.store.unflushed(None, 10).await.unwrap()), [did(2)]);
    assert_eq!(world.store.totals(world.consumer).await.unwrap().untold, 0);
}

async fn a_checkout_tells_that_the_account_is_to_be_had(world: World) {
    let job = world.claimed(&did(1)).await;
    let found = |job| Advance { found: true, ..advance(job) };
    assert_eq!(world.store.advance(found(&job)).await.unwrap(), Standing::Held);
    assert!(world.job(&did(1)).await.untold.is_empty(), "it was never said to be gone");
    hear(&world, &did(1), 1, DEACTIVATED).await;
    assert_eq!(world.store.advance(found(&job)).await.unwrap(), Standing::Superseded);
    assert_eq!(world.job(&did(1)).await.untold, [DEACTIVATED]);
    world.store.told(job.id, DEACTIVATED).await.unwrap();
    world.store.want(world.consumer, &did(1)).await.unwrap();
    let again = world.claim(&did(1)).await;
    assert_eq!(again.account, DEACTIVATED);
    assert_eq!(world.store.advance(found(&again)).await.unwrap(), Standing::Held);
    let after = world.job(&did(1)).await;
    assert_eq!((after.account, &after.untold[..]), (Account::Active, &[Account::Active][..]));
}

async fn what_was_lost_of_a_held_job_enqueues_it_again(world: World) {
    let gap = async |n| world.store.gap(world.consumer, &did(n)).await.unwrap();
    assert_eq!(gap(1).await, Route::Unknown);
    world.complete(&did(1), 5).await;
    world.append(&op_set(&did(1), 5, 7)).await;
    assert_eq!(gap(1).await, Route::Gap);
    let after = world.job(&did(1)).await;
    assert_eq!((after.state, after.buffered_op_sets), (JobState::Enqueued, 0));
    assert_eq!(world.doubted(after.id).await, [path("r007").to_string()]);
    assert_eq!(gap(1).await, Route::Discarded);
    let ended = world.claimed(&did(2)).await;
    assert_eq!(gap(2).await, Route::Gap);
    assert_eq!(world.finish_at(&ended, 9).await, Standing::Superseded);
    assert_eq!(world.job(&did(2)).await.state, JobState::Enqueued);
    hear(&world, &did(2), 1, DEACTIVATED).await;
    assert_eq!(gap(2).await, Route::Unavailable);
}

async fn a_cursor_is_kept_by_upstream_until_its_sequence_restarts(world: World) {
    let (relay, none) = world.store.upstream("relay").await.unwrap();
    let (host, _) = world.store.upstream("host").await.unwrap();
    assert!(none.is_none() && relay != host);
    world.store.save_cursor(relay, saved(Seq::MAX, 7)).await.unwrap();
    world.store.save_cursor(UpstreamId(i64::MAX), saved(seq(1), 1)).await.unwrap();
    assert_eq!(world.store.upstream("relay").await.unwrap(), (relay, Some(saved(Seq::MAX, 7))));
    assert_eq!(world.store.upstream("host").await.unwrap(), (host, None));
    let anew = world.store.restart_upstream("relay").await.unwrap();
    assert_ne!(anew, relay);
    world.store.save_cursor(relay, saved(seq(3), 3)).await.unwrap();
    assert_eq!(world.store.upstream("relay").await.unwrap(), (anew, None), "a late save of the old sequence counted");
}
