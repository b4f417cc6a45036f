use bytes::Bytes;

use crate::repo::Link;
use crate::syntax::{Did, Rev};

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// `#commit`.
    Commit,
    /// `#sync`.
    Sync,
    /// `#identity`.
    Identity,
    /// `#account`.
    Account,
    /// A kind that no client knows.
    Unknown,
}

/// An event before an upstream has numbered it.
#[derive(Debug, Clone)]
pub(in crate::sim) struct Event {
    pub(in crate::sim) did: Did,
    /// When it happened, as the event says.
    pub(in crate::sim) time: String,
    pub(in crate::sim) body: Body,
    /// A field that is left out of the body, by its name.
    pub(in crate::sim) without: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub(in crate::sim) enum Body {
    Commit(CommitEvent),
    Sync { rev: Rev, data: Link, blocks: Bytes },
    Identity { handle: String },
    Account { active: bool, status: Option<&'static str> },
    Unknown,
}

#[derive(Debug, Clone)]
pub(in crate::sim) struct CommitEvent {
    pub(in crate::sim) rev: Rev,
    pub(in crate::sim) since: Option<Rev>,
    pub(in crate::sim) commit: Link,
    /// The root of the tree, which the event does not tell but its commit.
    pub(in crate::sim) data: Link,
    pub(in crate::sim) prev_data: Option<Link>,
    /// A CAR file.
    pub(in crate::sim) blocks: Bytes,
    pub(in crate::sim) ops: Vec<EventOp>,
    pub(in crate::sim) too_big: bool,
}

#[derive(Debug, Clone)]
pub(in crate::sim) struct EventOp {
    pub(in crate::sim) action: &'static str,
    pub(in crate::sim) path: String,
    /// None where the record is deleted.
    pub(in crate::sim) cid: Option<Link>,
    /// None where the record is created, and from hosts before Sync 1.1.
    pub(in crate::sim) prev: Option<Link>,
}

impl Event {
    pub(in crate::sim) fn new(did: &Did, time: String, body: Body) -> Self {
        Self { did: did.clone(), time, body, without: None }
    }

    pub(in crate::sim) fn kind(&self) -> EventKind {
        match &self.body {
            Body::Commit(_) => EventKind::Commit,
            Body::Sync { .. } => EventKind::Sync,
            Body::Identity { .. } => EventKind::Identity,
            Body::Account { .. } => EventKind::Account,
            Body::Unknown => EventKind::Unknown,
        }
    }
}
