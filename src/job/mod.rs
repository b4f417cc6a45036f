//! The job: one repo for one consumer. What it is, where it stands, and every decision about it. Pure.
mod account;
mod encode;
mod fresh;
mod op_set;
pub mod retry;
mod route;
mod state;
mod state_text;
mod text;
mod time;
mod transition;

pub use account::Account;
pub use encode::OpSetError;
pub use fresh::{CONFIRM_OVER, CONFIRMATIONS, Freshness, OlderRev, freshness};
pub use op_set::{Op, OpAction, OpSet};
pub use route::{Chain, Position, Route, chain, route};
pub use state::{FailureKind, IllegalMove, JobEvent, JobState, UnavailableStatus};
pub use text::UnknownName;
pub use time::Timestamp;

use crate::repo::Link;
use crate::syntax::{Did, Rev};

/// Names a consumer within one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub i64);

/// Names a job within one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

/// Counts the claims of a job. Whoever acts on a job names the epoch it claimed; the store refuses the act once another
/// epoch has begun, so at most one delivery path of a job can ever commit (I1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub i64);

/// Orders the op sets in the buffer of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferSeq(pub i64);

/// Where a job stands, as its store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The store's name of the job.
    pub id: JobId,
    /// The repo.
    pub did: Did,
    /// What is being done about it.
    pub state: JobState,
    /// The claim that may act on it.
    pub epoch: Epoch,
    /// The rev that the consumer has acknowledged, or none before the first checkout completed.
    pub rev: Option<Rev>,
    /// The root of the tree at `rev`, where known.
    pub data: Option<Link>,
    /// A checkout at a lower rev is not accepted (I8).
    pub min_rev: Option<Rev>,
    /// An older rev that the account's own host has begun to confirm (I8).
    pub older: Option<OlderRev>,
    /// Failures since the last success; drives the backoff.
    pub failures: u32,
    /// The last failure in words, at most 512 bytes; empty when the last attempt succeeded.
    pub failure: String,
    /// The host that last held the repo (`host` or `host:port`), where known.
    pub host: Option<String>,
    /// What is known of the account.
    pub account: Account,
    /// What the consumer has not acknowledged of the account yet, in order; at most two.
    pub untold: Vec<Account>,
    /// Records in the manifest.
    pub records: u64,
    /// Op sets in the buffer.
    pub buffered_op_sets: u64,
    /// Bytes in the buffer.
    pub buffered_bytes: u64,
}

impl Job {
    /// Where the consumer's copy stands; none before the first checkout completed.
    pub fn position(&self) -> Option<Position> {
        self.rev.map(|rev| Position { rev, data: self.data })
    }

    /// The highest rev known of the repo, against which [`freshness`] judges a checkout.
    pub fn known_rev(&self) -> Option<Rev> {
        self.rev.max(self.min_rev)
    }
}
