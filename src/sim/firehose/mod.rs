//! What the upstreams of a simulated network tell: each host and each relay has a sequence of events of its own.
mod alter;
mod encode;
mod event;
mod log;
mod options;
mod recorder;
mod slice;
mod stream;
mod tell;

pub(super) use encode::{error, info, unknown_op};
pub(super) use event::{Body, CommitEvent, Event, EventOp};
pub(super) use log::Log;
pub(super) use slice::{commit_event, first_commit};
pub(super) use stream::{Next, Position, Start, Stream};
pub(super) use tell::{identity, standing_at, status};

pub use event::EventKind;
pub use options::{EventTimes, FirehoseOptions};
pub use recorder::Recorder;
