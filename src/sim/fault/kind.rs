use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;

use super::{EventFault, Gate, StreamFault};

use crate::sim::AccountStatus;
use crate::sim::net::{Endpoint, Request};
use crate::syntax::Did;

/// One way in which an answer goes wrong.
///
/// A fault of what an export holds, or a document, changes nothing in an answer that has none; its count says that it struck all the same.
#[derive(Clone)]
pub enum Fault {
    /// 429, with or without word on when to come back.
    TooManyRequests(RetryHint),
    /// 503, with `Retry-After` in seconds where given.
    ServiceUnavailable(Option<Duration>),
    /// This status with an XRPC error of this name: `(500, "InternalServerError")`, `(403, "Forbidden")`, `(400, "InvalidRequest")`.
    Status(u16, &'static str),
    /// This status with a page for people instead of an XRPC error.
    StatusPage(u16),
    /// 200 with a page for people instead of what was asked for.
    Html,
    /// 200 with no body at all.
    EmptyBody,
    /// The answer begins only after this long: longer than the client's patience is a host that hangs.
    Late(Duration),
    /// The body stops at a position for this long, then goes on.
    Stall(Position, Duration),
    /// The body stops at a position until the gate opens.
    Hold(Position, Gate),
    /// The body is sent in pieces of this many bytes, with this pause between: alive, but slow.
    Trickle(usize, Duration),
    /// The body ends at a position.
    Cut(Position, Ending),
    /// The connection is reset before an answer.
    Reset,
    /// The lowest bit of this byte of the body is flipped (counted from the start; beyond the end, modulo the length).
    FlipByte(u64),
    /// These bytes follow after the body.
    TrailingBytes(Vec<u8>),
    /// A redirect (302) to the host of this number, whether or not it has the repo.
    RedirectToHost(usize),
    /// A redirect to this URL.
    RedirectTo(String),
    /// 200 with these bytes in place of the CAR: a damaged one, for example.
    OtherBody(Bytes),
    /// A CAR of header only, as the reference implementation answers when nothing is newer than `since`.
    HeaderOnlyCar,
    /// The CAR of another account (if there is no such: a header only).
    OtherRepo(Did),
    /// The repo as it was when last remembered ([`crate::sim::World::remember`]), or when the world was made: a replica that lags.
    StaleReplica,
    /// One block is left out of the CAR.
    MissingBlock(Missing),
    /// The commit is signed with a key that is not the account's.
    WrongKey,
    /// Commits go on while the export is read, as when the reference implementation pages through its blocks outside a transaction: this
    /// many are made after the root was read, and the blocks that they remove are not sent.
    TornExport(usize),
    /// The account is in this state for this answer only, with status code and error name of the host's flavour.
    Account(AccountStatus),
    /// The directory: not registered (404).
    DidNotFound,
    /// The directory: tombstoned (410).
    DidTombstoned,
    /// The document names no signing key.
    DocumentWithoutKey,
    /// The document names no PDS.
    DocumentWithoutPds,
    /// The document is that of another account.
    OtherDocument(Did),
    /// A firehose tells an event wrongly.
    Event(EventFault),
    /// A connection to a firehose goes wrong.
    Stream(StreamFault),
    /// An answer of your own making, in place of the true one.
    Custom(Arc<dyn Fn(&Request) -> Response + Send + Sync>),
}

impl Fault {
    /// Where the fault is at home: a rule applies to this endpoint unless it names another.
    pub fn endpoint(&self) -> Endpoint {
        match self {
            Fault::DidNotFound | Fault::DidTombstoned | Fault::DocumentWithoutKey | Fault::DocumentWithoutPds | Fault::OtherDocument(_) => {
                Endpoint::DidDocument
            }
            Fault::Event(_) | Fault::Stream(_) => Endpoint::SubscribeRepos,
            Fault::TooManyRequests(_)
            | Fault::ServiceUnavailable(_)
            | Fault::Status(..)
            | Fault::StatusPage(_)
            | Fault::Html
            | Fault::EmptyBody
            | Fault::Late(_)
            | Fault::Stall(..)
            | Fault::Hold(..)
            | Fault::Trickle(..)
            | Fault::Cut(..)
            | Fault::Reset
            | Fault::FlipByte(_)
            | Fault::TrailingBytes(_)
            | Fault::RedirectToHost(_)
            | Fault::RedirectTo(_)
            | Fault::OtherBody(_)
            | Fault::HeaderOnlyCar
            | Fault::OtherRepo(_)
            | Fault::StaleReplica
            | Fault::MissingBlock(_)
            | Fault::WrongKey
            | Fault::TornExport(_)
            | Fault::Account(_)
            | Fault::Custom(_) => Endpoint::GetRepo,
        }
    }

    /// What the fault strikes.
    pub(super) fn stage(&self) -> Stage {
        match self {
            Fault::Event(_) => Stage::Sequencing,
            Fault::Stream(fault) if !fault.at_open() => Stage::Sending,
            _ => Stage::Request,
        }
    }

    /// Whether a compressed body is compressed all the same. What is no export is sent as it is.
    pub(in crate::sim) fn keeps_encoding(&self) -> bool {
        !matches!(self, Fault::Html | Fault::EmptyBody | Fault::OtherBody(_))
    }
}

impl From<EventFault> for Fault {
    fn from(fault: EventFault) -> Self {
        Fault::Event(fault)
    }
}

impl From<StreamFault> for Fault {
    fn from(fault: StreamFault) -> Self {
        Fault::Stream(fault)
    }
}

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) enum Stage {
    /// A request, an upgrade to a WebSocket included.
    Request,
    /// An event that an upstream sequences.
    Sequencing,
    /// An event that a connection is sent.
    Sending,
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TooManyRequests(hint) => write!(f, "TooManyRequests({hint:?})"),
            Fault::ServiceUnavailable(after) => write!(f, "ServiceUnavailable({after:?})"),
            Fault::Status(code, name) => write!(f, "Status({code}, {name})"),
            Fault::StatusPage(code) => write!(f, "StatusPage({code})"),
            Fault::Html => f.write_str("Html"),
            Fault::EmptyBody => f.write_str("EmptyBody"),
            Fault::Late(by) => write!(f, "Late({by:?})"),
            Fault::Stall(at, by) => write!(f, "Stall({at:?}, {by:?})"),
            Fault::Hold(at, _) => write!(f, "Hold({at:?})"),
            Fault::Trickle(bytes, pause) => write!(f, "Trickle({bytes}, {pause:?})"),
            Fault::Cut(at, ending) => write!(f, "Cut({at:?}, {ending:?})"),
            Fault::Reset => f.write_str("Reset"),
            Fault::FlipByte(at) => write!(f, "FlipByte({at})"),
            Fault::TrailingBytes(bytes) => write!(f, "TrailingBytes({} bytes)", bytes.len()),
            Fault::RedirectToHost(host) => write!(f, "RedirectToHost({host})"),
            Fault::RedirectTo(url) => write!(f, "RedirectTo({url})"),
            Fault::OtherBody(bytes) => write!(f, "OtherBody({} bytes)", bytes.len()),
            Fault::HeaderOnlyCar => f.write_str("HeaderOnlyCar"),
            Fault::OtherRepo(did) => write!(f, "OtherRepo({did})"),
            Fault::StaleReplica => f.write_str("StaleReplica"),
            Fault::MissingBlock(which) => write!(f, "MissingBlock({which:?})"),
            Fault::WrongKey => f.write_str("WrongKey"),
            Fault::TornExport(commits) => write!(f, "TornExport({commits})"),
            Fault::Account(status) => write!(f, "Account({status:?})"),
            Fault::DidNotFound => f.write_str("DidNotFound"),
            Fault::DidTombstoned => f.write_str("DidTombstoned"),
            Fault::DocumentWithoutKey => f.write_str("DocumentWithoutKey"),
            Fault::DocumentWithoutPds => f.write_str("DocumentWithoutPds"),
            Fault::OtherDocument(did) => write!(f, "OtherDocument({did})"),
            Fault::Event(fault) => fault.fmt(f),
            Fault::Stream(fault) => fault.fmt(f),
            Fault::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// How a 429 says when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryHint {
    /// `Retry-After` in whole seconds.
    Seconds(Duration),
    /// `Retry-After` as an HTTP date this far in the future.
    Date(Duration),
    /// `RateLimit-Reset` as Unix seconds this far in the future, with `RateLimit-Limit`, `-Remaining: 0` and `-Policy`, as the reference
    /// implementation sends it (which adds `Retry-After`; here it is left out, so that the header is what counts).
    ResetAt(Duration),
    /// `RateLimit-Reset` as seconds from now, as the newer drafts of the header have it.
    ResetIn(Duration),
    /// Nothing, and a page for people: as the outer layer of a large host answers.
    None,
}

/// A place in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// After this many bytes.
    Byte(u64),
    /// After the header and this many whole blocks of a CAR.
    Block(u64),
    /// This many bytes before the end.
    BeforeEnd(u64),
}

/// How a body that was cut ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As if it were whole: only what is missing from it shows the cut.
    Clean,
    /// The connection is closed without the last chunk.
    Close,
    /// The connection is reset.
    Reset,
}

/// A block to leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The signed commit.
    Commit,
    /// The root of the tree.
    Root,
    /// A node other than the root (of a repo of one node: the root).
    Node,
    /// The record of the first path (of a repo without records: the root).
    Record,
}
