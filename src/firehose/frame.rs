//! Frames of the event stream (atproto.com/specs/event-stream): two DAG-CBOR values, a header and a body. Pure, and without allocation.

use super::body;
use super::event::{AccountEvent, CommitEvent, IdentityEvent, SyncEvent};
use crate::repo::cbor::{Reader, Value};
use crate::syntax::Seq;

/// The longest frame, in bytes.
pub const MAX_FRAME: usize = 5_000_000;

/// What a frame holds, borrowed from its bytes.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// A repo was written to.
    Commit(CommitEvent<'a>),
    /// What a repo is now.
    Sync(SyncEvent<'a>),
    /// An identity may have changed.
    Identity(IdentityEvent<'a>),
    /// An account's status.
    Account(AccountEvent<'a>),
    /// A message about the stream itself, such as `OutdatedCursor`.
    Info {
        /// What it is about.
        name: &'a str,
        /// The same in words.
        message: Option<&'a str>,
    },
    /// The upstream ends the stream.
    Error {
        /// Why: `FutureCursor`, `ConsumerTooSlow` or some other word; empty when it gives none.
        name: &'a str,
        /// The same in words.
        message: Option<&'a str>,
    },
    /// A kind of frame that this program does not know, to be passed over.
    Unknown {
        /// Its number, where it has one.
        seq: Option<Seq>,
    },
    /// An event that does not have the form of its kind, to be dropped alone.
    Malformed(Malformed<'a>),
}

/// An event with a field that is missing, of the wrong type or over its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// Its number, if that is in order.
    pub seq: Option<Seq>,
    /// The account, if that is in order; not checked to be a DID.
    pub did: Option<&'a str>,
    /// The first field found not to be in order; `body` when the body is not a map.
    pub field: &'static str,
}

/// Why bytes are no frame. Nothing can be trusted of what comes behind them: the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// Longer than [`MAX_FRAME`].
    #[error("the frame has {0} bytes, more than {MAX_FRAME}")]
    TooLong(usize),
    /// The first value is not strict DAG-CBOR, not a map, or has no `op`, or a message has no `t`.
    #[error("the frame has no valid header")]
    Header,
    /// The second value is not strict DAG-CBOR, or is not there.
    #[error("the frame has no valid body")]
    Body,
    /// More follows the body.
    #[error("the frame has {0} bytes behind its body")]
    Trailing(usize),
}

impl<'a> Frame<'a> {
    /// The number of the event, where it has one.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Commit(event) => Some(event.seq),
            Self::Sync(event) => Some(event.seq),
            Self::Identity(event) => Some(event.seq),
            Self::Account(event) => Some(event.seq),
            Self::Unknown { seq } => *seq,
            Self::Malformed(event) => event.seq,
            Self::Info { .. } | Self::Error { .. } => None,
        }
    }

    /// The account that the event is about, as the frame has it: not checked to be a DID.
    pub fn did(&self) -> Option<&'a str> {
        match self {
            Self::Commit(event) => Some(event.repo),
            Self::Sync(event) => Some(event.did),
            Self::Identity(event) => Some(event.did),
            Self::Account(event) => Some(event.did),
            Self::Malformed(event) => event.did,
            Self::Info { .. } | Self::Error { .. } | Self::Unknown { .. } => None,
        }
    }

    /// When the upstream emitted the event, as the frame has it.
    pub fn time(&self) -> Option<&'a str> {
        match self {
            Self::Commit(event) => Some(event.time),
            Self::Sync(event) => Some(event.time),
            Self::Identity(event) => Some(event.time),
            Self::Account(event) => Some(event.time),
            Self::Malformed(_) | Self::Info { .. } | Self::Error { .. } | Self::Unknown { .. } => None,
        }
    }

    /// The kind in a word, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Commit(_) => "commit",
            Self::Sync(_) => "sync",
            Self::Identity(_) => "identity",
            Self::Account(_) => "account",
            Self::Info { .. } => "info",
            Self::Error { .. } => "error",
            Self::Unknown { .. } => "unknown",
            Self::Malformed(_) => "malformed",
        }
    }
}

/// Reads a frame. All of it is checked to be strict DAG-CBOR; of the fields only their types.
///
/// # Errors
/// When the bytes are no frame.
pub fn read(bytes: &[u8]) -> Result<Frame<'_>, FramingError> {
    if bytes.len() > MAX_FRAME {
        return Err(FramingError::TooLong(bytes.len()));
    }
    let mut reader = Reader::new(bytes);
    let frame = match header(&mut reader)? {
        Kind::Message("#commit") => body::commit(&mut reader),
        Kind::Message("#sync") => body::sync(&mut reader),
        Kind::Message("#identity") => body::identity(&mut reader),
        Kind::Message("#account") => body::account(&mut reader),
        Kind::Message("#info") => body::info(&mut reader),
        Kind::Error => body::error(&mut reader),
        Kind::Message(_) | Kind::Unknown => body::unknown(&mut reader),
    }
    .ok_or(FramingError::Body)?;
    match bytes.len() - reader.position() {
        0 => Ok(frame),
        more => Err(FramingError::Trailing(more)),
    }
}

enum Kind<'a> {
    Message(&'a str),
    Error,
    Unknown,
}

fn header<'a>(reader: &mut Reader<'a>) -> Result<Kind<'a>, FramingError> {
    let (mut op, mut t) = (None, None);
    if reader.peek_map() != Some(true) {
        return Err(FramingError::Header);
    }
    let read = body::pairs(reader, |key, value| match (key, value) {
        ("op", Value::Integer(value)) => op = Some(value),
        ("t", Value::Text(value)) => t = Some(value),
        _ => {}
    });
    match (read.and(op), t) {
        (Some(1), Some(t)) => Ok(Kind::Message(t)),
        (Some(1), None) | (None, _) => Err(FramingError::Header),
        (Some(-1), _) => Ok(Kind::Error),
        (Some(_), _) => Ok(Kind::Unknown),
    }
}
