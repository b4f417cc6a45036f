use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::core::Core;
use super::flush::{self, LaneEnd};
use super::lease::Lease;
use super::progress::{Progress, progress};
use super::router::{self, OpSetError};
use super::{Builder, audit, dispatcher, follow, lanes};
use crate::consumer::Handler;
use crate::job::{Job, JobId, JobState, OpSet, Route};
use crate::store::{Store, StoreError};
use crate::syntax::Did;

/// Backfills one consumer: checks out its repos, buffers what arrives meanwhile, flushes in order, and follows.
///
/// Cloning gives another handle. Nothing runs before [`Backfiller::start`].
#[derive(Debug, Clone)]
pub struct Backfiller {
    core: Arc<Core>,
    started: Arc<AtomicBool>,
}

/// A verb of the backfiller failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The store failed; see [`StoreError::is_retryable`].
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The op set contradicts itself. Nothing was kept of it.
    #[error(transparent)]
    OpSet(#[from] OpSetError),
    /// There is no job for this repo.
    #[error("no job for {did}")]
    Unknown {
        /// The repo.
        did: Did,
    },
    /// The buffer was not flushed to its end: the handler did not acknowledge, or the program stops. It is still there.
    #[error("the buffer of {did} is not flushed")]
    NotFlushed {
        /// The repo.
        did: Did,
    },
    /// The backfiller has stopped.
    #[error("the backfiller has stopped")]
    Stopped,
}

/// A stop that did not end in time: so many parts were still with the handler or the store, and were abandoned.
/// What they delivered and could not record is in doubt, and will be brought again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{parts} parts were still under way after {grace:?}")]
pub struct NotStopped {
    /// How many.
    pub parts: usize,
    /// How long the stop waited.
    pub grace: Duration,
}

/// How long an abandoned part may take to notice.
const ABANDON: Duration = Duration::from_secs(5);

impl Backfiller {
    /// Begins to put a backfiller together. `name` names the consumer in the store.
    pub fn builder(name: &str, store: Arc<dyn Store>, handler: impl Handler) -> Builder {
        Builder::new(name, store, handler)
    }

    pub(super) fn new(core: Core) -> Self {
        Self { core: Arc::new(core), started: Arc::default() }
    }

    /// Puts back what a crash left in progress, and starts the dispatcher, the lanes, and an audit that was left. A second call does nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn start(&self) -> Result<(), EngineError> {
        if self.core.stop.is_cancelled() {
            return Err(EngineError::Stopped);
        }
        if self.started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(fleet) = self.core.store.fleet() {
            tokio::spawn(Lease::begin(&self.core, fleet).await?.run());
        } else {
            let abandoned = self.core.store.recover(self.core.now()).await?;
            if abandoned > 0 {
                tracing::info!(abandoned, "jobs that a former process left in progress are enqueued again");
            }
        }
        self.core.lanes.look_into_store();
        if let Some(follow) = &self.core.follow {
            follow::start(&self.core, follow).await?;
        }
        self.core.tracker.spawn(dispatcher::run(Arc::clone(&self.core)));
        self.core.tracker.spawn(lanes::run(Arc::clone(&self.core)));
        self.core.tracker.spawn(audit::run(Arc::clone(&self.core)));
        Ok(())
    }

    /// Stops: begins nothing new, lets what is with the handler end, and records it. Returns when nothing is in flight.
    /// A checkout that is under way goes back into the queue; that is not an attempt.
    ///
    /// # Errors
    /// [`NotStopped`] when the handler takes longer than `stop_grace`. It is let go then, and its delivery comes again.
    pub async fn stop(&self) -> Result<(), NotStopped> {
        let core = &self.core;
        core.stop.cancel();
        core.tracker.close();
        let ended = self.end().await;
        core.left.cancel();
        // What is not given up falls to others when the lease has run out; so it has to where something may still be with the handler.
        if ended.is_ok()
            && let Some(fleet) = core.store.fleet()
            && self.started.load(Ordering::Acquire)
            && let Err(error) = fleet.leave().await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "the work of this process is not left to others at once");
        }
        ended
    }

    /// Waits until nothing is in flight, and lets go what takes too long.
    async fn end(&self) -> Result<(), NotStopped> {
        let core = &self.core;
        let grace = core.options.stop_grace;
        if tokio::time::timeout(grace, core.tracker.wait()).await.is_ok() {
            return Ok(());
        }
        let parts = core.tracker.len();
        core.abandon.cancel();
        // What does not even notice that now, hangs in code that is not ours.
        let _ = tokio::time::timeout(ABANDON, core.tracker.wait()).await;
        Err(NotStopped { parts, grace })
    }

    /// Whether the backfiller stopped by itself because its store is corrupt or was misused.
    pub fn is_broken(&self) -> bool {
        self.core.broken.load(Ordering::Acquire)
    }

    /// Adds repos. Those that are there already are not touched. Returns how many are new.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn enqueue(&self, dids: &[Did]) -> Result<u64, EngineError> {
        if let Some(follow) = &self.core.follow {
            // Before they are in the store: an event that comes between must not be passed over.
            dids.iter().for_each(|did| _ = follow.tracked.insert(did.as_str()));
        }
        let added = self.core.store.enqueue(self.core.consumer, dids).await?;
        if let Some(follow) = &self.core.follow {
            follow.added.notify_one();
        }
        self.core.dispatch.notify_one();
        Ok(added)
    }

    /// Has a repo checked out now, added if it is new and whatever its state, and waits until it is complete, unavailable or failed.
    /// The backfiller must have been started.
    ///
    /// # Errors
    /// When the store fails, the job is purged meanwhile, or the backfiller stops.
    pub async fn backfill_repo(&self, did: &Did) -> Result<Job, EngineError> {
        self.enqueue(std::slice::from_ref(did)).await?;
        self.core.store.want(self.core.consumer, did).await?;
        self.core.dispatch.notify_one();
        loop {
            let settled = self.core.settled.notified();
            let job = self.job(did).await?.ok_or_else(|| EngineError::Unknown { did: did.clone() })?;
            match job.state {
                JobState::Complete | JobState::Failed { .. } | JobState::Unavailable { .. } => return Ok(job),
                JobState::Enqueued | JobState::InProgress => {}
            }
            tokio::select! {
                () = self.core.stop.cancelled() => return Err(EngineError::Stopped),
                () = settled => {}
                // What another process or another handle of the store does is announced by nobody.
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Hands in the ops of one commit. The op sets of one repo must be handed in one after the other, in the order of their revs;
    /// those of different repos may be handed in at the same time.
    ///
    /// Once this returns [`Route::Buffered`], the op set is durable and will be delivered.
    ///
    /// # Errors
    /// When the op set contradicts itself, or the store fails.
    pub async fn buffer(&self, op_set: &OpSet) -> Result<Route, EngineError> {
        router::check(op_set)?;
        match router::route(&self.core, op_set).await {
            Ok(route) => Ok(route),
            Err(error) => {
                self.core.store_failed("keeping an op set", &error);
                Err(error.into())
            }
        }
    }

    /// Flushes the buffer of a complete job now; returns how many ops were delivered. Lanes do this by themselves.
    /// A job in progress is flushed by its checkout: 0.
    ///
    /// # Errors
    /// When there is no such job, the store fails, or the handler does not acknowledge.
    pub async fn flush_buffer(&self, did: &Did) -> Result<u64, EngineError> {
        if self.job(did).await?.is_none() {
            return Err(EngineError::Unknown { did: did.clone() });
        }
        let Some(open) = self.core.open.open_or_ask(did) else { return Ok(0) };
        let flushed = flush::flush_complete(&self.core, &open).await;
        if let Some(open) = open.close() {
            self.core.lanes.push(open, 0);
        }
        self.core.dispatch.notify_one();
        flushed.map_err(|end| match end {
            LaneEnd::Stopped => EngineError::Stopped,
            LaneEnd::Failed => EngineError::NotFlushed { did: did.clone() },
        })
    }

    /// Removes a repo with everything the store holds of it. What the handler was given stays with the handler.
    /// `false` when there was none. Harmless while it is being checked out: that ends, what is with the handler is waited for, and once
    /// this returns nothing more of the repo will reach it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn purge(&self, did: &Did) -> Result<bool, EngineError> {
        let purged = self.core.store.purge(self.core.consumer, did).await?;
        self.core.open.end(did).await;
        self.core.settled.notify_waiters();
        Ok(purged)
    }

    /// Has every repo compared with what its host reports, and checked out again where it has moved: when op sets may have been missed. Durable once this
    /// returns; it runs beside all else, from the first repo, whatever audit is under way. [`Progress::audit`] tells how far it is.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn audit(&self) -> Result<(), EngineError> {
        Ok(audit::begin(&self.core, "asked for by hand").await?)
    }

    /// Where a repo stands.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn job(&self, did: &Did) -> Result<Option<Job>, EngineError> {
        Ok(self.core.store.job(self.core.consumer, did).await?)
    }

    /// A page of all jobs: at most `limit` after `after`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn jobs(&self, after: Option<JobId>, limit: usize) -> Result<Vec<Job>, EngineError> {
        Ok(self.core.store.jobs(self.core.consumer, after, limit).await?)
    }

    /// How far the backfiller is.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn progress(&self) -> Result<Progress, EngineError> {
        Ok(progress(&self.core).await?)
    }

    /// Waits until no audit is due, no repo waits for a checkout or is in one, every buffer is empty, the handler was told of every account, and nobody acts on any repo any
    /// more, so that everything is counted: all that is left are complete repos, unavailable ones, and failed ones whose next attempt is still to come.
    ///
    /// # Errors
    /// When the store fails, or the backfiller stops.
    pub async fn idle(&self) -> Result<Progress, EngineError> {
        loop {
            let (settled, closed) = (self.core.settled.notified(), self.core.open.closed());
            let progress = self.progress().await?;
            let totals = &progress.totals;
            let is_done = progress.audit.is_none() && totals.enqueued + totals.in_progress + totals.buffered_op_sets + totals.untold == 0;
            // What was recorded last is counted before its repo is closed, but after this progress was read.
            if is_done && self.core.open.is_empty() {
                return self.progress().await;
            }
            tokio::select! {
                () = self.core.stop.cancelled() => return Err(EngineError::Stopped),
                () = settled => {}
                () = closed, if is_done => {}
                // A purge by another handle of the store is announced by nobody.
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }
}
