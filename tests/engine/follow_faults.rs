//! Every way in which a firehose goes wrong: each test proves that its fault struck, and that the consumer holds the truth all the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atproto_backfill::engine::Options;
use atproto_backfill::job::{Account, JobState, UnavailableStatus};
use atproto_backfill::sim::{
    AccountStatus, Ending, Endpoint, EventFault, Fault, FirehoseOptions, Gate, Missing, NetworkOptions, Position, RandomWrites, RetryHint,
    Rule, Sizes, StreamFault, World,
};
use atproto_backfill::store::{MemoryStore, Store};
use bytes::Bytes;

use crate::rig::{Following, Rig};

/// What a fault costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// No repo is fetched again.
    Nothing,
    /// A repo is fetched again.
    Checkout,
    /// Either: it depends on what the event held.
    Any,
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

async fn followed(seed: u64, network: NetworkOptions, following: Following) -> Rig {
    let world = World::builder().seed(seed).hosts(2).repos(8).sizes(Sizes::Total(1_200));
    let rig = Rig::following(world, network, following, memory()).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    // Every host has proven where its commits start, and every cursor is known.
    write_to_all(&rig, seed);
    rig.caught_up().await;
    rig
}

/// One commit in every repo: whatever was missed before shows at the latest then.
fn write_to_all(rig: &Rig, seed: u64) {
    let mut writes = RandomWrites::new(seed);
    for did in rig.world.dids() {
        writes.write_to(&rig.world, &did).unwrap();
    }
}

/// An upstream tells one event wrongly. `reason`: what the program says of it, among what it dropped or what it lost.
async fn told_wrongly(seed: u64, fault: EventFault, reason: Option<&str>, cost: Cost) {
    let rig = followed(seed, NetworkOptions::default(), Following::default()).await;
    let checkouts = rig.checkouts();
    let rule = rig.network.faults().inject(Rule::new(fault).relay(0).after(5).times(1));
    let mut writes = RandomWrites::new(seed + 1);
    for _ in 0..40 {
        writes.write(&rig.world).unwrap();
    }
    write_to_all(&rig, seed + 2);
    rig.caught_up().await;
    assert_eq!(rig.network.faults().fired(rule), 1, "the fault did not strike");
    rig.assert_truth().await;
    let progress = rig.backfiller.progress().await.unwrap();
    let follow = progress.follow.clone().unwrap();
    if let Some(reason) = reason {
        let told = follow.dropped.get(reason).or(follow.gaps.get(reason)).copied();
        let malformed = (reason == "malformed").then_some(progress.counts.events_malformed).filter(|count| *count > 0);
        assert!(told.or(malformed) >= Some(1), "nothing was said of {reason}: {follow:?}");
    }
    match cost {
        Cost::Nothing => assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again: {follow:?}"),
        Cost::Checkout => assert!(rig.checkouts() > checkouts, "no repo was fetched again"),
        Cost::Any => {}
    }
    assert_eq!(progress.totals.complete, 8, "{progress:?}");
    rig.backfiller.stop().await.unwrap();
}

macro_rules! events_told_wrongly {
    ($($name:ident: $seed:literal, $fault:expr, $reason:expr, $cost:expr;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            told_wrongly($seed, $fault, $reason, $cost).await;
        }
    )+};
}

events_told_wrongly! {
    a_commit_that_is_not_told_is_a_gap: 201, EventFault::Drop, None, Cost::Checkout;
    commits_told_in_the_wrong_order_are_a_gap: 202, EventFault::Swap, None, Cost::Checkout;
    a_commit_told_twice_counts_once: 203, EventFault::Twice, None, Cost::Nothing;
    a_commit_signed_by_somebody_else_is_dropped: 204, EventFault::WrongKey, Some("signature"), Cost::Checkout;
    a_commit_of_a_tree_that_nobody_has_is_not_applied: 205, EventFault::OtherData, None, Cost::Checkout;
    a_commit_from_the_future_is_dropped: 206, EventFault::FutureRev(Duration::from_secs(600)), Some("future"), Cost::Checkout;
    a_commit_without_its_record_is_a_gap: 207, EventFault::Without(Missing::Record), None, Cost::Any;
    a_commit_without_a_node_is_a_gap: 208, EventFault::Without(Missing::Node), Some("insufficient"), Cost::Checkout;
    a_commit_without_the_commit_is_a_gap: 209, EventFault::Without(Missing::Commit), Some("missing_commit"), Cost::Checkout;
    a_block_with_another_hash_has_its_commit_dropped: 210, EventFault::WrongHash(Missing::Commit), Some("hash"), Cost::Checkout;
    a_commit_without_blocks_is_a_gap: 211, EventFault::NoBlocks, Some("no_blocks"), Cost::Checkout;
    a_commit_that_was_too_big_is_a_gap: 212, EventFault::TooBig, Some("too_big"), Cost::Checkout;
    a_commit_that_does_not_start_where_it_says_is_dropped: 213, EventFault::WrongPrevData, Some("prev_data"), Cost::Checkout;
    a_host_that_proves_where_commits_start_has_to_go_on: 214, EventFault::NoPrevData, Some("unproven_start"), Cost::Checkout;
    an_op_that_the_tree_contradicts_has_its_commit_dropped: 215, EventFault::WrongCid, None, Cost::Any;
    another_since_does_not_matter_where_the_start_is_proven: 216, EventFault::WrongSince, None, Cost::Nothing;
    ops_that_the_commit_did_not_make_have_it_dropped: 217, EventFault::MoreOps(5), None, Cost::Checkout;
    more_ops_than_allowed_have_the_commit_dropped: 218, EventFault::MoreOps(300), Some("malformed"), Cost::Checkout;
    more_blocks_than_allowed_have_the_commit_dropped: 219, EventFault::Padded(2_100_000), Some("malformed"), Cost::Checkout;
    an_unrelated_block_does_no_harm: 220, EventFault::Padded(1_000), None, Cost::Nothing;
    other_data_without_the_way_there_is_a_gap: 221, EventFault::AsSync, None, Cost::Checkout;
    a_commit_told_of_another_account_is_dropped: 222, EventFault::OtherAccount("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap()), None, Cost::Checkout;
    an_event_without_a_field_is_dropped: 223, EventFault::WithoutField("rev"), Some("malformed"), Cost::Checkout;
    an_event_of_an_unknown_kind_is_passed_over: 224, EventFault::UnknownFirst, None, Cost::Nothing;
    a_storm_of_account_events_ends_where_the_account_is: 225, EventFault::Storm(41), None, Cost::Any;
    a_sequence_that_begins_anew_and_soon_passes_the_cursor_loses_nothing: 226, EventFault::Restart, None, Cost::Any;
}

/// A connection goes wrong, at its 20th event or when the one after that event is opened.
async fn goes_wrong(seed: u64, fault: StreamFault, times: u64) {
    let mut following = Following::default();
    following.follow.client.ping_interval = Duration::from_millis(100);
    following.follow.client.silence = Duration::from_millis(400);
    let rig = followed(seed, NetworkOptions::default(), following).await;
    let checkouts = rig.checkouts();
    let at_open = matches!(
        fault,
        StreamFault::CloseAtOnce | StreamFault::Silence | StreamFault::NoPong | StreamFault::OldCursor(_) | StreamFault::IgnoreCursor
    );
    let faults = rig.network.faults();
    let rule = if at_open {
        let rule = faults.inject(Rule::new(fault).relay(0).times(times));
        faults.inject(Rule::new(StreamFault::Reset).relay(0).after(20).times(1));
        rule
    } else {
        faults.inject(Rule::new(fault).relay(0).after(20).times(times))
    };
    let mut writes = RandomWrites::new(seed + 1);
    for _ in 0..60 {
        writes.write(&rig.world).unwrap();
    }
    rig.caught_up().await;
    assert_eq!(faults.fired(rule), times, "the fault did not strike");
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

macro_rules! connections_that_go_wrong {
    ($($name:ident: $seed:literal, $fault:expr, $times:literal;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            goes_wrong($seed, $fault, $times).await;
        }
    )+};
}

connections_that_go_wrong! {
    an_event_sent_twice_counts_once: 301, StreamFault::Duplicate, 3;
    events_sent_once_more_count_once: 302, StreamFault::Replay(15), 2;
    a_connection_that_begins_earlier_repeats_nothing: 303, StreamFault::OldCursor(25), 1;
    a_connection_cut_in_a_frame_goes_on_behind_the_last_event: 304, StreamFault::CutMidFrame(Ending::Close), 2;
    a_connection_reset_in_a_frame_goes_on_behind_the_last_event: 305, StreamFault::CutMidFrame(Ending::Reset), 1;
    a_text_frame_ends_the_connection_and_no_more: 306, StreamFault::Text("hello".to_owned()), 1;
    bytes_that_are_no_frame_end_the_connection_and_no_more: 307, StreamFault::Binary(Bytes::from_static(b"\xff\x00nonsense")), 1;
    an_unknown_op_is_passed_over: 308, StreamFault::UnknownOp, 2;
    an_upstream_that_finds_us_slow_is_asked_again: 309, StreamFault::Error("ConsumerTooSlow"), 1;
    a_connection_that_is_closed_is_made_again: 310, StreamFault::Close(1008), 1;
    a_connection_that_is_reset_is_made_again: 311, StreamFault::Reset, 1;
    connections_that_close_at_once_are_made_again: 312, StreamFault::CloseAtOnce, 4;
    a_connection_that_is_silent_is_given_up: 313, StreamFault::Silence, 1;
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
    let others: Vec<_> = dids[1..].iter().map(|did| (did.clone(), rig.world.head(did).unwrap().0)).collect();
    let all_others = async {
        for (did, rev) in &others {
            while rig.backfiller.job(did).await.unwrap().unwrap().rev != Some(*rev) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(crate::rig::LIMIT, all_others).await.expect("one repo held up the others");
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
    rig.settled_up_to(rig.network.relay_head()).await;
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
    tokio::time::timeout(crate::rig::LIMIT, healed).await.expect("never complete again");
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_during_a_checkout_is_not_settled_below() {
    let world = World::builder().seed(360).hosts(1).repos(1).sizes(Sizes::Each(300));
    let rig = Rig::following(world, NetworkOptions::default(), Following::default(), memory()).await;
    let did = rig.world.dids().remove(0);
    let gate = Gate::new();
    let rule = rig.network.faults().inject(Rule::new(Fault::Hold(Position::BeforeEnd(40), gate.clone())).times(1));
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.until(|progress| progress.totals.in_progress == 1).await;
    let holding = async {
        // Once some of it has come, the export is made.
        while rig.network.faults().fired(rule) == 0 || rig.network.host(0).bytes() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::rig::LIMIT, holding).await.expect("the export was never asked for");
    // The commit itself is never told, only where the repo is now.
    let untold = rig.network.faults().inject(Rule::new(EventFault::Drop).relay(0).times(1));
    RandomWrites::new(361).write_to(&rig.world, &did).unwrap();
    rig.world.announce(&did);
    rig.settled_up_to(rig.network.relay_head()).await;
    gate.open();
    rig.idle().await;
    // On a busy machine the client may have lost patience with the export that was held.
    if rig.backfiller.job(&did).await.unwrap().unwrap().state != JobState::Complete {
        assert_eq!(rig.backfiller.backfill_repo(&did).await.unwrap().state, JobState::Complete);
    }
    assert_eq!(rig.network.faults().fired(untold), 1);
    rig.assert_truth().await;
    assert!(rig.checkouts() >= 2, "it settled with the first");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_goes_during_its_checkout_is_gone_after_it() {
    let world = World::builder().seed(362).hosts(1).repos(1).sizes(Sizes::Each(300));
    let rig = Rig::following(world, NetworkOptions::default(), Following::default(), memory()).await;
    let did = rig.world.dids().remove(0);
    let gate = Gate::new();
    let rule = rig.network.faults().inject(Rule::new(Fault::Hold(Position::BeforeEnd(40), gate.clone())).times(1));
    rig.backfiller.enqueue(std::slice::from_ref(&did)).await.unwrap();
    rig.backfiller.start().await.unwrap();
    let holding = async {
        // Once some of it has come, the export is made.
        while rig.network.faults().fired(rule) == 0 || rig.network.host(0).bytes() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::rig::LIMIT, holding).await.expect("the export was never asked for");
    rig.world.set_status(&did, AccountStatus::Takendown);
    rig.settled_up_to(rig.network.relay_head()).await;
    gate.open();
    rig.idle().await;
    let job = rig.backfiller.job(&did).await.unwrap().unwrap();
    assert_eq!(job.state, JobState::Unavailable { status: UnavailableStatus::Takendown });
    rig.until(|progress| progress.counts.accounts_told == 1).await;
    assert_eq!(rig.folder.repo(&did).account, Some(Account::Unavailable(UnavailableStatus::Takendown)));
    rig.world.set_status(&did, AccountStatus::Active);
    rig.caught_up().await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_hangs_for_many_holds_up_nobody_else() {
    let world = World::builder().seed(370).hosts(2).repos(90).sizes(Sizes::Total(900));
    let rig = Rig::following(world, NetworkOptions::default(), Following::default(), memory()).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    let dids = rig.world.dids();
    let rules: Vec<_> = dids[..80]
        .iter()
        .map(|did| rig.network.faults().inject(Rule::new(Fault::Late(Duration::from_secs(600))).endpoint(Endpoint::DidDocument).did(did)))
        .collect();
    dids[..80].iter().for_each(|did| rig.world.set_handle(did, "other.test"));
    let mut writes = RandomWrites::new(371);
    dids.iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
    let others = async {
        for did in &dids[80..] {
            while rig.backfiller.job(did).await.unwrap().unwrap().rev != Some(rig.world.head(did).unwrap().0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(crate::rig::LIMIT, others).await.expect("repos with a directory that answers are held up");
    assert!(rules.iter().any(|rule| rig.network.faults().fired(*rule) > 0), "nothing hung");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_hangs_has_its_repos_buffered_and_the_firehose_read() {
    let options = Options { handler_timeout: Duration::from_secs(2), ..Options::default() };
    let following = Following { options, ..Following::default() };
    let rig = followed(380, NetworkOptions::default(), following).await;
    let checkouts = rig.checkouts();
    rig.folder.hanging.store(true, Ordering::SeqCst);
    let mut writes = RandomWrites::new(381);
    for _ in 0..200 {
        writes.write(&rig.world).unwrap();
    }
    rig.settled_up_to(rig.network.relay_head()).await;
    let progress = rig.backfiller.progress().await.unwrap();
    assert!(progress.totals.buffered_op_sets > 100, "{progress:?}");
    assert_eq!(progress.follow.unwrap().upstreams[0].in_flight, 0);
    rig.folder.hanging.store(false, Ordering::SeqCst);
    rig.idle().await;
    // What hung was taken and comes again, which the folder would take for a fault.
    rig.folder.faults.lock().unwrap().clear();
    rig.assert_truth().await;
    assert_eq!(rig.checkouts(), checkouts, "a repo was fetched again");
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_says_nothing_about_accounts_of_others() {
    let rig = {
        let world = World::builder().seed(390).hosts(2).repos(8).sizes(Sizes::Total(800));
        let following = Following { hosts: vec![0, 1], ..Following::default() };
        let rig = Rig::following(world, NetworkOptions::default(), following, memory()).await;
        rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
        rig.backfiller.start().await.unwrap();
        rig.idle().await;
        rig
    };
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
