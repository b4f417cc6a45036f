//! Every way in which an upstream tells an event wrongly or a connection goes wrong, one test each: the fault struck, and the consumer holds the truth all the same.

use std::time::Duration;

use atproto_backfill::sim::{Ending, EventFault, FrameFn, Missing, NetworkOptions, RandomWrites, Rule, StreamFault};
use bytes::Bytes;

use crate::follow_faults::{followed, write_to_all};
use crate::rig::Following;

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
    an_error_frame_ends_the_connection_though_the_upstream_goes_on: 314, StreamFault::Frame(FrameFn::new(|_| ERROR.to_vec())), 1;
    a_sequence_number_far_beyond_all_others_blinds_nobody: 315, StreamFault::Frame(FrameFn::new(far_beyond)), 1;
}

/// `{"op": -1}{"error": "Oops"}`.
const ERROR: &[u8] = b"\xa1\x62op\x20\xa1\x65error\x64Oops";

/// The same event under the highest number that there is (2^53 - 1).
fn far_beyond(frame: &[u8]) -> Vec<u8> {
    let key = b"\x63seq";
    let number = frame.windows(key.len()).position(|window| window == key).expect("an event has a number") + key.len();
    // RFC 8949 §3: the low bits of the first byte tell how long the number is.
    let len = match frame[number] & 0x1f {
        short @ 24..=27 => 1 + (1 << (short - 24)),
        _ => 1,
    };
    [&frame[..number], b"\x1b", &((1u64 << 53) - 1).to_be_bytes(), &frame[number + len..]].concat()
}
