//! Several processes on one PostgreSQL database: each test opens the store several times, which is as good as several processes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use atproto_backfill::job::{ConsumerId, JobEvent, JobId, JobState};
use atproto_backfill::store::{PostgresOptions, PostgresStore, Renewal, Share, Standing, Store, StoreError};

use crate::database::Database;
use crate::postgres::{execute, stranger};
use crate::support::{NOW, advance, claimed, did, op_set};

/// The longest that any wait of a test may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Long enough that none runs out in a test that does not want it to.
const LEASE: Duration = Duration::from_secs(60);

fn open(database: &Database, lease: Duration) -> PostgresStore {
    PostgresStore::open_with(&database.url, PostgresOptions { lease, ..PostgresOptions::default() }).unwrap()
}

/// Jobs of repos 0 to `hosts`, each at a host of its own: `host0.test` and so on.
async fn placed(store: &dyn Store, hosts: u32) -> ConsumerId {
    let consumer = store.consumer("posts@1").await.unwrap();
    let dids: Vec<_> = (0..hosts).map(did).collect();
    store.enqueue(consumer, &dids).await.unwrap();
    for (n, did) in dids.iter().enumerate() {
        store.place(did, &host(n)).await.unwrap();
    }
    consumer
}

fn host(n: usize) -> String {
    format!("host{n}.test")
}

async fn renew(store: &PostgresStore) -> Renewal {
    store.fleet().unwrap().renew(&["relay.test".to_owned()]).await.unwrap()
}

fn hosts(renewal: &Renewal) -> BTreeSet<String> {
    let host = |share: &Share| if let Share::Host(name) = share { Some(name.clone()) } else { None };
    renewal.taken.iter().filter_map(host).collect()
}

/// Renews until something is taken.
async fn taking(store: &PostgresStore) -> Renewal {
    let begun = Instant::now();
    loop {
        let renewal = renew(store).await;
        if !renewal.taken.is_empty() {
            return renewal;
        }
        assert!(begun.elapsed() < LIMIT, "nothing is free");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn hosts_are_shared_evenly_and_each_has_one_holder() {
    let Some(database) = Database::create("hosts_are_shared_evenly_and_each_has_one_holder") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    placed(&first, 5).await;
    let all = renew(&first).await;
    assert_eq!(hosts(&all), (0..5).map(host).collect());
    assert!(all.taken.contains(&Share::Unplaced) && all.taken.contains(&Share::Upstream("relay.test".to_owned())));
    assert_eq!(renew(&second).await, Renewal::default(), "everything is taken");
    // Three are an even part of five for two.
    assert_eq!(renew(&first).await, Renewal { surplus: 2, ..Renewal::default() });
    let given: Vec<_> = [1, 3].map(|n| (host(n), Duration::ZERO)).into();
    first.fleet().unwrap().give_up(&given).await.unwrap();
    assert_eq!(renew(&second).await, Renewal::default(), "a host that has just been asked is left alone for a moment");
    assert_eq!(hosts(&taking(&second).await), [1, 3].map(host).into());
    assert_eq!(renew(&first).await.surplus, 0);
}

#[tokio::test]
async fn a_pause_goes_with_the_host() {
    let Some(database) = Database::create("a_pause_goes_with_the_host") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    placed(&first, 2).await;
    renew(&first).await;
    renew(&second).await;
    first.fleet().unwrap().give_up(&[(host(0), Duration::from_secs(3600))]).await.unwrap();
    first.fleet().unwrap().give_up(&[(host(1), Duration::ZERO)]).await.unwrap();
    assert_eq!(hosts(&taking(&second).await), [host(1)].into());
    first.fleet().unwrap().leave().await.unwrap();
    assert!(hosts(&renew(&second).await).is_empty());
}

#[tokio::test]
async fn a_job_at_another_processs_host_is_not_claimed() {
    let Some(database) = Database::create("a_job_at_another_processs_host_is_not_claimed") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    let consumer = placed(&first, 1).await;
    first.enqueue(consumer, &[did(7)]).await.unwrap();
    renew(&first).await;
    renew(&second).await;
    first.fleet().unwrap().know(JobId(i64::MAX)).await.unwrap();
    for unclaimed in [did(0), did(7)] {
        assert!(second.claim(&unclaimed, NOW).await.unwrap().is_empty(), "{unclaimed}");
        assert_eq!(first.claim(&unclaimed, NOW).await.unwrap().len(), 1, "{unclaimed}");
    }
}

#[tokio::test]
async fn a_process_that_is_not_heard_of_loses_everything_and_can_write_nothing() {
    let Some(database) = Database::create("a_process_that_is_not_heard_of_loses_everything_and_can_write_nothing") else { return };
    // The server has to be up for as long as a lease.
    let (first, second) = (open(&database, Duration::from_secs(3)), open(&database, Duration::from_secs(3)));
    let consumer = placed(&first, 1).await;
    renew(&first).await;
    first.fleet().unwrap().know(JobId(i64::MAX)).await.unwrap();
    let job = first.claim(&did(0), NOW).await.unwrap().pop().unwrap();
    let begun = Instant::now();
    let mut taken = renew(&second).await;
    while hosts(&taken).is_empty() {
        assert!(begun.elapsed() < LIMIT, "the lease does not run out");
        tokio::time::sleep(Duration::from_millis(50)).await;
        taken = renew(&second).await;
    }
    assert_eq!((hosts(&taken), taken.abandoned), ([host(0)].into(), 1));
    assert_eq!(second.job(consumer, &did(0)).await.unwrap().unwrap().state, JobState::Enqueued);
    let late = [
        first.advance(advance(&job)).await.map(drop),
        first.settle(job.id, job.epoch, JobEvent::Released, "", &[]).await.map(drop),
        first.append(consumer, &op_set(&did(0), 1, 2, 10), u64::MAX).await.map(drop),
        first.enqueue(consumer, &[did(5)]).await.map(drop),
        first.fleet().unwrap().renew(&[]).await.map(drop),
    ];
    for late in late {
        let error = late.unwrap_err();
        assert!(matches!(error, StoreError::LeaseLost) && !error.is_retryable(), "{error:?}");
    }
    assert_eq!(second.advance(advance(&job)).await.unwrap(), Standing::Superseded);
    assert_eq!(second.totals(consumer).await.unwrap().enqueued, 1, "something was written");
}

/// As it is when the server's clock has been set back since.
#[tokio::test]
async fn a_lease_or_a_pause_that_ends_in_nine_hours_is_not_waited_for() {
    let Some(database) = Database::create("a_lease_or_a_pause_that_ends_in_nine_hours_is_not_waited_for") else { return };
    // The server has to be up for as long as a lease.
    let (first, second) = (open(&database, Duration::from_secs(3)), open(&database, Duration::from_secs(3)));
    let consumer = placed(&first, 2).await;
    renew(&first).await;
    first.fleet().unwrap().know(JobId(i64::MAX)).await.unwrap();
    let job = first.claim(&did(0), NOW).await.unwrap().pop().unwrap();
    renew(&second).await;
    first.fleet().unwrap().give_up(&[(host(1), Duration::from_secs(3600))]).await.unwrap();
    assert_eq!(renew(&second).await, Renewal::default(), "an hour is a pause like any other");
    let mut stranger = stranger(&database);
    execute(&mut stranger, "UPDATE host SET free_at = free_at + interval '9 hours' WHERE holder IS NULL");
    assert_eq!(hosts(&taking(&second).await), [host(1)].into());
    execute(&mut stranger, "UPDATE process SET expires = expires + interval '9 hours' WHERE id = (SELECT min(id) FROM process)");
    assert_eq!(renew(&second).await, Renewal::default());
    // One that lives goes on.
    assert_eq!(renew(&first).await, Renewal::default());
    execute(&mut stranger, "UPDATE process SET expires = expires + interval '9 hours' WHERE id = (SELECT min(id) FROM process)");
    // And this is the last that is heard of it.
    let taken = taking(&second).await;
    assert_eq!((taken.abandoned, taken.taken.contains(&Share::Unplaced)), (0, true), "the host is left alone for a moment: {taken:?}");
    assert_eq!(taking(&second).await.abandoned, 1);
    assert_eq!(second.job(consumer, &did(0)).await.unwrap().unwrap().state, JobState::Enqueued);
    let late = first.settle(job.id, job.epoch, JobEvent::Released, "", &[]).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
}

#[tokio::test]
async fn a_process_that_only_puts_repos_in_has_no_lease_to_lose() {
    let Some(database) = Database::create("a_process_that_only_puts_repos_in_has_no_lease_to_lose") else { return };
    let (first, second) = (open(&database, Duration::from_secs(3)), open(&database, LEASE));
    let consumer = placed(&first, 4).await;
    let begun = Instant::now();
    let forgotten = "SELECT count(*) AS n FROM process";
    loop {
        assert_eq!(renew(&second).await.surplus, 0, "the other counts as one that works");
        let mut stranger = stranger(&database);
        let known: i64 = diesel::RunQueryDsl::get_result::<crate::support::Count>(diesel::sql_query(forgotten), &mut stranger).unwrap().n;
        if known == 1 {
            break;
        }
        assert!(begun.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(first.enqueue(consumer, &[did(9)]).await.unwrap(), 1);
    assert_eq!(first.enqueue(consumer, &[did(9)]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_process_that_ends_in_order_is_followed_at_once() {
    let Some(database) = Database::create("a_process_that_ends_in_order_is_followed_at_once") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    placed(&first, 3).await;
    renew(&first).await;
    renew(&second).await;
    first.fleet().unwrap().leave().await.unwrap();
    let mut all = hosts(&taking(&second).await);
    // Hosts are left alone for a moment, the other shares are not.
    while all.len() < 3 {
        all.extend(hosts(&taking(&second).await));
    }
    // One that has left can come back.
    assert!(renew(&first).await.taken.is_empty());
    drop(second);
    assert!(!taking(&first).await.taken.is_empty());
}

#[tokio::test]
async fn who_has_the_host_is_told_what_others_have_recorded() {
    let Some(database) = Database::create("who_has_the_host_is_told_what_others_have_recorded") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    let consumer = placed(&first, 1).await;
    first.enqueue(consumer, &[did(7)]).await.unwrap();
    renew(&first).await;
    renew(&second).await;
    let jobs = first.jobs(consumer, None, 10).await.unwrap();
    for job in jobs.iter().chain(&jobs) {
        second.fleet().unwrap().wake(job.id).await.unwrap();
    }
    let woken: BTreeSet<_> = renew(&first).await.woken.into_iter().collect();
    assert_eq!(woken, [did(0), did(7)].into());
    assert_eq!(renew(&first).await.woken, []);
    assert_eq!(renew(&second).await.woken, []);
    second.fleet().unwrap().wake(jobs[0].id).await.unwrap();
    first.purge(consumer, &did(0)).await.unwrap();
    assert_eq!(renew(&first).await.woken, [], "its job is gone");
    first.fleet().unwrap().leave().await.unwrap();
    second.fleet().unwrap().wake(jobs[1].id).await.unwrap();
}

#[tokio::test]
async fn no_job_appears_below_the_newest_that_was_read() {
    let Some(database) = Database::create("no_job_appears_below_the_newest_that_was_read") else { return };
    let store = open(&database, LEASE);
    let consumer = placed(&store, 1).await;
    let mut stranger = stranger(&database);
    // Another process has drawn a number for a job, and has not committed.
    execute(&mut stranger, "BEGIN");
    execute(&mut stranger, "SELECT pg_advisory_xact_lock_shared(7954895297928192627)");
    execute(&mut stranger, "SELECT nextval('number')");
    store.enqueue(consumer, &[did(1)]).await.unwrap();
    let fleet = store.fleet().unwrap();
    let mut reading = fleet.newcomers(consumer, None, 10);
    tokio::select! {
        read = &mut reading => panic!("{read:?}"),
        () = tokio::time::sleep(Duration::from_millis(300)) => {}
    }
    execute(&mut stranger, "COMMIT");
    let read = reading.await.unwrap();
    assert_eq!(read.iter().map(|job| job.did.clone()).collect::<Vec<_>>(), [did(0), did(1)]);
    let last = read[1].id;
    assert_eq!(fleet.newcomers(consumer, Some(last), 10).await.unwrap(), []);
    renew(&store).await;
    assert_eq!(fleet.known("relay.test").await.unwrap(), None);
    fleet.know(last).await.unwrap();
    assert_eq!(fleet.known("relay.test").await.unwrap(), Some(last));
    assert_eq!(fleet.known("other.test").await.unwrap(), None::<JobId>);
}

#[tokio::test]
async fn no_job_is_claimed_before_who_follows_knows_of_its_repo() {
    let Some(database) = Database::create("no_job_is_claimed_before_who_follows_knows_of_its_repo") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    let consumer = placed(&first, 3).await;
    let jobs = first.jobs(consumer, None, 10).await.unwrap();
    assert_eq!(second.claim(&did(0), NOW).await.unwrap().len(), 1, "nobody follows anything");
    renew(&first).await;
    assert!(first.claim(&did(1), NOW).await.unwrap().is_empty());
    first.fleet().unwrap().know(jobs[1].id).await.unwrap();
    assert_eq!(first.claim(&did(1), NOW).await.unwrap().len(), 1);
    assert!(first.claim(&did(2), NOW).await.unwrap().is_empty());
    first.fleet().unwrap().leave().await.unwrap();
    assert_eq!(first.claim(&did(2), NOW).await.unwrap().len(), 1, "who follows next will look for it");
}

#[tokio::test]
async fn an_audit_ends_when_every_process_is_done_with_its_part() {
    let Some(database) = Database::create("an_audit_ends_when_every_process_is_done_with_its_part") else { return };
    let (first, second) = (open(&database, LEASE), open(&database, LEASE));
    let consumer = placed(&first, 2).await;
    renew(&second).await;
    let mut mine: Vec<Share> = renew(&first).await.taken;
    assert!(mine.is_empty(), "the second has all");
    let give = second.fleet().unwrap();
    give.give_up(&[(host(0), Duration::ZERO)]).await.unwrap();
    mine.extend(taking(&first).await.taken);
    assert_eq!(mine, [Share::Host(host(0))]);
    let audit = first.audit_begin(consumer, "a gap", NOW).await.unwrap();
    let (own, its) = (first.fleet().unwrap(), second.fleet().unwrap());
    assert_eq!(own.unaudited(consumer, audit).await.unwrap(), mine);
    let others: BTreeSet<_> = its.unaudited(consumer, audit).await.unwrap().into_iter().collect();
    assert_eq!(others, [Share::Host(host(1)), Share::Unplaced].into());
    assert!(!own.audited(consumer, audit, &mine).await.unwrap());
    assert_eq!(own.unaudited(consumer, audit).await.unwrap(), []);
    assert!(!its.audited(consumer, audit, &[Share::Unplaced]).await.unwrap());
    // Another audit begins all of it anew.
    let again = second.audit_begin(consumer, "another gap", NOW).await.unwrap();
    assert!(!its.audited(consumer, audit, &[Share::Host(host(1))]).await.unwrap(), "it is another audit that is due");
    assert_eq!(own.unaudited(consumer, again).await.unwrap(), mine);
    assert!(!own.audited(consumer, again, &mine).await.unwrap());
    assert!(its.audited(consumer, again, &[Share::Host(host(1)), Share::Unplaced]).await.unwrap());
    assert_eq!(first.audit(consumer).await.unwrap(), None);
}

#[tokio::test]
async fn acts_that_wait_for_each_other_are_all_done() {
    let Some(database) = Database::create("acts_that_wait_for_each_other_are_all_done") else { return };
    let stores = [open(&database, LEASE), open(&database, LEASE)];
    let consumer = stores[0].consumer("posts@1").await.unwrap();
    for n in 0..20 {
        claimed(&stores[0], consumer, &did(n)).await;
    }
    // In opposite orders, so that each soon holds what the other needs.
    let append = |store: usize, n: u32, round: u64| {
        let from = round * 2 + store as u64;
        let (stores, op_set) = (&stores, op_set(&did(n), from, from + 1, 10));
        async move { stores[store].append(consumer, &op_set, u64::MAX).await }
    };
    for round in 1..20 {
        let acts = (0..20).flat_map(|n| [append(0, n, round), append(1, 19 - n, round)]);
        for answer in futures::future::join_all(acts).await {
            answer.unwrap();
        }
    }
    assert_eq!(stores[0].totals(consumer).await.unwrap().in_progress, 20);
    drop(stores);
    let check = PostgresStore::check(&database.url).unwrap();
    assert!(check.faults.is_empty(), "{check:?}");
}
