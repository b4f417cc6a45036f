//! Asks hosts for repos, at a pace they can bear.
mod answer;
mod body;
mod budget;
mod client;
mod error;
mod guard;
mod host;
mod http;
mod limits;
mod meter;
mod options;
mod pace;
mod rate;
mod spool;

pub use body::RepoBody;
pub use client::{ClientError, HttpOptions, user_agent};
pub(crate) use client::{Transport, client};
pub use error::{Disposition, FetchCause, FetchError, Phase};
pub use host::{Host, HostError};
pub use http::{HttpSource, RepoSource};
pub use limits::{Limits, Policy};
pub use options::{Backoff, PaceOptions};
pub use pace::{HostPace, Pace, Permit, Wait, WaitReason};
pub use rate::{NotARate, Rate};
pub use spool::{Spool, SpoolBudget, SpoolOptions};
