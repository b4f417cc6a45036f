//! Follows firehoses: what they say of the repos of the consumer becomes op sets, account changes and gaps, each recorded before the cursor passes it.
//!
//! ```text
//! upstream ─► connection ─► intake (one queue a repo) ─► settle: verify ─► router ─► store
//!                 │                                                           │
//!                 └── cursor not honoured ─► audit        watermark ◄── settled ┘ ─► saved cursor
//! ```
//!
//! An event is judged by the identity of its account. Where it does not fit what is remembered, only an identity that was asked for after the event arrived
//! tells that it is not true; it waits for that, with all that follow of its repo, and so it does while look-ups fail: for a minute at most
//! ([`FollowOptions::identity_patience`]), and as long as there is room ([`FollowOptions::pending_bytes`]). What is given up is made up for by a checkout.

mod connection;
mod intake;
mod lead;
mod look_up;
mod options;
mod provers;
mod queue;
mod recent;
mod save;
mod settle;
mod source;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

pub use self::options::{FollowOptions, Track};
pub use self::source::UpstreamProgress;

use self::intake::Intake;
use self::provers::Provers;
use self::recent::Recent;
use self::source::Source;
use super::core::Core;
use crate::firehose::{Client, TrackedRepos, Upstream};
use crate::store::StoreError;

/// Jobs that are read at once when the program starts.
const PAGE: usize = 4096;

/// What the parts that follow share.
#[derive(Debug)]
pub(super) struct Follow {
    options: FollowOptions,
    client: Client,
    upstreams: Vec<Upstream>,
    pub(super) tracked: TrackedRepos,
    pub(super) recent: Recent,
    provers: Provers,
    intake: Arc<Intake>,
    sources: Mutex<Vec<Arc<Source>>>,
    /// Upstreams that have a cursor or are connected, so that nothing more can be missed of them.
    attached: watch::Sender<usize>,
    /// Told when this process has added repos.
    pub(super) added: Notify,
    dropped: Mutex<BTreeMap<&'static str, u64>>,
    gaps: Mutex<BTreeMap<&'static str, u64>>,
    /// Whether commits were dropped as being from the future: what was dropped so, because it is this machine's clock that is wrong, is made up for
    /// when it is set.
    ahead_of_us: AtomicBool,
}

impl Follow {
    pub(super) fn new(options: FollowOptions, client: Client, upstreams: Vec<Upstream>) -> Self {
        let intake = Intake::new(options.pending_bytes.get(), options.repo_pending_bytes, options.parallel_events.get());
        Self {
            options,
            client,
            upstreams,
            tracked: TrackedRepos::new(),
            recent: Recent::default(),
            provers: Provers::default(),
            intake: Arc::new(intake),
            sources: Mutex::default(),
            attached: watch::Sender::new(0),
            added: Notify::new(),
            dropped: Mutex::default(),
            gaps: Mutex::default(),
            ahead_of_us: AtomicBool::new(false),
        }
    }

    /// The names of the upstreams.
    pub(super) fn names(&self) -> Vec<String> {
        self.upstreams.iter().map(|upstream| upstream.name().to_owned()).collect()
    }

    /// Counts an event that is not taken because it is not true.
    fn drop(&self, reason: &'static str) {
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }

    /// Counts an event that could not be followed, so that its repo is checked out again.
    fn gap(&self, reason: &'static str) {
        *self.gaps.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }

    pub(super) fn progress(&self) -> FollowProgress {
        let counts = |of: &Mutex<BTreeMap<&'static str, u64>>| of.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        FollowProgress {
            upstreams: sources.iter().map(|source| source.progress()).collect(),
            tracked: self.tracked.len(),
            verification: self.options.verification.as_str(),
            dropped: counts(&self.dropped),
            gaps: counts(&self.gaps),
        }
    }
}

/// How the firehoses are doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FollowProgress {
    /// Each upstream.
    pub upstreams: Vec<UpstreamProgress>,
    /// Repos that are followed.
    pub tracked: usize,
    /// How much is verified: `full`, `signature` or `none`.
    pub verification: &'static str,
    /// Events of followed repos that were dropped because they were not true, by reason, since the start of this process.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Events of followed repos that were lost or could not be followed, so that the repo is checked out again, by reason, since the start of this process.
    pub gaps: BTreeMap<&'static str, u64>,
}

/// Reads which repos are followed, and begins to follow every upstream, or those that fall to this process.
pub(super) async fn start(core: &Arc<Core>, follow: &Arc<Follow>) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let jobs = core.store.jobs(core.consumer, after, PAGE).await?;
        jobs.iter().for_each(|job| _ = follow.tracked.insert(job.did.as_str()));
        match jobs.last() {
            Some(last) => after = Some(last.id),
            None => break,
        }
    }
    if core.store.fleet().is_some() {
        core.tracker.spawn(lead::run(Arc::clone(core), Arc::clone(follow), after));
        return Ok(());
    }
    for upstream in &follow.upstreams {
        begin(core, follow, upstream).await?;
    }
    Ok(())
}

/// Begins to follow an upstream.
async fn begin(core: &Arc<Core>, follow: &Arc<Follow>, upstream: &Upstream) -> Result<(), StoreError> {
    let (id, saved) = core.store.upstream(upstream.name()).await?;
    let source = Arc::new(Source::new(upstream.clone(), id, saved));
    follow.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&source));
    core.tracker.spawn(save::run(Arc::clone(core), Arc::clone(follow), Arc::clone(&source), saved));
    core.tracker.spawn(connection::run(Arc::clone(core), Arc::clone(follow), source, saved));
    Ok(())
}

/// Waits until a checkout can miss nothing: every upstream was connected once, by this process or a former one. A while at most.
pub(super) async fn attached(core: &Core, follow: &Follow) {
    let mut attached = follow.attached.subscribe();
    tokio::select! {
        () = core.stop.cancelled() => {}
        _ = attached.wait_for(|count| *count >= follow.upstreams.len()) => {}
        () = attached_by_others(core, follow) => {}
        () = tokio::time::sleep(follow.options.first_connection) => {
            tracing::warn!("not every upstream is connected: checkouts begin, and what connects later begins with an audit");
        }
    }
}

/// Waits until every upstream has a cursor, whoever follows it. Forever, where no others can.
async fn attached_by_others(core: &Core, follow: &Follow) {
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    if core.store.fleet().is_none() {
        return std::future::pending().await;
    }
    for upstream in &follow.upstreams {
        loop {
            match core.store.upstream(upstream.name()).await {
                Ok((_, Some(_))) => break,
                Ok((_, None)) => {}
                Err(error) => core.store_failed("reading a cursor", &error),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
