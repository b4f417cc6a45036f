//! The main job, whole.

use std::sync::Arc;

use atproto_backfill::job::Route;
use atproto_backfill::sim::{Sizes, World, Writer, WriterOptions};
use atproto_backfill::store::{MemoryStore, Store};

use crate::rig::Rig;

#[tokio::test]
async fn a_world_at_rest_is_copied_whole() {
    let rig = Rig::new(World::builder().seed(11).hosts(3).repos(40).sizes(Sizes::Total(8_000))).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_world_that_is_written_to_meanwhile_is_copied_whole_and_followed() {
    written_to_meanwhile(Arc::new(MemoryStore::new())).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn a_world_that_is_written_to_meanwhile_is_copied_whole_and_followed_on_postgres() {
    let test = "a_world_that_is_written_to_meanwhile_is_copied_whole_and_followed_on_postgres";
    let Some(database) = crate::database::Database::create(test) else { return };
    written_to_meanwhile(Arc::new(atproto_backfill::store::PostgresStore::open(&database.url).unwrap())).await;
}

async fn written_to_meanwhile(store: Arc<dyn Store>) {
    let world = World::builder().seed(12).hosts(3).repos(40).sizes(Sizes::Total(20_000));
    let rig = Rig::with(world, Default::default(), Default::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    let (writer, mut op_sets) =
        Writer::start(&rig.world, WriterOptions { per_second: 2000.0, limit: 4000, seed: 12, ..WriterOptions::default() });
    // No checkout has begun yet, however fast they will be.
    for _ in 0..50 {
        let op_set = op_sets.recv().await.unwrap();
        assert_eq!(rig.backfiller.buffer(&op_set).await.unwrap(), Route::Discarded);
    }
    rig.backfiller.start().await.unwrap();
    while let Some(op_set) = op_sets.recv().await {
        rig.backfiller.buffer(&op_set).await.unwrap();
    }
    assert_eq!(writer.finished().await, 4000);
    rig.idle().await;
    rig.assert_truth().await;
    let counts = rig.backfiller.progress().await.unwrap().counts;
    assert!(counts.op_sets_flushed > 1000 && counts.op_sets_discarded > 0, "nothing was put to the test: {counts:?}");
    rig.backfiller.stop().await.unwrap();
}
