use atproto_backfill::job::{Account, JobState, UnavailableStatus};
use atproto_backfill::store::{Advance, ManifestChange, Totals};
use atproto_backfill::syntax::Seq;

use crate::world::{NOW, World, advance, chunks_of, did, failed, op_set, path};

crate::conformance!(totals_are_the_sums_over_all_jobs_after_every_verb);

/// The sums, counted from the jobs themselves.
async fn counted(world: &World, dropped_op_sets: u64) -> Totals {
    let mut totals = Totals { dropped_op_sets, ..Totals::default() };
    for job in world.store.jobs(world.consumer, None, 1000).await.unwrap() {
        match job.state {
            JobState::Enqueued => totals.enqueued += 1,
            JobState::InProgress => totals.in_progress += 1,
            JobState::Complete => totals.complete += 1,
            JobState::Failed { .. } => totals.failed += 1,
            JobState::Unavailable { .. } => totals.unavailable += 1,
        }
        totals.records += job.records;
        totals.buffered_op_sets += job.buffered_op_sets;
        totals.buffered_bytes += job.buffered_bytes;
        totals.untold += u64::from(!job.untold.is_empty());
    }
    totals
}

async fn totals_are_the_sums_over_all_jobs_after_every_verb(world: World) {
    let check = async |what: &str, dropped: u64| {
        assert_eq!(world.store.totals(world.consumer).await.unwrap(), counted(&world, dropped).await, "after {what}");
    };
    check("nothing", 0).await;
    for n in 0..6 {
        world.enqueue(&did(n)).await;
    }
    check("enqueue", 0).await;
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(world.claim(&did(n)).await);
        world.append(&op_set(&did(n), 5, 6)).await;
    }
    check("claim and append", 0).await;
    let chunks = chunks_of(&[path("a"), path("b"), path("c")], 2);
    world.store.advance(Advance { manifest: ManifestChange::Append(chunks), ..advance(&jobs[0]) }).await.unwrap();
    let seq = world.last_buffered(jobs[0].id).await;
    world.store.advance(Advance { flushed: Some(seq), ..advance(&jobs[0]) }).await.unwrap();
    assert_eq!(world.finish_at(&jobs[0], 6).await, atproto_backfill::store::Standing::Complete);
    check("advance", 0).await;
    world.settle(&jobs[1], failed(1, NOW)).await;
    let (upstream, _) = world.store.upstream("relay").await.unwrap();
    let deleted = Account::Unavailable(UnavailableStatus::Deleted);
    world.store.account(world.consumer, &did(2), upstream, Seq::new(1).unwrap(), deleted).await.unwrap();
    check("settle and a deletion", 2).await;
    assert!(world.store.append(world.consumer, &op_set(&did(0), 8, 9), 1 << 20).await.is_ok());
    check("a gap", 2).await;
    world.store.purge(world.consumer, &did(3)).await.unwrap();
    check("purge", 3).await;
    world.store.recover(NOW).await.unwrap();
    check("recover", 4).await;
    let stale = Advance { manifest: ManifestChange::Append(chunks_of(&[path("z")], 1)), ..advance(&jobs[4]) };
    world.store.advance(stale).await.unwrap();
    check("a superseded act", 4).await;
    let suspended = Account::Unavailable(UnavailableStatus::Suspended);
    world.store.account(world.consumer, &did(5), upstream, Seq::new(1).unwrap(), suspended).await.unwrap();
    check("an account event", 4).await;
    assert_eq!(world.store.totals(world.consumer).await.unwrap().untold, 2);
    world.store.told(jobs[2].id, deleted).await.unwrap();
    check("an answer", 4).await;
    world.store.gap(world.consumer, &did(0)).await.unwrap();
    check("a loss", 4).await;
    world.store.account(world.consumer, &did(5), upstream, Seq::new(2).unwrap(), Account::Active).await.unwrap();
    check("an account that is back", 4).await;
    let totals = world.store.totals(world.consumer).await.unwrap();
    assert_eq!((totals.enqueued, totals.failed, totals.unavailable, totals.records), (3, 1, 1, 3), "{totals:?}");
    let other = world.store.consumer("likes@1").await.unwrap();
    assert_eq!(world.store.totals(other).await.unwrap(), Totals::default());
}
