use atproto_backfill::job::{JobState, Route};
use atproto_backfill::store::{Advance, Standing};
use futures::future::join_all;

use crate::world::{NOW, World, advance, at, did, op_set, rev};

crate::conformance!(
    of_many_claimers_one_gets_each_repo,
    finish_and_append_leave_no_window_between_them,
    a_purge_and_a_checkout_race_to_one_of_two_ends,
    many_enqueue_the_same_repos_and_each_is_added_once,
);

/// Runs each future as a task of its own.
async fn all_at_once<T: Send + 'static>(acts: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    join_all(acts.into_iter().map(tokio::spawn)).await.into_iter().map(Result::unwrap).collect()
}

async fn of_many_claimers_one_gets_each_repo(world: World) {
    let dids: Vec<_> = (0..20).map(did).collect();
    world.store.enqueue(world.consumer, &dids).await.unwrap();
    let claims = (0..8).flat_map(|_| dids.clone()).map(|did| {
        let store = world.store.clone();
        async move { store.claim(&did, NOW).await.unwrap() }
    });
    let mut claimed: Vec<_> = all_at_once(claims.collect()).await.into_iter().flatten().map(|job| (job.did, job.epoch)).collect();
    claimed.sort();
    assert_eq!(claimed.len(), 20, "{claimed:?}");
    assert!(claimed.iter().all(|(_, epoch)| epoch.0 == 1));
    claimed.dedup_by_key(|(did, _)| did.clone());
    assert_eq!(claimed.len(), 20);
}

async fn finish_and_append_leave_no_window_between_them(world: World) {
    for n in 0..50 {
        let job = world.claimed(&did(n)).await;
        let (store, consumer, op_set) = (world.store.clone(), world.consumer, op_set(&did(n), 5, 6));
        let append = tokio::spawn(async move { store.append(consumer, &op_set, 1 << 20).await.unwrap() });
        let (store, finish) = (world.store.clone(), Advance { position: at(5), finish: true, ..advance(&job) });
        let finish = tokio::spawn(async move { store.advance(finish).await.unwrap() });
        let ends = (append.await.unwrap(), finish.await.unwrap());
        let after = world.job(&did(n)).await;
        assert_eq!(world.buffered_revs(job.id).await, [rev(6)], "the op set is lost");
        match ends {
            (Route::Buffered { complete: false }, Standing::Held) => assert_eq!(after.state, JobState::InProgress),
            (Route::Buffered { complete: true }, Standing::Complete) => assert_eq!(after.state, JobState::Complete),
            other => panic!("a window: {other:?}"),
        }
    }
}

async fn a_purge_and_a_checkout_race_to_one_of_two_ends(world: World) {
    for n in 0..50 {
        let job = world.claimed(&did(n)).await;
        let (store, consumer) = (world.store.clone(), world.consumer);
        let purge = tokio::spawn(async move { store.purge(consumer, &did(n)).await.unwrap() });
        let (store, finish) = (world.store.clone(), Advance { position: at(5), finish: true, ..advance(&job) });
        let finish = tokio::spawn(async move { store.advance(finish).await.unwrap() });
        assert!(purge.await.unwrap());
        assert!(matches!(finish.await.unwrap(), Standing::Complete | Standing::Superseded));
        assert_eq!(world.store.job(world.consumer, &did(n)).await.unwrap(), None, "the purged job came back");
    }
    assert_eq!(world.store.totals(world.consumer).await.unwrap(), Default::default());
}

async fn many_enqueue_the_same_repos_and_each_is_added_once(world: World) {
    let dids: Vec<_> = (0..100).map(did).collect();
    let acts = (0..10).map(|_| {
        let (store, consumer, dids) = (world.store.clone(), world.consumer, dids.clone());
        async move { store.enqueue(consumer, &dids).await.unwrap() }
    });
    assert_eq!(all_at_once(acts.collect()).await.iter().sum::<u64>(), 100);
    assert_eq!(world.store.totals(world.consumer).await.unwrap().enqueued, 100);
}
