//! Every state of a job x every event, and every route of an op set, against tables written by hand.

use atproto_backfill::job::{
    Account, Chain, Epoch, FailureKind, IllegalMove, Job, JobEvent, JobId, JobState, OlderRev, OpSet, Position, Route, Timestamp,
    UnavailableStatus, chain, route,
};
use atproto_backfill::repo::Link;
use atproto_backfill::syntax::{Did, Rev};

const RETRY_AT: Timestamp = Timestamp(1_000);
const LATER: Timestamp = Timestamp(2_000);

fn states() -> [JobState; 5] {
    [
        JobState::Enqueued,
        JobState::InProgress,
        JobState::Complete,
        JobState::Failed { kind: FailureKind::Connect, attempt: 3, retry_at: RETRY_AT },
        JobState::Unavailable { status: UnavailableStatus::Deactivated },
    ]
}

fn events() -> [JobEvent; 9] {
    [
        JobEvent::Wanted,
        JobEvent::Claimed,
        JobEvent::Released,
        JobEvent::Abandoned,
        JobEvent::Finished,
        JobEvent::Failed { kind: FailureKind::Timeout, attempt: 4, retry_at: LATER },
        JobEvent::Older { older: OlderRev { rev: Rev::ZERO, confirmations: 1, since: RETRY_AT }, attempt: 4, retry_at: LATER },
        JobEvent::Gap,
        JobEvent::Unavailable { status: UnavailableStatus::Deleted },
    ]
}

/// The row of an event: what becomes of enqueued, in progress, complete, failed, unavailable. `-` is illegal.
///
/// A new event does not compile here until it has a row, and does not pass until it is in `events`.
fn row(event: &JobEvent) -> (usize, [&'static str; 5]) {
    match event {
        JobEvent::Wanted => (0, ["enqueued", "in_progress", "enqueued", "enqueued", "enqueued"]),
        JobEvent::Claimed => (1, ["in_progress", "-", "-", "in_progress", "-"]),
        JobEvent::Released => (2, ["-", "enqueued", "-", "-", "-"]),
        JobEvent::Abandoned => (3, ["-", "enqueued", "-", "-", "-"]),
        JobEvent::Finished => (4, ["-", "complete", "-", "-", "-"]),
        JobEvent::Failed { .. } => (5, ["-", "failed:timeout", "failed:timeout", "-", "-"]),
        JobEvent::Older { .. } => (6, ["-", "failed:stale", "-", "-", "-"]),
        JobEvent::Gap => (7, ["-", "enqueued", "enqueued", "-", "-"]),
        JobEvent::Unavailable { .. } => {
            (8, ["unavailable:deleted", "unavailable:deleted", "unavailable:deleted", "unavailable:deleted", "unavailable:deleted"])
        }
    }
}

fn column(state: &JobState) -> usize {
    match state {
        JobState::Enqueued => 0,
        JobState::InProgress => 1,
        JobState::Complete => 2,
        JobState::Failed { .. } => 3,
        JobState::Unavailable { .. } => 4,
    }
}

#[test]
fn every_event_in_every_state_does_what_the_table_says() {
    for (number, event) in events().iter().enumerate() {
        let (place, expected) = row(event);
        assert_eq!(place, number, "events() misses one before {event:?}");
        for (place, state) in states().iter().enumerate() {
            assert_eq!(column(state), place, "states() misses one before {state:?}");
            let got = state.on(event);
            match expected[place] {
                "-" => assert_eq!(got, Err(IllegalMove { state: state.clone(), event: event.clone() })),
                text => assert_eq!(got, JobState::from_text(text, 4, LATER).map_err(|error| panic!("{error}")), "{event:?} on {state:?}"),
            }
        }
    }
}

fn rev(n: u64) -> Rev {
    Rev::from_parts(n, 0)
}

fn root(n: u8) -> Link {
    Link::from_digest([n; 32])
}

fn op_set(to: u64, since: Option<u64>, prev_data: Option<u8>) -> OpSet {
    let did = Did::new("did:plc:ewvi7nxzyoun6zhxrhs64oiz").unwrap();
    OpSet { did, rev: rev(to), since: since.map(rev), data: Some(root(99)), prev_data: prev_data.map(root), ops: Vec::new() }
}

fn at(n: u64, data: Option<u8>) -> Option<Position> {
    Some(Position { rev: rev(n), data: data.map(root) })
}

/// The job stands at rev 10, root 1 (or unknown). Columns: rev, since, proven prev_data.
type Case = (u64, Option<u64>, Option<u8>, Chain, Chain);
const CHAINS: [Case; 18] = [
    // rev, since, prev_data                root known       root not known
    (9, Some(8), Some(1), Chain::Stale, Chain::Stale),
    (9, None, None, Chain::Stale, Chain::Stale),
    (10, Some(9), Some(1), Chain::Stale, Chain::Stale),
    (10, Some(10), Some(1), Chain::Stale, Chain::Stale),
    (10, None, None, Chain::Stale, Chain::Stale),
    (11, Some(10), Some(1), Chain::Apply, Chain::Apply),
    (11, Some(10), None, Chain::Apply, Chain::Apply),
    // An equal root is an equal repo, whatever `since` says.
    (11, Some(9), Some(1), Chain::Apply, Chain::Gap),
    (11, None, Some(1), Chain::Apply, Chain::Gap),
    (15, Some(14), Some(1), Chain::Apply, Chain::Gap),
    // Another root is another repo, whatever `since` says.
    (11, Some(10), Some(2), Chain::Gap, Chain::Apply),
    (11, Some(9), Some(2), Chain::Gap, Chain::Gap),
    (15, Some(14), Some(2), Chain::Gap, Chain::Gap),
    (11, None, Some(2), Chain::Gap, Chain::Gap),
    (15, Some(14), None, Chain::Gap, Chain::Gap),
    (11, Some(9), None, Chain::Gap, Chain::Gap),
    (11, Some(11), None, Chain::Gap, Chain::Gap),
    // A first commit, or one whose ops are missing.
    (11, None, None, Chain::Gap, Chain::Gap),
];

#[test]
fn an_op_set_chains_by_its_proven_root_and_else_by_since() {
    for (to, since, prev_data, known, unknown) in CHAINS {
        let op_set = op_set(to, since, prev_data);
        assert_eq!(chain(at(10, Some(1)), &op_set), known, "at a known root: {op_set:?}");
        assert_eq!(chain(at(10, None), &op_set), unknown, "at an unknown root: {op_set:?}");
        assert_eq!(chain(None, &op_set), Chain::Gap, "before any checkout: {op_set:?}");
    }
}

#[test]
fn every_state_routes_every_op_set_as_the_table_says() {
    for (to, since, prev_data, known, unknown) in CHAINS {
        let op_set = op_set(to, since, prev_data);
        for (data, chained) in [(Some(1), known), (None, unknown)] {
            // The buffer's end decides where there is one; what is behind it then plays no part.
            for (stands, tail) in [(at(10, data), None), (at(3, Some(7)), at(10, data)), (None, at(10, data))] {
                for state in states() {
                    let expected = match (column(&state), chained) {
                        (0 | 3, _) => Route::Discarded,
                        (4, _) => Route::Unavailable,
                        (1 | 2, Chain::Stale) => Route::Stale,
                        (1, _) => Route::Buffered { complete: false },
                        (2, Chain::Apply) => Route::Buffered { complete: true },
                        (2, Chain::Gap) => Route::Gap,
                        (column, _) => panic!("no column {column}"),
                    };
                    assert_eq!(route(&state, stands, tail, &op_set), expected, "{state:?} at {stands:?}, tail {tail:?}: {op_set:?}");
                }
            }
        }
    }
}

#[test]
fn during_a_first_checkout_every_op_set_is_buffered() {
    for (to, since, prev_data, ..) in CHAINS {
        let routed = route(&JobState::InProgress, None, None, &op_set(to, since, prev_data));
        assert_eq!(routed, Route::Buffered { complete: false });
    }
}

#[test]
fn a_sync_chains_where_the_tree_is_the_same_and_is_a_gap_elsewhere() {
    let sync = |to, data| OpSet { data: Some(root(data)), ..op_set(to, None, Some(data)) };
    assert_eq!(chain(at(10, Some(1)), &sync(12, 1)), Chain::Apply);
    assert_eq!(chain(at(10, Some(1)), &sync(12, 2)), Chain::Gap);
    assert_eq!(chain(at(10, Some(1)), &sync(10, 1)), Chain::Stale);
}

#[test]
fn a_job_stands_at_its_rev_and_its_root_and_is_judged_by_the_highest_rev_known() {
    let job = |rev, data, min_rev| Job {
        id: JobId(1),
        did: Did::new("did:web:table.example.com").unwrap(),
        state: JobState::Complete,
        epoch: Epoch(1),
        rev,
        data,
        min_rev,
        older: None,
        failures: 0,
        failure: String::new(),
        host: None,
        account: Account::Active,
        untold: Vec::new(),
        records: 0,
        buffered_op_sets: 0,
        buffered_bytes: 0,
    };
    let (rev, higher) = (Rev::from_parts(10, 0), Rev::from_parts(12, 0));
    assert_eq!(job(Some(rev), Some(root(1)), None).position(), at(10, Some(1)));
    assert_eq!(job(Some(rev), None, None).position(), at(10, None));
    assert_eq!(job(None, None, Some(rev)).position(), None);
    assert_eq!(job(None, None, None).known_rev(), None);
    for (reached, known) in [(None, Some(higher)), (Some(rev), Some(higher)), (Some(higher), Some(rev)), (Some(higher), None)] {
        assert_eq!(job(reached, None, known).known_rev(), Some(higher));
    }
}
