//! Accounts that were thought to be gone, and sign a commit: their own host is asked, whatever was told or not told of them.

use atproto_backfill::firehose::Verification;
use atproto_backfill::job::{Account, JobState, UnavailableStatus};
use atproto_backfill::sim::{AccountStatus, EventFault, EventKind, Fault, NetworkOptions, RandomWrites, Rule};
use atproto_backfill::syntax::Did;

use crate::follow_faults::followed;
use crate::follow_identity::{hosts_followed, settled};
use crate::rig::{Following, Rig};

async fn assert_unavailable(rig: &Rig, did: &Did, status: UnavailableStatus) {
    assert_eq!(rig.backfiller.job(did).await.unwrap().unwrap().state, JobState::Unavailable { status });
    assert_eq!(rig.copy.repo(did).account, Some(Account::Unavailable(status)));
}

/// A repo of a rig whose host said once, and wrongly, that there is no such repo.
async fn not_found_once(seed: u64, following: Following) -> (Rig, Did) {
    let rig = followed(seed, NetworkOptions::default(), following).await;
    let did = rig.world.dids().remove(0);
    let faults = rig.network.faults();
    let not_found = faults.inject(Rule::new(Fault::Account(AccountStatus::NotFound)).did(&did).times(1));
    let gap = faults.inject(Rule::new(EventFault::TooBig).relay(0).did(&did).times(1));
    RandomWrites::new(seed + 1).write_to(&rig.world, &did).unwrap();
    rig.caught_up().await;
    assert_eq!((faults.fired(not_found), faults.fired(gap)), (1, 1));
    assert_unavailable(&rig, &did, UnavailableStatus::NotFound).await;
    (rig, did)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repo_that_its_host_did_not_find_once_comes_back_by_its_next_commit() {
    for (seed, verification) in [(400, Verification::Full), (402, Verification::Signature), (404, Verification::None)] {
        let mut following = Following::default();
        following.follow.verification = verification;
        let (rig, did) = not_found_once(seed, following).await;
        RandomWrites::new(seed + 1).write_to(&rig.world, &did).unwrap();
        rig.caught_up().await;
        rig.assert_truth().await;
        assert_eq!(rig.copy.repo(&did).account, Some(Account::Active), "{verification:?}");
        assert_eq!(rig.backfiller.progress().await.unwrap().counts.op_sets_rearming, 1, "{verification:?}");
        rig.backfiller.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repo_that_its_host_did_not_find_once_comes_back_by_a_sync() {
    let (rig, did) = not_found_once(406, Following::default()).await;
    // The commit itself is never told, only where the repo is now.
    let untold = rig.network.faults().inject(Rule::new(EventFault::Drop).relay(0).did(&did).times(1));
    RandomWrites::new(407).write_to(&rig.world, &did).unwrap();
    rig.world.announce(&did);
    rig.caught_up().await;
    assert_eq!(rig.network.faults().fired(untold), 1);
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_somebody_else_signed_brings_no_account_back() {
    let (rig, did) = not_found_once(408, Following::default()).await;
    let checkouts = rig.checkouts();
    let forged = rig.network.faults().inject(Rule::new(EventFault::WrongKey).relay(0).did(&did).times(1));
    RandomWrites::new(409).write_to(&rig.world, &did).unwrap();
    rig.caught_up().await;
    assert_eq!(rig.network.faults().fired(forged), 1);
    assert_unavailable(&rig, &did, UnavailableStatus::NotFound).await;
    assert_eq!(rig.checkouts(), checkouts, "the host was asked");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_whose_return_nobody_told_comes_back_by_its_next_commit() {
    let rig = followed(410, NetworkOptions::default(), Following::default()).await;
    let did = rig.world.dids().remove(0);
    rig.world.set_status(&did, AccountStatus::Deactivated);
    rig.caught_up().await;
    assert_unavailable(&rig, &did, UnavailableStatus::Deactivated).await;
    // `#account`, `#identity` and `#sync`.
    let untold = [EventKind::Account, EventKind::Identity, EventKind::Sync]
        .map(|kind| rig.network.faults().inject(Rule::new(EventFault::Drop).event(kind).relay(0).did(&did).times(1)));
    rig.world.set_status(&did, AccountStatus::Active);
    RandomWrites::new(411).write_to(&rig.world, &did).unwrap();
    rig.caught_up().await;
    untold.iter().for_each(|rule| assert_eq!(rig.network.faults().fired(*rule), 1));
    rig.assert_truth().await;
    assert_eq!(rig.copy.repo(&did).account, Some(Account::Active));
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_an_account_that_is_gone_has_its_host_asked_once() {
    // A relay would tell no commits of an account that is not active; its host does.
    let rig = hosts_followed(412, Following::default()).await;
    let did = rig.world.dids().remove(0);
    rig.world.set_status(&did, AccountStatus::Deactivated);
    settled(&rig).await;
    let (checkouts, log) = (rig.checkouts(), rig.copy.repo(&did).log);
    RandomWrites::new(413).write_to(&rig.world, &did).unwrap();
    settled(&rig).await;
    assert_unavailable(&rig, &did, UnavailableStatus::Deactivated).await;
    assert_eq!(rig.checkouts(), checkouts + 1, "the host was not asked once");
    assert_eq!(rig.copy.repo(&did).log, log, "the consumer was told again");
    // Told again: where the repo is now, which is known.
    rig.world.announce(&did);
    settled(&rig).await;
    assert_eq!(rig.checkouts(), checkouts + 1, "the host was asked for a rev that is known");
    rig.backfiller.stop().await.unwrap();
}
