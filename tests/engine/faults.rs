//! What hosts and directories do wrong: each fault ends in the right state with its cause named, or is got over. Every fault proves that it struck.

use std::time::Duration;

use atproto_backfill::job::{FailureKind, Job, JobState, UnavailableStatus};
use atproto_backfill::sim::{AccountStatus, Ending, Endpoint, Fault, HandlerFault, Missing, Position, RetryHint, Rule, Sizes, World};
use atproto_backfill::syntax::Did;

use crate::rig::Rig;

/// A rig of one repo, backfilled once under a fault; the rig, the repo and how its job stands.
async fn under(fault: Fault) -> (Rig, Did, Job) {
    let rig = Rig::new(World::builder().seed(21).hosts(2).repos(2).sizes(Sizes::Each(300))).await;
    let did = rig.world.dids()[0].clone();
    let named = format!("{fault:?}");
    let rule = rig.network.faults().inject(Rule::new(fault).did(&did));
    rig.backfiller.start().await.unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(rig.network.faults().fired(rule) > 0, "{named} never struck");
    (rig, did, job)
}

async fn assert_fails(fault: Fault, kind: FailureKind) {
    let named = format!("{fault:?}");
    let (rig, did, job) = under(fault).await;
    assert!(matches!(job.state, JobState::Failed { kind: found, attempt: 1, .. } if found == kind), "{named}: {job:?}");
    assert!(job.failure.contains(did.as_str()), "{named}: the failure does not name the repo: {}", job.failure);
    assert_eq!(job.rev, None, "{named}");
    assert_proven(&rig, &did, &named);
    rig.backfiller.stop().await.unwrap();
}

/// Whatever was delivered is what the account really has.
fn assert_proven(rig: &Rig, did: &Did, named: &str) {
    let truth = rig.world.truth(did).unwrap();
    for (path, cid) in rig.copy.repo(did).records {
        let found = truth.records.iter().find(|(known, _)| **known == path).map(|(_, (cid, _))| *cid);
        assert_eq!(found, Some(cid), "{named}: {path} was delivered without proof");
    }
}

#[tokio::test]
async fn bodies_that_are_no_whole_repo_fail_the_attempt() {
    for (fault, kind) in [
        (Fault::Html, FailureKind::MalformedCar),
        (Fault::EmptyBody, FailureKind::MalformedCar),
        (Fault::HeaderOnlyCar, FailureKind::MissingBlock),
        (Fault::Cut(Position::Byte(3), Ending::Clean), FailureKind::MalformedCar),
        (Fault::Cut(Position::Byte(2000), Ending::Clean), FailureKind::MalformedCar),
        (Fault::Cut(Position::BeforeEnd(1), Ending::Clean), FailureKind::MalformedCar),
        (Fault::Cut(Position::Block(100), Ending::Clean), FailureKind::MissingBlock),
        (Fault::Cut(Position::Byte(2000), Ending::Close), FailureKind::MalformedCar),
        (Fault::Cut(Position::Byte(2000), Ending::Reset), FailureKind::MalformedCar),
        (Fault::FlipByte(5000), FailureKind::MalformedCar),
        (Fault::TrailingBytes(vec![0x80]), FailureKind::MalformedCar),
        (Fault::MissingBlock(Missing::Commit), FailureKind::MissingBlock),
        (Fault::MissingBlock(Missing::Root), FailureKind::MissingBlock),
        (Fault::MissingBlock(Missing::Node), FailureKind::MissingBlock),
        (Fault::MissingBlock(Missing::Record), FailureKind::MissingBlock),
        (Fault::WrongKey, FailureKind::BadSignature),
    ] {
        assert_fails(fault, kind).await;
    }
}

#[tokio::test]
async fn hosts_that_answer_with_errors_or_not_at_all_fail_the_attempt() {
    for (fault, kind) in [
        (Fault::Status(500, "InternalServerError"), FailureKind::HttpServer),
        (Fault::Status(400, "InvalidRequest"), FailureKind::HttpClient),
        (Fault::Status(403, "Forbidden"), FailureKind::HttpClient),
        (Fault::StatusPage(502), FailureKind::HttpServer),
        (Fault::Stall(Position::Byte(2000), Duration::from_secs(20)), FailureKind::Timeout),
        (Fault::Late(Duration::from_secs(20)), FailureKind::Timeout),
        (Fault::Reset, FailureKind::Connect),
    ] {
        assert_fails(fault, kind).await;
    }
}

#[tokio::test]
async fn the_car_of_another_account_is_refused() {
    let other = World::builder().seed(21).hosts(2).repos(2).sizes(Sizes::Each(300)).build().unwrap().dids()[1].clone();
    assert_fails(Fault::OtherRepo(other), FailureKind::InvalidCommit).await;
}

#[tokio::test]
async fn accounts_that_are_not_to_be_had_are_unavailable_and_not_tried_again() {
    for (fault, expected) in [
        (Fault::Account(AccountStatus::Deactivated), UnavailableStatus::Deactivated),
        (Fault::Account(AccountStatus::Takendown), UnavailableStatus::Takendown),
        (Fault::Account(AccountStatus::NotFound), UnavailableStatus::NotFound),
        (Fault::DidNotFound, UnavailableStatus::NotFound),
        (Fault::DidTombstoned, UnavailableStatus::Deleted),
    ] {
        let named = format!("{fault:?}");
        let (rig, did, job) = under(fault).await;
        assert_eq!(job.state, JobState::Unavailable { status: expected }, "{named}");
        assert_eq!(job.failures, 0, "{named}: counted as a failure");
        assert!(rig.copy.repo(&did).records.is_empty(), "{named}");
        rig.backfiller.stop().await.unwrap();
    }
}

/// It may be the host that the account has left who says so.
#[tokio::test]
async fn an_account_that_its_host_has_not_is_not_given_up_while_the_directory_is_out() {
    let rig = Rig::new(World::builder().seed(29).hosts(2).repos(1)).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.start().await.unwrap();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    let faults = rig.network.faults();
    let gone = faults.inject(Rule::new(Fault::Account(AccountStatus::Deactivated)).did(&did).endpoint(Endpoint::GetRepo));
    let out = faults.inject(Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::DidDocument));
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(matches!(job.state, JobState::Failed { .. }), "{job:?}");
    assert!(faults.fired(gone) > 0 && faults.fired(out) > 0);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn identities_without_a_host_or_a_key_are_broken() {
    assert_fails(Fault::DocumentWithoutPds, FailureKind::BrokenIdentity).await;
    assert_fails(Fault::DocumentWithoutKey, FailureKind::BrokenIdentity).await;
}

#[tokio::test]
async fn a_host_that_refuses_connections_fails_the_attempt() {
    let rig = Rig::new(World::builder().seed(22).hosts(1).repos(1)).await;
    let did = rig.world.dids()[0].clone();
    rig.network.shut_host(0).await;
    rig.backfiller.start().await.unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(matches!(job.state, JobState::Failed { kind: FailureKind::Connect, .. }), "{job:?}");
    rig.network.open_host(0).await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_refusal_for_load_is_no_attempt_and_the_repo_comes_later() {
    for hint in [
        RetryHint::Seconds(Duration::from_secs(1)),
        RetryHint::Date(Duration::from_secs(1)),
        RetryHint::ResetAt(Duration::from_secs(1)),
        RetryHint::ResetIn(Duration::from_secs(1)),
    ] {
        let rig = Rig::new(World::builder().seed(23).hosts(1).repos(3)).await;
        let rule = rig.network.faults().inject(Rule::new(Fault::TooManyRequests(hint)).times(1));
        rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
        rig.backfiller.start().await.unwrap();
        rig.idle().await;
        assert_eq!(rig.network.faults().fired(rule), 1, "{hint:?}");
        let progress = rig.backfiller.progress().await.unwrap();
        assert_eq!((progress.counts.refused, progress.counts.checkouts_failed, progress.totals.complete), (1, 0, 3), "{hint:?}");
        rig.assert_truth().await;
        rig.backfiller.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_paused_host_starves_no_other() {
    let rig = Rig::new(World::builder().seed(24).hosts(2).repos(40)).await;
    let rule = rig.network.faults().inject(Rule::new(Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(600)))).host(0));
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let other_host_done = async {
        while rig.backfiller.progress().await.unwrap().totals.complete < 20 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(crate::rig::LIMIT, other_host_done).await.expect("the other host's repos wait for the paused one");
    let fired = rig.network.faults().fired(rule);
    assert!((1..=8).contains(&fired), "the paused host was asked {fired} times");
    let totals = rig.backfiller.progress().await.unwrap().totals;
    assert_eq!((totals.enqueued, totals.failed), (20, 0), "the paused host's queue was burnt: {totals:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_rotated_key_costs_one_more_look_up_and_no_failure() {
    let rig = Rig::new(World::builder().seed(25).hosts(1).repos(1)).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.start().await.unwrap();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    rig.world.rotate_key(&did).unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert_eq!(job.state, JobState::Complete, "{}", job.failure);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn an_account_that_has_moved_is_fetched_from_its_new_host() {
    let mut rig = Rig::new(World::builder().seed(26).hosts(2).repos(1)).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.start().await.unwrap();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    let old = rig.world.host_of(&did).unwrap();
    rig.world.move_account(&did, 1 - old);
    rig.backfiller.stop().await.unwrap();
    rig.restart(Default::default()).await;
    rig.backfiller.start().await.unwrap();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    assert_eq!(rig.network.host(1 - old).exports_of(&did), 1);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_stale_replica_is_not_accepted() {
    let rig = Rig::new(World::builder().seed(27).hosts(1).repos(1)).await;
    let did = rig.world.dids()[0].clone();
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    rig.world.remember(&did);
    let op_set = atproto_backfill::sim::RandomWrites::new(27).write_to(&rig.world, &did).unwrap();
    // The job is enqueued: the op set is discarded, but its rev is remembered.
    rig.backfiller.buffer(&op_set).await.unwrap();
    let rule = rig.network.faults().inject(Rule::new(Fault::StaleReplica).times(1));
    rig.backfiller.start().await.unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert_eq!(rig.network.faults().fired(rule), 1);
    assert!(matches!(job.state, JobState::Failed { kind: FailureKind::Stale, .. }), "{job:?}");
    assert!(rig.copy.repo(&did).records.is_empty(), "records of a stale replica were delivered");
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert_eq!(job.state, JobState::Complete);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn an_export_torn_by_commits_is_tried_again() {
    let (rig, _, job) = under(Fault::TornExport(30)).await;
    assert!(matches!(job.state, JobState::Failed { kind: FailureKind::MissingBlock, .. } | JobState::Complete), "{job:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_fails_once_gets_the_delivery_again() {
    let rig = Rig::new(World::builder().seed(28).hosts(1).repos(2).sizes(Sizes::Each(2000))).await;
    rig.handler.inject(HandlerFault::Refuse, 2);
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.assert_truth().await;
    assert_eq!(rig.backfiller.progress().await.unwrap().counts.checkouts_failed, 0);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_panics_has_not_acknowledged() {
    let rig = Rig::new(World::builder().seed(30).hosts(1).repos(1).sizes(Sizes::Each(2000))).await;
    let did = rig.world.dids()[0].clone();
    rig.handler.inject(HandlerFault::Panic, u64::MAX);
    rig.backfiller.start().await.unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(matches!(job.state, JobState::Failed { kind: FailureKind::Handler, .. }), "{job:?}");
    assert!(job.failure.contains("told to panic"), "{}", job.failure);
    rig.handler.heal();
    rig.handler.inject(HandlerFault::Panic, 1);
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_handler_that_always_fails_fails_the_job_with_its_words() {
    let rig = Rig::new(World::builder().seed(29).hosts(1).repos(1).sizes(Sizes::Each(2000))).await;
    let did = rig.world.dids()[0].clone();
    rig.handler.inject(HandlerFault::Refuse, u64::MAX);
    rig.backfiller.start().await.unwrap();
    let job = rig.backfiller.backfill_repo(&did).await.unwrap();
    assert!(matches!(job.state, JobState::Failed { kind: FailureKind::Handler, .. }), "{job:?}");
    assert!(job.failure.contains("told to fail"), "{}", job.failure);
    assert_eq!(job.records, 0, "the manifest holds what was not acknowledged");
    rig.handler.heal();
    assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}
