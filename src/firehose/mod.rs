//! The firehose of a relay or a PDS: what comes over the wire, whether it is true, and how far it has been kept.
//!
//! ```text
//! client ─► bytes ─► frame ─► slice ─► verify ─► an op set
//!                      └─► cursor, watermark ─► where to go on after a restart
//! ```
mod body;
mod client;
mod connect;
mod connection;
mod connection_error;
mod cursor;
pub mod event;
mod fault;
pub mod frame;
mod heard;
mod options;
mod resume;
mod save;
mod slice;
mod tracked;
mod upstream;
pub mod verify;
mod watermark;

pub use client::{Arrival, Client, Subscription};
pub use connection_error::{ConnectionCause, ConnectionError, Remedy};
pub use cursor::{Continuity, CursorRules, GapReason, SavedCursor, Sequence};
pub use fault::{CommitFault, Verdict};
pub use options::ClientOptions;
pub use resume::Resume;
pub use save::{SavePolicy, Saves};
pub use tracked::TrackedRepos;
pub use upstream::{Upstream, UpstreamError, UpstreamKind};
pub use verify::{Prepared, Verification};
pub use watermark::{Ticket, Watermark};
