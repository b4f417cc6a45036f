//! Firehose and checkouts together.

use std::sync::Arc;

use atproto_backfill::engine::Track;
use atproto_backfill::job::{Account, JobState, UnavailableStatus};
use atproto_backfill::sim::{AccountStatus, HandlerFault, NetworkOptions, RandomWrites, Sizes, World, WorldBuilder, Writer, WriterOptions};
use atproto_backfill::store::{MemoryStore, Store};

use crate::rig::{Following, Rig};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn world(seed: u64) -> WorldBuilder {
    World::builder().seed(seed).hosts(3).repos(20).sizes(Sizes::Total(2_000))
}

/// A rig that has copied its world, and follows it.
async fn followed(seed: u64, following: Following) -> Rig {
    Rig::copied(world(seed), NetworkOptions::default(), following).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_world_is_copied_and_followed_over_a_relay() {
    copied_and_followed(memory()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn a_world_is_copied_and_followed_over_a_relay_on_postgres() {
    let Some(database) = crate::database::Database::create("a_world_is_copied_and_followed_over_a_relay_on_postgres") else { return };
    copied_and_followed(Arc::new(atproto_backfill::store::PostgresStore::open(&database.url).unwrap())).await;
}

async fn copied_and_followed(store: Arc<dyn Store>) {
    let rig = Rig::following(world(71), NetworkOptions::default(), Following::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    let (writer, mut op_sets) =
        Writer::start(&rig.world, WriterOptions { per_second: 1000.0, limit: 2000, seed: 71, ..WriterOptions::default() });
    while op_sets.recv().await.is_some() {}
    assert_eq!(writer.finished().await, 2000);
    rig.caught_up().await;
    rig.assert_truth().await;
    let progress = rig.backfiller.progress().await.unwrap();
    assert!(progress.counts.op_sets_flushed > 500, "{progress:?}");
    let follow = progress.follow.unwrap();
    assert!(follow.dropped.is_empty() && follow.gaps.is_empty(), "{follow:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_firehose_goes_on_at_the_cursor_and_nothing_is_fetched_again() {
    let mut rig = followed(72, Following::default()).await;
    let mut writes = RandomWrites::new(72);
    for _ in 0..50 {
        writes.write(&rig.world).unwrap();
    }
    rig.caught_up().await;
    rig.backfiller.stop().await.unwrap();
    let checkouts = rig.checkouts();
    for _ in 0..200 {
        writes.write(&rig.world).unwrap();
    }
    rig.restart_following(Following::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.caught_up().await;
    rig.assert_truth_after_restart().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_followed_each_by_itself() {
    let rig = followed(73, Following { hosts: vec![0, 1, 2], ..Following::default() }).await;
    let checkouts = rig.checkouts();
    let mut writes = RandomWrites::new(73);
    for _ in 0..200 {
        writes.write(&rig.world).unwrap();
    }
    for host in 0..3 {
        let (name, head) = (rig.network.host_firehose_url(host), rig.network.host_head(host));
        rig.until(|progress| {
            let upstreams = &progress.follow.as_ref().unwrap().upstreams;
            let of_host = upstreams.iter().find(|upstream| name.contains(&upstream.name)).unwrap();
            of_host.settled.is_some_and(|settled| settled.seq.get() >= head)
        })
        .await;
    }
    rig.idle().await;
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn repos_that_are_seen_are_added() {
    let mut following = Following::default();
    following.follow.track = Track::Seen;
    let rig = Rig::following(world(74), NetworkOptions::default(), following, memory()).await;
    rig.backfiller.start().await.unwrap();
    rig.until(|progress| progress.follow.as_ref().unwrap().upstreams[0].connected).await;
    let mut writes = RandomWrites::new(74);
    for did in rig.world.dids() {
        writes.write_to(&rig.world, &did).unwrap();
    }
    let late = rig.world.add_account(1);
    writes.write_to(&rig.world, &late).unwrap();
    rig.caught_up().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_told_in_its_order_and_comes_back_by_difference() {
    let rig = followed(75, Following::default()).await;
    let did = rig.world.dids().remove(0);
    let mut writes = RandomWrites::new(75);
    writes.write_to(&rig.world, &did).unwrap();
    rig.caught_up().await;
    let (records, log) = (rig.copy.repo(&did).records, rig.copy.repo(&did).log.len());
    rig.world.set_status(&did, AccountStatus::Deactivated);
    rig.caught_up().await;
    let told = |repo: &atproto_backfill::sim::RepoCopy| repo.log[log..].to_vec();
    let repo = rig.copy.repo(&did);
    assert_eq!((told(&repo), &repo.records), (vec!["=deactivated".to_owned()], &records), "records of an inactive account are kept");
    assert_eq!(rig.backfiller.job(&did).await.unwrap().unwrap().state, JobState::Unavailable { status: UnavailableStatus::Deactivated });
    rig.world.set_status(&did, AccountStatus::Active);
    rig.caught_up().await;
    assert_eq!(told(&rig.copy.repo(&did)), ["=deactivated", "=active"], "nothing had changed");
    rig.assert_truth().await;

    rig.world.set_status(&did, AccountStatus::Deleted);
    rig.caught_up().await;
    let repo = rig.copy.repo(&did);
    assert_eq!(repo.account, Some(Account::Unavailable(UnavailableStatus::Deleted)));
    assert!(repo.records.is_empty());
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert_eq!((job.rev, job.records, job.untold.len()), (None, 0, 0), "{job:?}");
    rig.world.set_status(&did, AccountStatus::Active);
    rig.caught_up().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_costs_no_checkout_where_the_data_stays() {
    let rig = followed(76, Following::default()).await;
    let checkouts = rig.checkouts();
    let mut writes = RandomWrites::new(76);
    for did in rig.world.dids().into_iter().take(5) {
        let host = rig.world.host_of(&did).unwrap();
        rig.world.migrate(&did, (host + 1) % 3).unwrap();
        writes.write_to(&rig.world, &did).unwrap();
    }
    rig.caught_up().await;
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_holds_up_its_own_repo_alone_and_loses_nothing() {
    let rig = followed(77, Following::default()).await;
    rig.handler.inject(HandlerFault::Refuse, 40);
    let mut writes = RandomWrites::new(77);
    for _ in 0..300 {
        writes.write(&rig.world).unwrap();
    }
    rig.caught_up().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}
