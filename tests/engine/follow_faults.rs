//! Upstreams, directories, consumers and accounts in trouble while a firehose is followed: each test proves that its fault struck, and that nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::Options;
use atproto_backfill::job::{Account, JobState, UnavailableStatus};
use atproto_backfill::sim::{
    AccountStatus, Endpoint, EventFault, Fault, FirehoseOptions, Gate, HandlerFault, NetworkOptions, Position, RandomWrites, RetryHint,
    Rule, Sizes, StreamFault, World,
};
use atproto_backfill::store::MemoryStore;
use atproto_backfill::syntax::Did;

use crate::rig::{Following, LIMIT, Rig};

/// A rig of eight repos that has copied its world, and follows the relay.
pub(crate) async fn followed(seed: u64, network: NetworkOptions, following: Following) -> Rig {
    let world = World::builder().seed(seed).hosts(2).repos(8).sizes(Sizes::Total(1_200));
    let rig = Rig::copied(world, network, following).await;
    // Every host has proven where its commits start, and every cursor is known.
    write_to_all(&rig, seed);
    rig.caught_up().await;
    rig
}

/// One commit in every repo: whatever was missed before shows at the latest then.
pub(crate) fn write_to_all(rig: &Rig, seed: u64) {
    let mut writes = RandomWrites::new(seed);
    for did in rig.world.dids() {
        writes.write_to(&rig.world, &did).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_refuses_is_asked_again_and_nothing_is_lost() {
    let rig = followed(320, NetworkOptions::default(), Following::default()).await;
    let checkouts = rig.checkouts();
    let faults = rig.network.faults();
    let refusal = |fault| faults.inject(Rule::new(fault).endpoint(Endpoint::SubscribeRepos).relay(0).times(1));
    let rules = [
        refusal(Fault::TooManyRequests(RetryHint::Seconds(Duration::ZERO))),
        refusal(Fault::ServiceUnavailable(None)),
        refusal(Fault::Status(500, "InternalServerError")),
        refusal(Fault::Reset),
    ];
    faults.inject(Rule::new(StreamFault::Reset).relay(0).after(3).times(1));
    write_to_all(&rig, 321);
    rig.caught_up().await;
    rules.iter().for_each(|rule| assert_eq!(faults.fired(*rule), 1));
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_between_connections_that_brought_no_event_is_found() {
    let world = World::builder().seed(322).hosts(2).repos(8).sizes(Sizes::Total(1_200));
    let rig = Rig::copied(world, NetworkOptions::default(), Following::default()).await;
    let mut writes = RandomWrites::new(323);
    for losses in 1..=3 {
        rig.network.shut_relay().await;
        rig.until(|progress| progress.follow.as_ref().is_some_and(|follow| follow.upstreams[0].losses >= losses)).await;
        for did in &rig.world.dids()[..4] {
            writes.write_to(&rig.world, did).unwrap();
        }
        rig.network.open_relay().await;
        // Nobody writes any more, so no event will ever tell what was missed.
        rig.up_to_date(&rig.world.dids()).await;
    }
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    assert_eq!(follow.upstreams[0].settled, None, "an event came: {follow:?}");
    rig.idle().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

/// Stops, has the world written to by `meanwhile`, and starts again.
async fn away(rig: &mut Rig, meanwhile: impl FnOnce(&Rig)) {
    rig.backfiller.stop().await.unwrap();
    meanwhile(rig);
    rig.restart_following(Following::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.until(|progress| progress.follow.as_ref().is_some_and(|follow| follow.upstreams[0].connected)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_is_no_longer_retained_has_those_that_moved_checked_out_again() {
    let network = NetworkOptions { relay: FirehoseOptions { window: 30, ..FirehoseOptions::default() }, ..NetworkOptions::default() };
    let mut rig = followed(330, network, Following::default()).await;
    let checkouts = rig.checkouts();
    let dids = rig.world.dids();
    away(&mut rig, |rig| {
        let mut writes = RandomWrites::new(331);
        for _ in 0..50 {
            writes.write_to(&rig.world, &dids[0]).unwrap();
            writes.write_to(&rig.world, &dids[1]).unwrap();
        }
    })
    .await;
    rig.until(|progress| progress.audit.is_none() && progress.follow.as_ref().is_some_and(|follow| follow.upstreams[0].gaps == 1)).await;
    rig.caught_up().await;
    rig.assert_truth_after_restart().await;
    assert!(
        (2..=4).contains(&(rig.checkouts() - checkouts)),
        "{} repos were fetched again, not the two that moved",
        rig.checkouts() - checkouts
    );
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    assert_eq!(follow.gaps.get("outdated_cursor"), Some(&1), "{follow:?}");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_begins_anew_has_every_repo_audited() {
    let rig = followed(332, NetworkOptions::default(), Following::default()).await;
    let mut writes = RandomWrites::new(333);
    (0..100).for_each(|_| _ = writes.write(&rig.world).unwrap());
    rig.caught_up().await;
    let rule = rig.network.faults().inject(Rule::new(EventFault::Restart).relay(0).times(1));
    (0..5).for_each(|_| _ = writes.write(&rig.world).unwrap());
    rig.until(|progress| progress.follow.as_ref().is_some_and(|follow| follow.upstreams[0].gaps == 1)).await;
    rig.caught_up().await;
    assert_eq!(rig.network.faults().fired(rule), 1);
    rig.assert_truth().await;
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    let found: u64 = ["future_cursor", "restarted_sequence"].iter().filter_map(|reason| follow.gaps.get(reason)).sum();
    assert_eq!(found, 1, "{follow:?}");
    assert_eq!(follow.upstreams[0].settled.unwrap().seq.get(), rig.network.relay_head());
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_saved_cursor_waits_for_what_hangs() {
    let mut rig = followed(340, NetworkOptions::default(), Following::default()).await;
    let checkouts = rig.checkouts();
    let dids = rig.world.dids();
    let rule = rig.network.faults().inject(Rule::new(Fault::Late(Duration::from_secs(600))).endpoint(Endpoint::DidDocument).did(&dids[0]));
    // Its identity has to be looked up again, and that hangs.
    rig.world.set_handle(&dids[0], "other.test");
    let hanging = rig.network.relay_head() + 1;
    let mut writes = RandomWrites::new(341);
    writes.write_to(&rig.world, &dids[0]).unwrap();
    for _ in 0..30 {
        dids[1..].iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
    }
    rig.up_to_date(&dids[1..]).await;
    assert!(rig.network.faults().fired(rule) >= 1, "nothing hung");
    rig.backfiller.stop().await.unwrap();
    let (_, saved) = rig.store.upstream(&rig.backfiller.progress().await.unwrap().follow.unwrap().upstreams[0].name).await.unwrap();
    assert!(saved.unwrap().seq.get() < hanging, "the cursor {saved:?} has passed {hanging}");
    rig.network.faults().heal(rule);
    rig.restart_following(Following::default()).await;
    rig.backfiller.start().await.unwrap();
    rig.caught_up().await;
    rig.assert_truth_after_restart().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_wait_for_an_identity_while_the_directory_is_out() {
    let rig = followed(350, NetworkOptions::default(), Following::default()).await;
    let checkouts = rig.checkouts();
    let dids = rig.world.dids();
    let outage = Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::DidDocument).times(3);
    rig.world.set_handle(&dids[0], "other.test");
    rig.caught_up().await;
    let rule = rig.network.faults().inject(outage);
    let mut writes = RandomWrites::new(351);
    (0..5).for_each(|_| _ = writes.write_to(&rig.world, &dids[0]).unwrap());
    rig.caught_up().await;
    assert!(rig.network.faults().fired(rule) >= 1, "the directory was not asked");
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_waited_too_long_for_an_identity_become_a_gap() {
    let mut following = Following::default();
    following.follow.identity_patience = Duration::from_millis(100);
    let rig = followed(352, NetworkOptions::default(), following).await;
    let did = rig.world.dids().remove(0);
    rig.world.set_handle(&did, "other.test");
    rig.caught_up().await;
    let rule = rig.network.faults().inject(Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::DidDocument));
    RandomWrites::new(353).write_to(&rig.world, &did).unwrap();
    rig.settled().await;
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    assert_eq!(follow.gaps.get("identity_outage"), Some(&1), "{follow:?}");
    assert_ne!(rig.backfiller.job(&did).await.unwrap().unwrap().state, JobState::Complete, "the repo looks current");
    assert!(rig.network.faults().fired(rule) >= 1);
    rig.network.faults().heal(rule);
    let healed = async {
        while rig.backfiller.backfill_repo(&did).await.unwrap().state != JobState::Complete {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, healed).await.expect("never complete again");
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

/// A rig whose one repo is in the middle of its first checkout: the export is made, and held back until the gate opens.
async fn held(seed: u64) -> (Rig, Did, Gate) {
    let world = World::builder().seed(seed).hosts(1).repos(1).sizes(Sizes::Each(300));
    let rig = Rig::following(world, NetworkOptions::default(), Following::default(), Arc::new(MemoryStore::new())).await;
    let did = rig.world.dids().remove(0);
    let gate = Gate::new();
    rig.network.faults().inject(Rule::new(Fault::Hold(Position::Byte(20_000), gate.clone())).times(1));
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    rig.backfiller.start().await.unwrap();
    tokio::time::timeout(LIMIT, gate.reached(1)).await.expect("the checkout never began");
    (rig, did, gate)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_during_a_checkout_is_not_settled_below() {
    let (rig, did, gate) = held(360).await;
    // The commit itself is never told, only where the repo is now.
    let untold = rig.network.faults().inject(Rule::new(EventFault::Drop).relay(0).times(1));
    RandomWrites::new(361).write_to(&rig.world, &did).unwrap();
    rig.world.announce(&did);
    rig.settled().await;
    gate.open();
    rig.idle().await;
    assert_eq!(rig.network.faults().fired(untold), 1);
    rig.assert_truth().await;
    assert!(rig.checkouts() >= 2, "it settled with the first");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_goes_during_its_checkout_is_gone_after_it() {
    let (rig, did, gate) = held(362).await;
    rig.world.set_status(&did, AccountStatus::Takendown);
    rig.settled().await;
    gate.open();
    rig.idle().await;
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Unavailable { status: UnavailableStatus::Takendown });
    rig.until(|progress| progress.counts.accounts_told == 1).await;
    assert_eq!(rig.copy.repo(&did).account, Some(Account::Unavailable(UnavailableStatus::Takendown)));
    rig.world.set_status(&did, AccountStatus::Active);
    rig.caught_up().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_hangs_for_many_holds_up_nobody_else() {
    let world = World::builder().seed(370).hosts(2).repos(90).sizes(Sizes::Total(900));
    let rig = Rig::copied(world, NetworkOptions::default(), Following::default()).await;
    let dids = rig.world.dids();
    let rules: Vec<_> = dids[..80]
        .iter()
        .map(|did| rig.network.faults().inject(Rule::new(Fault::Late(Duration::from_secs(600))).endpoint(Endpoint::DidDocument).did(did)))
        .collect();
    dids[..80].iter().for_each(|did| rig.world.set_handle(did, "other.test"));
    let mut writes = RandomWrites::new(371);
    dids.iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
    rig.up_to_date(&dids[80..]).await;
    assert!(rules.iter().any(|rule| rig.network.faults().fired(*rule) > 0), "nothing hung");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_repo_that_crowds_only_what_a_checkout_makes_up_for_is_dropped() {
    let mut following = Following { hosts: vec![0], ..Following::default() };
    following.follow.repo_pending_bytes = 30_000;
    let world = World::builder().seed(375).hosts(1).repos(1).sizes(Sizes::Each(200));
    let rig = Rig::copied(world, NetworkOptions::default(), following).await;
    let did = rig.world.dids().remove(0);
    // A relay would tell no commits of an account that is not active; its host does.
    rig.world.set_status(&did, AccountStatus::Deactivated);
    rig.settled().await;
    rig.idle().await;
    assert_eq!(rig.copy.repo(&did).account, Some(Account::Unavailable(UnavailableStatus::Deactivated)));
    let gate = Gate::new();
    let hanging = Fault::Hold(Position::Byte(0), gate.clone());
    rig.network.faults().inject(Rule::new(hanging).endpoint(Endpoint::DidDocument).did(&did).times(1));
    rig.world.set_handle(&did, "other.test");
    let mut writes = RandomWrites::new(376);
    writes.write_to(&rig.world, &did).unwrap();
    tokio::time::timeout(LIMIT, gate.reached(1)).await.expect("the identity was not looked up");
    // That it is active again comes in the middle of what is too much.
    (0..20).for_each(|_| _ = writes.write_to(&rig.world, &did).unwrap());
    rig.world.set_status(&did, AccountStatus::Active);
    (0..20).for_each(|_| _ = writes.write_to(&rig.world, &did).unwrap());
    let head = rig.network.host_head(0);
    rig.until(|progress| progress.follow.as_ref().unwrap().upstreams[0].last.is_some_and(|last| last.seq.get() >= head)).await;
    gate.open();
    rig.settled().await;
    rig.idle().await;
    let follow = rig.backfiller.progress().await.unwrap().follow.unwrap();
    assert!(follow.gaps.get("crowded") >= Some(&1), "nothing was dropped: {follow:?}");
    assert_eq!(rig.copy.repo(&did).account, Some(Account::Active));
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_hangs_has_its_repos_buffered_and_the_firehose_read() {
    let options = Options { handler_timeout: Duration::from_secs(2), ..Options::default() };
    let following = Following { options, ..Following::default() };
    let rig = followed(380, NetworkOptions::default(), following).await;
    let checkouts = rig.checkouts();
    rig.handler.inject(HandlerFault::Hold(Gate::new()), u64::MAX);
    let mut writes = RandomWrites::new(381);
    for _ in 0..200 {
        writes.write(&rig.world).unwrap();
    }
    rig.settled().await;
    let progress = rig.backfiller.progress().await.unwrap();
    assert!(progress.totals.buffered_op_sets > 100, "{progress:?}");
    assert_eq!(progress.follow.unwrap().upstreams[0].in_flight, 0);
    rig.handler.heal();
    rig.idle().await;
    // What hung was taken and comes again, which the copy would take for a violation.
    rig.copy.take_violations();
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_says_nothing_about_accounts_of_others() {
    let world = World::builder().seed(390).hosts(2).repos(8).sizes(Sizes::Total(800));
    let following = Following { hosts: vec![0, 1], ..Following::default() };
    let rig = Rig::copied(world, NetworkOptions::default(), following).await;
    let did = rig.world.dids().into_iter().find(|did| rig.world.host_of(did) == Some(0)).unwrap();
    let rule = rig.network.faults().inject(Rule::new(EventFault::AlsoAt(1)).host(0).did(&did).times(1));
    RandomWrites::new(391).write_to(&rig.world, &did).unwrap();
    // A move leaves the old host saying that the account is deactivated.
    let moved = rig.world.dids().into_iter().find(|other| rig.world.host_of(other) == Some(0) && *other != did).unwrap();
    rig.world.migrate(&moved, 1).unwrap();
    RandomWrites::new(392).write_to(&rig.world, &moved).unwrap();
    let heads = [rig.network.host_head(0), rig.network.host_head(1)];
    rig.until(|progress| {
        let upstreams = &progress.follow.as_ref().unwrap().upstreams;
        upstreams.iter().zip(heads).all(|(upstream, head)| upstream.settled.is_some_and(|settled| settled.seq.get() >= head))
    })
    .await;
    rig.idle().await;
    assert_eq!(rig.network.faults().fired(rule), 1);
    rig.assert_truth().await;
    let progress = rig.backfiller.progress().await.unwrap();
    assert!(progress.follow.unwrap().dropped.get("host") >= Some(&1), "nothing was dropped for its host");
    assert_eq!(progress.totals.complete, 8);
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_before_sync_1_1_are_followed_by_since() {
    let hosts = atproto_backfill::sim::HostOptions { legacy: true, ..Default::default() };
    let rig = followed(395, NetworkOptions { hosts, ..NetworkOptions::default() }, Following::default()).await;
    let checkouts = rig.checkouts();
    let mut writes = RandomWrites::new(396);
    for _ in 0..60 {
        writes.write(&rig.world).unwrap();
    }
    rig.caught_up().await;
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    let rule = rig.network.faults().inject(Rule::new(EventFault::Drop).relay(0).times(1));
    write_to_all(&rig, 397);
    write_to_all(&rig, 398);
    rig.caught_up().await;
    assert_eq!(rig.network.faults().fired(rule), 1);
    rig.assert_truth().await;
    assert!(rig.checkouts() > checkouts, "a commit that was missed was not noticed");
    rig.backfiller.stop().await.unwrap();
}
