use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::{Ending, Gate};

/// One way in which a connection to a firehose goes wrong. It strikes one connection: others, and the next one of the same client, see nothing of it.
///
/// For refusals of the upgrade take [`super::Fault::TooManyRequests`], [`super::Fault::ServiceUnavailable`], [`super::Fault::Status`],
/// [`super::Fault::RedirectToHost`], [`super::Fault::Late`] and [`super::Fault::Reset`] at [`crate::sim::Endpoint::SubscribeRepos`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StreamFault {
    /// A connection is closed as soon as it is open.
    CloseAtOnce,
    /// A connection says nothing at all, and answers no ping.
    Silence,
    /// A connection tells its events, but answers no ping.
    NoPong,
    /// A connection begins this many events earlier than its cursor says.
    OldCursor(usize),
    /// A connection begins with what comes next, whatever its cursor says.
    IgnoreCursor,
    /// An event is sent twice, under its one number.
    Duplicate,
    /// After an event the last events up to it, so many, are sent once more.
    Replay(usize),
    /// The connection ends in the middle of an event's frame.
    CutMidFrame(Ending),
    /// A text frame comes before an event.
    Text(String),
    /// A binary frame of these bytes comes before an event.
    Binary(Bytes),
    /// A frame with an `op` that no client knows comes before an event.
    UnknownOp,
    /// A frame of your own making comes in place of an event's.
    Frame(FrameFn),
    /// An event is held back, and what comes after it; pings are answered.
    Hold(Gate),
    /// In place of an event an error frame of this name comes, then a close.
    Error(&'static str),
    /// In place of an event the connection is closed with this code.
    Close(u16),
    /// In place of an event the connection is reset.
    Reset,
}

impl StreamFault {
    /// Whether it strikes a connection when it is opened. Otherwise it strikes an event when it is to be sent.
    pub(super) fn at_open(&self) -> bool {
        match self {
            StreamFault::CloseAtOnce
            | StreamFault::Silence
            | StreamFault::NoPong
            | StreamFault::OldCursor(_)
            | StreamFault::IgnoreCursor => true,
            StreamFault::Duplicate
            | StreamFault::Replay(_)
            | StreamFault::CutMidFrame(_)
            | StreamFault::Text(_)
            | StreamFault::Binary(_)
            | StreamFault::UnknownOp
            | StreamFault::Frame(_)
            | StreamFault::Hold(_)
            | StreamFault::Error(_)
            | StreamFault::Close(_)
            | StreamFault::Reset => false,
        }
    }
}

/// Makes a frame of another ([`StreamFault::Frame`]).
#[derive(Clone)]
pub struct FrameFn(Arc<Make>);

type Make = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

impl FrameFn {
    /// A function from the frame as it should be to the one that is sent.
    pub fn new(make: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(in crate::sim) fn make(&self, frame: &[u8]) -> Bytes {
        (self.0)(frame).into()
    }
}

impl fmt::Debug for FrameFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FrameFn")
    }
}
