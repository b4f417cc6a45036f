//! What all parts of the engine share: the wiring, and nothing that decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backoff;
use super::checkout::Fetcher;
use super::clock::Clock;
use super::follow::Follow;
use super::held::Held;
use super::lanes::LaneQueue;
use super::open::OpenRepos;
use super::options::Options;
use super::progress::{Counters, add};
use super::shares::Shares;
use crate::consumer::ErasedHandler;
use crate::fetch::Pace;
use crate::job::{ConsumerId, Timestamp};
use crate::store::{Store, StoreError};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The program stops before something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

/// Why something is not in the store yet.
#[derive(Debug)]
pub(super) enum Unstored {
    /// The store failed.
    Store(StoreError),
    /// The program stops.
    Stopped,
}

impl From<StoreError> for Unstored {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) struct Core {
    pub(super) consumer: ConsumerId,
    pub(super) store: Arc<dyn Store>,
    pub(super) handler: Arc<dyn ErasedHandler>,
    pub(super) fetcher: Fetcher,
    pub(super) pace: Pace,
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) counters: Counters,
    pub(super) open: Arc<OpenRepos>,
    pub(super) lanes: LaneQueue,
    /// What this process may work on.
    pub(super) shares: Arc<Shares>,
    /// None when op sets are only handed in.
    pub(super) follow: Option<Arc<Follow>>,
    pub(super) held: Held,
    /// Wakes the dispatcher: there may be something to claim.
    pub(super) dispatch: Notify,
    /// Wakes the dispatcher: a worker has ended.
    pub(super) room: Notify,
    /// Wakes the audit: one is due.
    pub(super) audit: Notify,
    /// Told when a job may have come to rest.
    pub(super) settled: Notify,
    /// Nothing new begins once it is cancelled.
    pub(super) stop: CancellationToken,
    /// What is with the handler is let go once it is cancelled.
    pub(super) abandon: CancellationToken,
    /// Cancelled when nothing is under way any more: others may have the work.
    pub(super) left: CancellationToken,
    /// Everything that is under way.
    pub(super) tracker: TaskTracker,
    /// Set when the store is found corrupt or misused: the engine has stopped and says so.
    pub(super) broken: AtomicBool,
}

impl Core {
    /// The time by which this process dates what it does.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reports a failure of the store. One that can never pass stops the engine (I11: loudly).
    pub(super) fn store_failed(&self, action: &'static str, error: &StoreError) {
        if !error.is_retryable() {
            // Whatever else was under way will say the same.
            if !self.broken.swap(true, Ordering::AcqRel) {
                tracing::error!(error = error as &dyn std::error::Error, "the store is unusable while {action}: stopping");
            }
            self.stop.cancel();
        } else {
            tracing::warn!(error = error as &dyn std::error::Error, "the store fails while {action}");
        }
        add(&self.counters.store_failures, 1);
    }

    /// Acts upon the store until it does what is asked, with pauses in between; gives up only when the program stops.
    pub(super) async fn until_stored<T, E: Into<Unstored>, F: Future<Output = Result<T, E>>>(
        &self,
        action: &'static str,
        mut act: impl FnMut() -> F,
    ) -> Result<T, Stopped> {
        let mut attempt = 1;
        loop {
            match act().await.map_err(Into::into) {
                Ok(done) => return Ok(done),
                Err(Unstored::Stopped) => return Err(Stopped),
                Err(Unstored::Store(error)) => self.store_failed(action, &error),
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(Stopped),
                () = tokio::time::sleep(backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt)) => attempt += 1,
            }
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("store", &self.store).field("options", &self.options).finish_non_exhaustive()
    }
}
