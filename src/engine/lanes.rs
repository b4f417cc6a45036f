//! Lanes: flush the buffers of complete repos, one repo in order, different repos in parallel.
//!
//! What comes in: repos whose buffer has grown. What goes out: their op sets, to the handler. Bounds: `parallel_lanes` at work,
//! [`WAITING`] in the queue; beyond, a repo is forgotten here and found again in the store. Ends with the stop token.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::backoff;
use super::core::Core;
use super::flush::{self, LaneEnd};
use super::open::Open;
use crate::job::JobId;
use crate::syntax::Did;

/// Repos in the queue or pausing after a failure: about 10 MB of DIDs.
const WAITING: usize = 65_536;
/// Repos read from the store at once when the queue had overflowed.
const PAGE: usize = 1024;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Repos that wait for a lane.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    waiting: Mutex<VecDeque<(Open, u32)>>,
    /// Whether the store may hold repos to flush that the queue does not.
    overflowed: AtomicBool,
    more: Notify,
}

impl LaneQueue {
    /// Asks for a lane for a repo. Cheap, never blocks, may be repeated.
    pub(super) fn ask(&self, core: &Core, did: &Did) {
        if self.lock().len() >= WAITING {
            self.look_into_store();
        } else if let Some(open) = core.open.open_or_ask(did) {
            self.push(open, 0);
        }
    }

    /// Passes on a repo that its holder was asked to flush before he could close it.
    pub(super) fn push(&self, open: Open, failures: u32) {
        self.lock().push_back((open, failures));
        self.more.notify_one();
    }

    /// Has the store searched for repos to flush: at start-up, and after the queue was full.
    pub(super) fn look_into_store(&self) {
        self.overflowed.store(true, Ordering::Release);
        self.more.notify_one();
    }

    fn pop(&self) -> Option<(Open, u32)> {
        self.lock().pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Open, u32)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs lanes until the program stops.
pub(super) async fn run(core: Arc<Core>) {
    let slots = Arc::new(Semaphore::new(core.options.parallel_lanes.get()));
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, next(&core).await)
        };
        let (slot, (open, failures)) = tokio::select! {
            () = core.stop.cancelled() => return,
            next = next => next,
        };
        let Ok(slot) = slot else { return };
        core.tracker.spawn(lane(Arc::clone(&core), open, failures, slot));
    }
}

async fn next(core: &Core) -> (Open, u32) {
    let mut after = None;
    loop {
        if let Some(next) = core.lanes.pop() {
            return next;
        }
        if core.lanes.overflowed.swap(false, Ordering::AcqRel) {
            after = page_from_store(core, after).await;
            continue;
        }
        core.lanes.more.notified().await;
    }
}

/// Queues a page of repos that the store says have a buffer; returns where the next page begins, none at the end.
async fn page_from_store(core: &Core, after: Option<JobId>) -> Option<JobId> {
    match core.store.unflushed(after, PAGE).await {
        Ok(jobs) => {
            for job in jobs.iter().filter(|job| core.shares.holds(job.host.as_deref())) {
                if let Some(open) = core.open.open_or_ask(&job.did) {
                    core.lanes.push(open, 0);
                }
            }
            let last = jobs.last().map(|job| job.id);
            if last.is_some() {
                core.lanes.look_into_store();
            }
            last
        }
        Err(error) => {
            core.store_failed("looking for buffers to flush", &error);
            core.lanes.look_into_store();
            tokio::time::sleep(FIRST_PAUSE).await;
            after
        }
    }
}

async fn lane(core: Arc<Core>, open: Open, failures: u32, _slot: OwnedSemaphorePermit) {
    let mut held = Some(open);
    while let Some(open) = held {
        match flush::flush_complete(&core, &open).await {
            Ok(_) => held = open.close(),
            Err(LaneEnd::Stopped) => held = None,
            Err(LaneEnd::Failed) => return pause(core, open, failures.saturating_add(1)),
        }
    }
    // The job may have been enqueued again while its repo was open.
    core.dispatch.notify_one();
}

/// Queues the repo again after a backoff, without holding a slot meanwhile.
fn pause(core: Arc<Core>, open: Open, failures: u32) {
    let delay = backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, failures);
    core.tracker.clone().spawn(async move {
        let stop = open.stop().clone();
        tokio::select! {
            () = stop.cancelled() => drop(open),
            () = tokio::time::sleep(delay) => core.lanes.push(open, failures),
        }
    });
}
