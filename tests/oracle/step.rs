//! What can happen, as data: a schedule is a list of these, from which any may be left out.

use std::time::Duration;

use atproto_backfill::sim::{AccountStatus, Ending, EventFault, Fault, Missing, Position, RetryHint, StreamFault};
use atproto_backfill::syntax::Did;
use serde::{Deserialize, Serialize};

/// Repos, hosts and places are numbers, modulo how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Commits to a repo; the writes go by the seed.
    Write {
        repo: usize,
        commits: u8,
        seed: u64,
    },
    /// Deletes records of a repo, each so-manieth.
    DeleteMany {
        repo: usize,
        each: usize,
    },
    /// The account is in this state now: active, deactivated, taken down, suspended, deleted.
    Status {
        repo: usize,
        status: u8,
    },
    /// Another handle, another key, another host with another key.
    Handle {
        repo: usize,
    },
    RotateKey {
        repo: usize,
    },
    Migrate {
        repo: usize,
        host: usize,
    },
    /// The host remembers the repo, for its stale replica and as a backup.
    Remember {
        repo: usize,
    },
    /// The host has lost what came after its backup of a repo, and has the repo as it was then. The application has it fetched.
    Restore {
        repo: usize,
    },
    /// A new account, which is followed.
    AddAccount {
        host: usize,
    },
    /// The next answer about a repo goes wrong in one of [`ANSWERS`] ways.
    Answer {
        repo: usize,
        way: usize,
        at: u64,
    },
    /// The next commit of a repo is told wrongly in one of [`EVENTS`] ways.
    Event {
        repo: usize,
        way: usize,
    },
    /// The connection to the firehose goes wrong in one of [`STREAMS`] ways.
    Stream {
        way: usize,
    },
    /// The relay's sequence begins anew.
    RestartSequence,
    /// Ports are shut and opened again.
    RelayDown,
    RelayUp,
    HostDown {
        host: usize,
    },
    HostUp {
        host: usize,
    },
    /// The directory answers 500, or as it should.
    DirectoryDown,
    DirectoryUp,
    /// The handler fails, or panics, so many times.
    HandlerFails {
        times: usize,
        panics: bool,
    },
    /// What an application does.
    Purge {
        repo: usize,
    },
    Want {
        repo: usize,
    },
    Audit,
    /// The program stops in order, and starts again after so many commits.
    Restart {
        commits: u8,
    },
    /// The program dies at a place, come to so many times, or a moment later; and starts again after so many commits.
    Crash {
        place: usize,
        times: u64,
        commits: u8,
    },
    /// The program has so many milliseconds to itself.
    Run {
        ms: u64,
    },
    /// The clock of the machine is set, so many hours from the right time.
    Clock {
        hours: i8,
    },
    /// So many seconds pass in a moment, as when a machine was asleep.
    Pass {
        seconds: u64,
    },
}

/// How many ways an answer can go wrong.
pub(crate) const ANSWERS: usize = 38;
/// How many ways an event can be told wrongly.
pub(crate) const EVENTS: usize = 19;
/// Those in which an event says by itself that something is missing, so that the repo is checked out without another event.
pub(crate) const GAPS: [usize; 3] = [8, 10, 11];
/// How many ways a connection to a firehose can go wrong.
pub(crate) const STREAMS: usize = 14;

/// The way of an answer; `other` is another account than the one it is about.
pub(crate) fn answer(way: usize, at: u64, other: Did) -> Fault {
    let (byte, block, short) = (Position::Byte(at % 20_000), Position::Block(at % 90), Duration::from_millis(40));
    match way % ANSWERS {
        0 => Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(1 + at % 9))),
        1 => Fault::TooManyRequests(RetryHint::Date(Duration::from_secs(3))),
        2 => Fault::TooManyRequests(RetryHint::ResetAt(Duration::from_secs(3))),
        3 => Fault::TooManyRequests(RetryHint::ResetIn(Duration::from_secs(3))),
        4 => Fault::TooManyRequests(RetryHint::None),
        5 => Fault::ServiceUnavailable(Some(Duration::from_secs(2))),
        6 => Fault::ServiceUnavailable(None),
        7 => Fault::Status(500, "InternalServerError"),
        8 => Fault::Status(400, "InvalidRequest"),
        9 => Fault::StatusPage(502),
        10 => Fault::Html,
        11 => Fault::EmptyBody,
        12 => Fault::Late(short),
        13 => Fault::Stall(block, short),
        14 => Fault::Trickle(1_000, Duration::from_millis(2)),
        15 => Fault::Cut(byte, Ending::Clean),
        16 => Fault::Cut(byte, Ending::Close),
        17 => Fault::Cut(byte, Ending::Reset),
        18 => Fault::Cut(block, Ending::Clean),
        19 => Fault::Cut(block, Ending::Reset),
        20 => Fault::Reset,
        21 => Fault::FlipByte(at),
        22 => Fault::TrailingBytes(vec![7; 40]),
        23 => Fault::RedirectToHost((at % 7) as usize),
        24 => Fault::OtherBody(vec![1, 2, 3].into()),
        25 => Fault::HeaderOnlyCar,
        26 => Fault::OtherRepo(other),
        27 => Fault::StaleReplica,
        28 => Fault::MissingBlock([Missing::Commit, Missing::Root, Missing::Node, Missing::Record][at as usize % 4]),
        29 => Fault::WrongKey,
        30 => Fault::TornExport(1 + at as usize % 9),
        31 => Fault::Account(AccountStatus::Deactivated),
        32 => Fault::Account(AccountStatus::NotFound),
        33 => Fault::DidNotFound,
        34 => Fault::DidTombstoned,
        35 => Fault::DocumentWithoutKey,
        36 => Fault::DocumentWithoutPds,
        _ => Fault::OtherDocument(other),
    }
}

/// The way of an event.
pub(crate) fn event(way: usize, other: Did) -> EventFault {
    match way % EVENTS {
        0 => EventFault::Drop,
        1 => EventFault::Swap,
        2 => EventFault::Twice,
        3 => EventFault::Storm(3),
        4 => EventFault::UnknownFirst,
        5 => EventFault::WrongKey,
        6 => EventFault::OtherData,
        7 => EventFault::FutureRev(Duration::from_secs(86_400)),
        8 => EventFault::Without(Missing::Record),
        9 => EventFault::WrongHash(Missing::Node),
        10 => EventFault::NoBlocks,
        11 => EventFault::TooBig,
        12 => EventFault::WrongPrevData,
        13 => EventFault::NoPrevData,
        14 => EventFault::WrongCid,
        15 => EventFault::WrongSince,
        16 => EventFault::AsSync,
        17 => EventFault::OtherAccount(other),
        _ => EventFault::WithoutField("ops"),
    }
}

/// The way of a connection, and whether what it hides may be found by an audit alone.
pub(crate) fn stream(way: usize) -> (StreamFault, bool) {
    let fault = match way % STREAMS {
        0 => StreamFault::CloseAtOnce,
        1 => StreamFault::Silence,
        2 => StreamFault::NoPong,
        3 => StreamFault::OldCursor(20),
        4 => return (StreamFault::IgnoreCursor, true),
        5 => StreamFault::Duplicate,
        6 => StreamFault::Replay(10),
        7 => StreamFault::CutMidFrame(Ending::Reset),
        8 => StreamFault::Text("hello".to_owned()),
        9 => StreamFault::Binary(vec![0xff, 0, 1].into()),
        10 => StreamFault::UnknownOp,
        11 => StreamFault::Error("ConsumerTooSlow"),
        12 => StreamFault::Close(1011),
        _ => StreamFault::Reset,
    };
    (fault, false)
}

/// The state of an account.
pub(crate) fn status(status: u8) -> AccountStatus {
    match status % 8 {
        0..4 => AccountStatus::Active,
        4 => AccountStatus::Deactivated,
        5 => AccountStatus::Takendown,
        6 => AccountStatus::Suspended,
        _ => AccountStatus::Deleted,
    }
}
