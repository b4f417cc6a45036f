//! Identities that change right after they were looked up, and identities that are not to be had.

use std::time::{Duration, Instant};

use atproto_backfill::job::{Account, JobState, UnavailableStatus};
use atproto_backfill::sim::{
    AccountStatus, Endpoint, EventFault, EventKind, Fault, NetworkOptions, RandomWrites, Rule, RuleId, Sizes, World,
};
use atproto_backfill::syntax::Did;

use crate::follow_faults::{followed, write_to_all};
use crate::rig::{Following, LIMIT, Rig};

/// Long enough for what is to happen within it, also on a machine that has more to do.
const REFRESH: Duration = Duration::from_secs(3);

fn limited() -> Following {
    Following { refresh: REFRESH, ..Following::default() }
}

/// Waits until all upstreams of hosts are settled and nothing is left to do.
pub(crate) async fn settled(rig: &Rig) {
    let heads: Vec<u64> = (0..rig.world.hosts()).map(|host| rig.network.host_head(host)).collect();
    rig.until(|progress| {
        let upstreams = &progress.follow.as_ref().unwrap().upstreams;
        upstreams.iter().zip(&heads).all(|(upstream, head)| upstream.settled.is_some_and(|settled| settled.seq.get() >= *head))
    })
    .await;
    rig.idle().await;
}

/// A rig of eight repos that has copied its world, and follows both hosts.
pub(crate) async fn hosts_followed(seed: u64, following: Following) -> Rig {
    let world = World::builder().seed(seed).hosts(2).repos(8).sizes(Sizes::Total(1_200));
    let rig = Rig::copied(world, NetworkOptions::default(), Following { hosts: vec![0, 1], ..following }).await;
    write_to_all(&rig, seed);
    settled(&rig).await;
    rig
}

/// Has the identity of a repo looked up now; returns since when it may not be looked up again.
async fn look_up(rig: &Rig, did: &Did) -> Instant {
    tokio::time::sleep(REFRESH).await;
    rig.world.set_handle(did, "other.test");
    let before = rig.network.plc().requests(Endpoint::DidDocument);
    RandomWrites::new(1).write_to(&rig.world, did).unwrap();
    rig.up_to_date(std::slice::from_ref(did)).await;
    assert_eq!(rig.network.plc().requests(Endpoint::DidDocument), before + 1, "it was not looked up");
    Instant::now()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_changes_right_after_a_look_up_loses_no_commit() {
    for told in [true, false] {
        let rig = followed(420, NetworkOptions::default(), limited()).await;
        let did = rig.world.dids().remove(0);
        let looked_up = look_up(&rig, &did).await;
        let (checkouts, asked) = (rig.checkouts(), rig.network.plc().requests(Endpoint::DidDocument));
        let identity = (!told)
            .then(|| rig.network.faults().inject(Rule::new(EventFault::Drop).event(EventKind::Identity).relay(0).did(&did).times(1)));
        rig.world.rotate_key(&did).unwrap();
        RandomWrites::new(421).write_to(&rig.world, &did).unwrap();
        assert!(looked_up.elapsed() < REFRESH, "the machine is too slow for this test");
        rig.caught_up().await;
        assert!(identity.is_none_or(|rule| rig.network.faults().fired(rule) == 1));
        rig.assert_truth().await;
        let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
        assert!(follow.dropped.is_empty() && follow.gaps.is_empty(), "{follow:?}");
        assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
        assert_eq!(rig.network.plc().requests(Endpoint::DidDocument), asked + 1, "one look-up is enough for all");
        rig.backfiller.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_right_after_a_look_up_leaves_the_account_active() {
    let rig = hosts_followed(422, limited()).await;
    let did = rig.world.dids().remove(0);
    let looked_up = look_up(&rig, &did).await;
    let checkouts = rig.checkouts();
    rig.world.migrate(&did, 1 - rig.world.host_of(&did).unwrap()).unwrap();
    RandomWrites::new(423).write_to(&rig.world, &did).unwrap();
    assert!(looked_up.elapsed() < REFRESH, "the machine is too slow for this test");
    settled(&rig).await;
    rig.assert_truth().await;
    assert_eq!(rig.copy.repo(&did).account, None, "the former host was believed");
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_the_former_host_tells_first_leaves_the_account_active() {
    for looked_up_before in [true, false] {
        let rig = hosts_followed(424, limited()).await;
        let did = rig.world.dids().remove(0);
        if looked_up_before {
            look_up(&rig, &did).await;
        } else {
            tokio::time::sleep(REFRESH).await;
        }
        // The account is deactivated and still at home: what makes the host look its identity up.
        rig.world.set_status(&did, AccountStatus::Deactivated);
        if !looked_up_before {
            settled(&rig).await;
            let gone = JobState::Unavailable { status: UnavailableStatus::Deactivated };
            assert_eq!(rig.backfiller.job(&did).await.unwrap().unwrap().state, gone);
        }
        let changed = Instant::now();
        rig.world.migrate(&did, 1 - rig.world.host_of(&did).unwrap()).unwrap();
        rig.world.set_status(&did, AccountStatus::Active);
        RandomWrites::new(425).write_to(&rig.world, &did).unwrap();
        settled(&rig).await;
        rig.assert_truth().await;
        assert!(rig.copy.repo(&did).account.is_none_or(Account::is_active));
        assert!(changed.elapsed() < REFRESH * 3, "it took {:?}", changed.elapsed());
        rig.backfiller.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_bad_signatures_is_one_look_up_and_holds_up_nobody_else() {
    let rig = followed(426, NetworkOptions::default(), limited()).await;
    let dids = rig.world.dids();
    look_up(&rig, &dids[0]).await;
    let asked = rig.network.plc().requests(Endpoint::DidDocument);
    let forged = rig.network.faults().inject(Rule::new(EventFault::WrongKey).relay(0).did(&dids[0]).times(50));
    let (flood, mut writes) = (Instant::now(), RandomWrites::new(427));
    (0..50).for_each(|_| _ = writes.write_to(&rig.world, &dids[0]).unwrap());
    write_to_all(&rig, 428);
    rig.up_to_date(&dids[1..]).await;
    assert!(flood.elapsed() < REFRESH, "others waited for {:?}", flood.elapsed());
    rig.caught_up().await;
    assert_eq!(rig.network.faults().fired(forged), 50);
    rig.assert_truth().await;
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    assert_eq!(follow.dropped.get("signature"), Some(&50), "{follow:?}");
    let asked = rig.network.plc().requests(Endpoint::DidDocument) - asked;
    assert!(asked <= 2, "{asked} look-ups");
    rig.backfiller.stop().await.unwrap();
}

fn out(rig: &Rig, did: &Did, fault: Fault) -> RuleId {
    rig.network.faults().inject(Rule::new(fault).endpoint(Endpoint::DidDocument).did(did))
}

/// Checks repos out again whose identity was not to be had.
async fn healed(rig: &Rig, dids: &[Did]) {
    let healed = async {
        for did in dids {
            while rig.backfiller.backfill_repo(did).await.unwrap().state != JobState::Complete {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    tokio::time::timeout(LIMIT, healed).await.expect("never complete again");
    rig.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_wait_for_an_identity_are_given_up_together() {
    let patience = Duration::from_secs(3);
    let mut following = Following::default();
    following.follow.identity_patience = patience;
    let rig = followed(430, NetworkOptions::default(), following).await;
    let did = rig.world.dids().remove(0);
    rig.world.set_handle(&did, "other.test");
    rig.caught_up().await;
    let rule = out(&rig, &did, Fault::Status(500, "InternalServerError"));
    let mut writes = RandomWrites::new(431);
    (0..5).for_each(|_| _ = writes.write_to(&rig.world, &did).unwrap());
    // An event that no checkout makes up for among them.
    rig.world.set_status(&did, AccountStatus::Deactivated);
    rig.world.set_status(&did, AccountStatus::Active);
    (0..5).for_each(|_| _ = writes.write_to(&rig.world, &did).unwrap());
    let written = Instant::now();
    rig.settled().await;
    assert!(written.elapsed() < patience * 2, "the cursor was held for {:?}", written.elapsed());
    let progress = rig.backfiller.progress().await.unwrap();
    assert!(progress.follow.unwrap().gaps.get("identity_outage") >= Some(&1));
    assert!(progress.counts.events_lost >= 10, "{:?}", progress.counts);
    assert!(rig.network.faults().fired(rule) >= 1);
    rig.network.faults().heal(rule);
    healed(&rig, std::slice::from_ref(&did)).await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

/// Commits of repos whose identity hangs, so many of each, fill all the room there is, and the others go on.
async fn crowd(seed: u64, room: u32, commits: usize) {
    let mut following = Following::default();
    following.follow.pending_bytes = room.try_into().unwrap();
    following.follow.identity_patience = LIMIT * 10;
    let world = World::builder().seed(seed).hosts(2).repos(12).sizes(Sizes::Total(1_200));
    let rig = Rig::copied(world, NetworkOptions::default(), following).await;
    write_to_all(&rig, seed);
    rig.caught_up().await;
    let dids = rig.world.dids();
    let (hanging, healthy) = dids.split_at(8);
    hanging.iter().for_each(|did| rig.world.set_handle(did, "other.test"));
    rig.caught_up().await;
    let rules: Vec<RuleId> = hanging.iter().map(|did| out(&rig, did, Fault::Late(LIMIT * 10))).collect();
    let mut writes = RandomWrites::new(seed + 1);
    for _ in 0..commits {
        hanging.iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
    }
    for _ in 0..10 {
        healthy.iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
    }
    rig.up_to_date(healthy).await;
    let progress = rig.backfiller.progress().await.unwrap();
    let follow = progress.follow.unwrap();
    assert!(follow.gaps.get("crowded") >= Some(&1), "there was room for all: {follow:?}");
    assert!(follow.gaps.keys().all(|reason| *reason == "crowded"), "{follow:?}");
    rules.iter().for_each(|rule| rig.network.faults().heal(*rule));
    rig.settled().await;
    healed(&rig, hanging).await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn repos_whose_identities_hang_make_room_for_others() {
    crowd(432, 150_000, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repo_whose_one_commit_waits_for_an_identity_makes_room_too() {
    crowd(434, 15_000, 1).await;
}
