use atproto_backfill::job::{Epoch, JobEvent, JobState, Timestamp, UnavailableStatus};
use atproto_backfill::store::{DueHosts, Where};

use crate::world::{NOW, World, did, failed, failed_state, path};

crate::conformance!(
    a_consumer_is_named_once,
    enqueue_adds_each_repo_once_and_touches_no_job_that_exists,
    jobs_are_paged_in_the_order_of_their_ids,
    wanting_enqueues_again_except_what_is_under_way,
    purge_removes_everything_and_a_new_job_is_another_one,
    due_tells_the_claimable_repos_of_a_host_enqueued_ones_first,
    due_tells_a_repo_once_whoever_wants_it,
    due_hosts_tells_hosts_and_the_next_retry,
    a_place_outlives_a_purge_and_holds_for_all_jobs,
);

async fn a_consumer_is_named_once(world: World) {
    assert_eq!(world.store.consumer("posts@1").await.unwrap(), world.consumer);
    let other = world.store.consumer("likes@1").await.unwrap();
    assert_ne!(other, world.consumer);
    assert_eq!(world.store.consumer("likes@1").await.unwrap(), other);
    let mut names = world.store.consumers().await.unwrap();
    names.sort();
    assert_eq!(names, ["likes@1", "posts@1"]);
    world.enqueue(&did(1)).await;
    assert_eq!(world.store.job(other, &did(1)).await.unwrap(), None, "a job of another consumer was given out");
    assert!(world.store.jobs(other, None, 10).await.unwrap().is_empty());
}

async fn enqueue_adds_each_repo_once_and_touches_no_job_that_exists(world: World) {
    let dids = [did(1), did(2), did(1)];
    assert_eq!(world.store.enqueue(world.consumer, &dids).await.unwrap(), 2);
    assert_eq!(world.store.enqueue(world.consumer, &dids).await.unwrap(), 0);
    let job = world.job(&did(1)).await;
    assert_eq!((job.state, job.epoch, job.rev, job.records, job.host), (JobState::Enqueued, Epoch(0), None, 0, None));
    let complete = world.complete(&did(3), 5).await;
    world.enqueue(&did(3)).await;
    assert_eq!(world.job(&did(3)).await, complete);
}

async fn jobs_are_paged_in_the_order_of_their_ids(world: World) {
    let dids: Vec<_> = (0..7).map(did).collect();
    world.store.enqueue(world.consumer, &dids).await.unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = world.store.jobs(world.consumer, after, 3).await.unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        seen.extend(page.into_iter().map(|job| (job.id, job.did)));
    }
    assert!(seen.is_sorted());
    assert_eq!(seen.into_iter().map(|(_, did)| did).collect::<Vec<_>>(), dids);
}

async fn wanting_enqueues_again_except_what_is_under_way(world: World) {
    assert!(!world.store.want(world.consumer, &did(1)).await.unwrap());
    let claimed = world.claimed(&did(1)).await;
    assert!(world.store.want(world.consumer, &did(1)).await.unwrap());
    assert_eq!(world.job(&did(1)).await, claimed, "a job in progress was changed");
    world.finish_at(&claimed, 5).await;
    assert!(world.store.want(world.consumer, &did(1)).await.unwrap());
    let again = world.job(&did(1)).await;
    assert_eq!((again.state.clone(), again.rev), (JobState::Enqueued, claimed.rev.or(Some(crate::world::rev(5)))));
    assert!(again.epoch > claimed.epoch, "whoever delivered for the complete job may still act");
    world.settle(&again, JobEvent::Unavailable { status: UnavailableStatus::Deactivated }).await;
    assert!(world.store.claim(&did(1), NOW).await.unwrap().is_empty(), "an unavailable job was claimed");
    assert!(world.store.want(world.consumer, &did(1)).await.unwrap());
    assert_eq!(world.job(&did(1)).await.state, JobState::Enqueued);
}

async fn purge_removes_everything_and_a_new_job_is_another_one(world: World) {
    assert!(!world.store.purge(world.consumer, &did(1)).await.unwrap());
    let job = world.complete(&did(1), 5).await;
    world.append(&crate::world::op_set(&did(1), 5, 6)).await;
    world.store.intend(job.id, job.epoch, &[path("x")]).await.unwrap().unwrap();
    assert!(world.store.purge(world.consumer, &did(1)).await.unwrap());
    assert!(!world.store.purge(world.consumer, &did(1)).await.unwrap());
    assert_eq!(world.store.job(world.consumer, &did(1)).await.unwrap(), None);
    assert!(world.store.buffered(job.id, u64::MAX).await.unwrap().is_empty());
    assert!(world.store.in_doubt(job.id).await.unwrap().is_empty());
    assert!(world.store.manifest(job.id, None, 9).await.unwrap().is_empty());
    assert!(world.store.due(Where::Unplaced, NOW, 9).await.unwrap().is_empty());
    world.enqueue(&did(1)).await;
    let anew = world.job(&did(1)).await;
    assert_ne!(anew.id, job.id, "an id was given twice");
    assert_eq!((anew.rev, anew.min_rev, anew.buffered_op_sets), (None, None, 0));
}

async fn due_tells_the_claimable_repos_of_a_host_enqueued_ones_first(world: World) {
    for n in [1, 2, 3, 4, 5] {
        world.enqueue(&did(n)).await;
        world.store.place(&did(n), if n == 5 { "b.test" } else { "a.test" }).await.unwrap();
    }
    let first = world.claim(&did(1)).await;
    let second = world.claim(&did(2)).await;
    world.settle(&second, failed(1, Timestamp(NOW.0 - 10))).await;
    world.settle(&first, failed(1, Timestamp(NOW.0 + 10))).await;
    world.enqueue(&did(6)).await;
    let due = |place, now, limit| world.store.due(place, now, limit);
    assert_eq!(due(Where::Host("a.test"), NOW, 9).await.unwrap(), [did(3), did(4), did(2)]);
    assert_eq!(due(Where::Host("a.test"), NOW, 2).await.unwrap(), [did(3), did(4)]);
    assert_eq!(due(Where::Host("a.test"), Timestamp(NOW.0 + 10), 9).await.unwrap(), [did(3), did(4), did(2), did(1)]);
    assert_eq!(due(Where::Host("b.test"), NOW, 9).await.unwrap(), [did(5)]);
    assert_eq!(due(Where::Host("c.test"), NOW, 9).await.unwrap(), []);
    assert_eq!(due(Where::Unplaced, NOW, 9).await.unwrap(), [did(6)]);
    assert_eq!(world.job(&did(1)).await.state, failed_state(1, Timestamp(NOW.0 + 10)));
}

async fn due_tells_a_repo_once_whoever_wants_it(world: World) {
    let other = world.store.consumer("likes@1").await.unwrap();
    let dids: Vec<_> = (0..5).map(did).collect();
    for consumer in [world.consumer, other] {
        world.store.enqueue(consumer, &dids).await.unwrap();
    }
    assert_eq!(world.store.due(Where::Unplaced, NOW, 5).await.unwrap(), dids);
    assert_eq!(world.store.due(Where::Unplaced, NOW, 3).await.unwrap(), dids[..3]);
    world.store.claim(&did(0), NOW).await.unwrap();
    assert_eq!(world.store.due(Where::Unplaced, NOW, 9).await.unwrap(), dids[1..]);
}

async fn due_hosts_tells_hosts_and_the_next_retry(world: World) {
    assert_eq!(world.store.due_hosts(NOW).await.unwrap(), DueHosts::default());
    for (n, host) in [(1, "a.test"), (2, "b.test"), (3, "c.test"), (4, "c.test")] {
        world.enqueue(&did(n)).await;
        world.store.place(&did(n), host).await.unwrap();
    }
    let claimed = world.claim(&did(2)).await;
    world.settle(&claimed, failed(1, Timestamp(NOW.0 + 500))).await;
    let claimed = world.claim(&did(4)).await;
    world.settle(&claimed, failed(1, Timestamp(NOW.0 + 900))).await;
    let sorted = |mut due: DueHosts| {
        due.hosts.sort();
        (due.hosts, due.unplaced, due.next_retry)
    };
    let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let at = |ms| Timestamp(NOW.0 + ms);
    assert_eq!(sorted(world.store.due_hosts(NOW).await.unwrap()), (hosts(&["a.test", "c.test"]), false, Some(at(500))));
    assert_eq!(sorted(world.store.due_hosts(at(500)).await.unwrap()), (hosts(&["a.test", "b.test", "c.test"]), false, Some(at(900))));
    world.enqueue(&did(9)).await;
    assert_eq!(sorted(world.store.due_hosts(at(900)).await.unwrap()), (hosts(&["a.test", "b.test", "c.test"]), true, None));
    let unplaced = world.claim(&did(9)).await;
    world.settle(&unplaced, failed(1, at(300))).await;
    assert_eq!(sorted(world.store.due_hosts(NOW).await.unwrap()), (hosts(&["a.test", "c.test"]), false, Some(at(300))));
}

async fn a_place_outlives_a_purge_and_holds_for_all_jobs(world: World) {
    world.store.place(&did(1), "nowhere.test").await.unwrap();
    world.enqueue(&did(1)).await;
    assert_eq!(world.job(&did(1)).await.host, None, "a repo that never had a job was remembered");
    world.store.place(&did(1), "a.test").await.unwrap();
    let other = world.store.consumer("likes@1").await.unwrap();
    world.store.enqueue(other, &[did(1)]).await.unwrap();
    world.store.place(&did(1), "b.test").await.unwrap();
    world.store.purge(world.consumer, &did(1)).await.unwrap();
    world.enqueue(&did(1)).await;
    for consumer in [world.consumer, other] {
        assert_eq!(world.store.job(consumer, &did(1)).await.unwrap().unwrap().host.as_deref(), Some("b.test"));
    }
    assert_eq!(world.store.due(Where::Host("b.test"), NOW, 9).await.unwrap(), [did(1)]);
    assert_eq!(world.store.due(Where::Host("a.test"), NOW, 9).await.unwrap(), []);
    assert_eq!(world.store.due(Where::Unplaced, NOW, 9).await.unwrap(), []);
}
