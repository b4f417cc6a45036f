//! The firehose of a relay or a PDS: what comes over the wire, whether it is true, and how far it has been kept.
//!
//! ```text
//! client ─► bytes ─► frame ─► slice ─► verify ─► an op set
//!                      └─► cursor, watermark ─► where to go on after a restart
//! ```
mod body;
mod cursor;
pub mod event;
mod fault;
pub mod frame;
mod resume;
mod save;
mod slice;
mod tracked;
pub mod verify;
mod watermark;

pub use cursor::{Continuity, CursorRules, GapReason, SavedCursor, Sequence};
pub use fault::{CommitFault, Verdict};
pub use resume::Resume;
pub use save::{SavePolicy, Saves};
pub use tracked::TrackedRepos;
pub use verify::{Prepared, Verification};
pub use watermark::{Ticket, Watermark};
