//! A checkout of a repo that the consumer has already: exactly the difference, deletes included.

use std::collections::BTreeMap;

use atproto_backfill::consumer::CollectionFilter;
use atproto_backfill::engine::Options;
use atproto_backfill::job::{JobState, Route};
use atproto_backfill::repo::Link;
use atproto_backfill::sim::{NetworkOptions, RandomWrites, Sizes, World};
use atproto_backfill::store::MemoryStore;
use atproto_backfill::syntax::RecordPath;

use crate::rig::Rig;

/// What turns one map into the other, as the copy logs it.
fn difference(old: &BTreeMap<RecordPath, Link>, new: &BTreeMap<RecordPath, Link>) -> Vec<String> {
    let mut log: Vec<String> = old.keys().filter(|path| !new.contains_key(*path)).map(|path| format!("-{path}")).collect();
    for (path, cid) in new {
        match old.get(path) {
            None => log.push(format!("+{path}")),
            Some(known) if known != cid => log.push(format!("~{path}")),
            Some(_) => {}
        }
    }
    log.sort();
    log
}

#[tokio::test]
async fn after_a_gap_the_consumer_gets_exactly_the_difference() {
    let rig = Rig::new(World::builder().seed(31).hosts(1).repos(1).sizes(Sizes::Each(3000))).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.start().await.unwrap();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    let before = rig.copy.repo(&did);
    // Missed: creates, updates and deletes.
    let mut writes = RandomWrites::new(31);
    for _ in 0..200 {
        writes.write_to(&rig.world, &did).unwrap();
    }
    // The next one shows the gap.
    let seen = writes.write_to(&rig.world, &did).unwrap();
    assert_eq!(rig.backfiller.buffer(&seen).await.unwrap(), Route::Gap);
    rig.idle().await;
    rig.assert_truth().await;
    let after = rig.copy.repo(&did);
    let mut told = after.log[before.log.len()..].to_vec();
    told.sort();
    let expected = difference(&before.records, &after.records);
    assert!(expected.iter().any(|change| change.starts_with('-')), "no delete was put to the test");
    assert_eq!(told, expected);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_repo_that_has_not_changed_brings_nothing() {
    let rig = Rig::new(World::builder().seed(32).hosts(1).repos(1).sizes(Sizes::Each(1000))).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.start().await.unwrap();
    rig.backfiller.backfill_repo(&did).await.unwrap();
    let before = rig.copy.repo(&did).log;
    rig.backfiller.backfill_repo(&did).await.unwrap();
    assert_eq!(rig.copy.repo(&did).log, before);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn the_filter_takes_its_collections_and_nothing_else_from_checkout_and_op_sets() {
    let options = Options { collections: CollectionFilter::new(["app.bsky.feed.like", "app.bsky.graph.*"]).unwrap(), ..Options::default() };
    let world = World::builder().seed(33).hosts(1).repos(3).sizes(Sizes::Each(1000));
    let rig = Rig::with(world, NetworkOptions::default(), options.clone(), std::sync::Arc::new(MemoryStore::new())).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    let mut writes = RandomWrites::new(33);
    for _ in 0..300 {
        let op_set = writes.write(&rig.world).unwrap();
        assert_eq!(rig.backfiller.buffer(&op_set).await.unwrap(), Route::Buffered { complete: true });
    }
    rig.idle().await;
    let mut filtered = 0;
    for did in rig.world.dids() {
        let truth = rig.world.truth(&did).unwrap();
        let taken = |path: &str| options.collections.takes(path.split('/').next().unwrap());
        let records = truth.records.iter().map(|(path, (cid, _))| (path.clone(), *cid));
        let expected: BTreeMap<RecordPath, Link> = records.filter(|(path, _)| taken(path.as_str())).collect();
        filtered += truth.records.len() - expected.len();
        let held = rig.copy.repo(&did);
        assert_eq!(held.records, expected);
        assert!(held.log.iter().all(|change| taken(&change[1..])), "something outside the filter was delivered");
        // The job follows every commit, whatever the consumer takes of it.
        assert_eq!(rig.backfiller.job(&did).await.unwrap().unwrap().rev, Some(truth.rev));
    }
    assert!(filtered > 0);
    rig.assert_conserved().await;
    rig.backfiller.stop().await.unwrap();
}
