use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::firehose::event::CommitEvent;
use crate::firehose::{ClientOptions, CursorRules, SavePolicy, Verification};
use crate::syntax::Nsid;

/// Which repos a firehose adds. Those that were added otherwise are followed in any case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Track {
    /// None.
    #[default]
    Listed,
    /// Every repo that an event is about.
    Seen,
    /// Every repo of which a commit changes a record of this collection.
    Collection(Nsid),
}

impl Track {
    /// Whether a commit adds its repo.
    pub(super) fn takes(&self, event: &CommitEvent<'_>) -> bool {
        match self {
            Self::Listed => false,
            Self::Seen => true,
            Self::Collection(nsid) => {
                event.ops.iter().flatten().any(|op| op.path.split_once('/').is_some_and(|(of, _)| of == nsid.as_str()))
            }
        }
    }
}

/// How a [`crate::engine::Backfiller`] follows firehoses.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// Which repos are added because the firehose tells of them. Default: none.
    pub track: Track,
    /// How much of what upstreams say is checked. Default: everything.
    pub verification: Verification,
    /// How upstreams are connected to.
    pub client: ClientOptions,
    /// When cursors are saved.
    pub save: SavePolicy,
    /// When a cursor counts as not honoured.
    pub rules: CursorRules,
    /// Events that are verified or recorded at once, of different repos. Default 64.
    pub parallel_events: NonZeroUsize,
    /// Bytes of events that wait in memory, of all upstreams together. Past it the repo that has most of them among those that wait for an identity is given
    /// up: its commits are dropped and it is checked out again (`crowded`). Only when none waits for an identity, but all for the store, are the upstreams not
    /// read. Default 64 MiB.
    pub pending_bytes: NonZeroU32,
    /// Bytes of commits of one repo that wait in memory, for its identity or for the store. Past it they are dropped and the repo is checked out again
    /// (`crowded`). Default 4 MiB.
    pub repo_pending_bytes: usize,
    /// How long an event waits, since its arrival, for the identity of its account while look-ups fail; one look-up at least is waited for. Then it and all
    /// commits of its repo that have come meanwhile are dropped and the repo is checked out again, which goes on trying (`identity_outage`). Default 1 minute.
    pub identity_patience: Duration,
    /// How long checkouts wait at the first start until every upstream is connected, so that nothing can happen between a checkout and the firehose.
    /// An upstream that connects later begins with an audit. Default 30 seconds.
    pub first_connection: Duration,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            track: Track::default(),
            verification: Verification::default(),
            client: ClientOptions::default(),
            save: SavePolicy::default(),
            rules: CursorRules::default(),
            parallel_events: NonZeroUsize::new(64).unwrap_or(NonZeroUsize::MIN),
            pending_bytes: NonZeroU32::new(64 << 20).unwrap_or(NonZeroU32::MAX),
            repo_pending_bytes: 4 << 20,
            identity_patience: Duration::from_secs(60),
            first_connection: Duration::from_secs(30),
        }
    }
}
