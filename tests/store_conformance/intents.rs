use crate::world::{NOW, World, advance, at, did, path};
use atproto_backfill::store::Advance;

crate::conformance!(
    paths_are_in_doubt_until_their_intent_is_ended,
    a_position_ends_the_intents_of_earlier_claims_and_no_others,
    an_intent_may_be_empty_unsorted_and_repeat_paths,
);

async fn paths_are_in_doubt_until_their_intent_is_ended(world: World) {
    let job = world.claimed(&did(1)).await;
    let first = world.store.intend(job.id, job.epoch, &[path("a"), path("c")]).await.unwrap().unwrap();
    let second = world.store.intend(job.id, job.epoch, &[path("b"), path("c")]).await.unwrap().unwrap();
    assert_eq!(world.doubted(job.id).await, ["a", "b", "c"].map(|key| path(key).to_string()));
    world.store.advance(Advance { intent: Some(first), ..advance(&job) }).await.unwrap();
    assert_eq!(world.doubted(job.id).await, ["b", "c"].map(|key| path(key).to_string()));
    world.store.advance(Advance { intent: Some(second), ..advance(&job) }).await.unwrap();
    assert!(world.doubted(job.id).await.is_empty());
}

async fn a_position_ends_the_intents_of_earlier_claims_and_no_others(world: World) {
    let old = world.claimed(&did(1)).await;
    world.store.intend(old.id, old.epoch, &[path("old")]).await.unwrap().unwrap();
    let elsewhere = world.claimed(&did(2)).await;
    world.store.intend(elsewhere.id, elsewhere.epoch, &[path("elsewhere")]).await.unwrap().unwrap();
    world.store.recover(NOW).await.unwrap();
    let new = world.claim(&did(1)).await;
    world.store.intend(new.id, new.epoch, &[path("new")]).await.unwrap().unwrap();
    world.store.advance(advance(&new)).await.unwrap();
    assert_eq!(world.doubted(new.id).await, ["new", "old"].map(|key| path(key).to_string()));
    world.store.advance(Advance { position: at(5), ..advance(&new) }).await.unwrap();
    assert_eq!(world.doubted(new.id).await, [path("new").to_string()]);
    assert_eq!(world.doubted(elsewhere.id).await, [path("elsewhere").to_string()]);
}

async fn an_intent_may_be_empty_unsorted_and_repeat_paths(world: World) {
    let job = world.claimed(&did(1)).await;
    assert!(world.store.intend(job.id, job.epoch, &[]).await.unwrap().is_some());
    assert!(world.doubted(job.id).await.is_empty());
    world.store.intend(job.id, job.epoch, &[path("b"), path("a"), path("b")]).await.unwrap().unwrap();
    assert_eq!(world.doubted(job.id).await, ["a", "b"].map(|key| path(key).to_string()));
}
