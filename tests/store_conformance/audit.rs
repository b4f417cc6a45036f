use atproto_backfill::job::{JobId, Timestamp};
use atproto_backfill::store::{AuditId, AuditState};

use crate::world::{NOW, World, did};

crate::conformance!(
    an_audit_is_remembered_with_how_far_it_is_until_it_ends,
    a_second_audit_begins_anew_and_the_first_changes_nothing_more,
    audits_of_consumers_do_not_touch_each_other,
    a_long_reason_is_cut,
);

async fn audit(world: &World) -> Option<AuditState> {
    world.store.audit(world.consumer).await.unwrap()
}

async fn checkpoint(world: &World, id: AuditId, after: i64, passed: u64) -> bool {
    world.store.audit_checkpoint(world.consumer, id, JobId(after), passed).await.unwrap()
}

async fn an_audit_is_remembered_with_how_far_it_is_until_it_ends(world: World) {
    assert_eq!(audit(&world).await, None);
    let id = world.store.audit_begin(world.consumer, "a gap", NOW).await.unwrap();
    let begun = AuditState { id, reason: "a gap".into(), begun: NOW, after: None, passed: 0 };
    assert_eq!(audit(&world).await, Some(begun.clone()));
    assert!(checkpoint(&world, id, 7, 3).await);
    assert!(checkpoint(&world, id, i64::MAX, u64::MAX >> 1).await);
    assert_eq!(audit(&world).await, Some(AuditState { after: Some(JobId(i64::MAX)), passed: u64::MAX >> 1, ..begun }));
    assert!(world.store.audit_end(world.consumer, id).await.unwrap());
    assert_eq!(audit(&world).await, None);
    assert!(!checkpoint(&world, id, 8, 4).await);
    assert!(!world.store.audit_end(world.consumer, id).await.unwrap());
}

async fn a_second_audit_begins_anew_and_the_first_changes_nothing_more(world: World) {
    let first = world.store.audit_begin(world.consumer, "first", NOW).await.unwrap();
    assert!(checkpoint(&world, first, 7, 3).await);
    let later = Timestamp(NOW.0 + 1);
    let second = world.store.audit_begin(world.consumer, "second", later).await.unwrap();
    assert_ne!(first, second);
    let anew = AuditState { id: second, reason: "second".into(), begun: later, after: None, passed: 0 };
    assert!(!checkpoint(&world, first, 9, 5).await);
    assert!(!world.store.audit_end(world.consumer, first).await.unwrap());
    assert_eq!(audit(&world).await, Some(anew));
}

async fn audits_of_consumers_do_not_touch_each_other(world: World) {
    let other = world.store.consumer("likes@1").await.unwrap();
    let mine = world.store.audit_begin(world.consumer, "mine", NOW).await.unwrap();
    let theirs = world.store.audit_begin(other, "theirs", NOW).await.unwrap();
    world.enqueue(&did(1)).await;
    assert!(world.store.audit_end(other, theirs).await.unwrap());
    assert_eq!(audit(&world).await.map(|audit| (audit.id, audit.reason)), Some((mine, "mine".into())));
}

async fn a_long_reason_is_cut(world: World) {
    world.store.audit_begin(world.consumer, &"ä".repeat(400), NOW).await.unwrap();
    assert_eq!(audit(&world).await.unwrap().reason, "ä".repeat(256));
}
