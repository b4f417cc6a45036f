//! Events on their way into the store: of one repo one after the other, of different repos at once.
//!
//! What comes in: events of repos that are followed, in the order of their upstreams. What goes out: each to [`super::settle`], then it is settled.
//! Bounds: `pending_bytes` in all, `repo_pending_bytes` of one repo, `parallel_events` at work. Ends with the stop token; what is then not settled comes again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settle;
use super::source::{Source, Taken};
use crate::engine::core::{Core, Unstored};
use crate::syntax::Did;

/// What an event takes of `pending_bytes` beside its frame.
const OVERHEAD: u32 = 256;

/// The events that wait, by repo. A repo that is here has a part of the program that works on it.
#[derive(Debug)]
pub(super) struct Intake {
    repos: Mutex<HashMap<Did, Queue>>,
    room: Arc<Semaphore>,
    /// What `room` began with: an event takes no more of it.
    whole: u32,
    repo_bytes: usize,
    slots: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Pending>,
    bytes: usize,
}

/// An event that waits.
#[derive(Debug)]
pub(super) struct Pending {
    /// None when it was dropped because too many waited.
    pub(super) frame: Option<Bytes>,
    pub(super) source: Arc<Source>,
    pub(super) taken: Taken,
    /// Whether its repo is to be added first.
    pub(super) is_new: bool,
    /// Whether a checkout makes up for it: so it is with what a repo holds, but not with what its account is.
    pub(super) is_replaceable: bool,
    pub(super) room: OwnedSemaphorePermit,
}

impl Pending {
    pub(super) fn settle(self) {
        self.source.settle(self.taken);
    }
}

impl Intake {
    pub(super) fn new(pending_bytes: u32, repo_bytes: usize, parallel: usize) -> Self {
        let whole = pending_bytes.min(Semaphore::MAX_PERMITS.try_into().unwrap_or(u32::MAX));
        let room = Arc::new(Semaphore::new(whole as usize));
        Self { repos: Mutex::default(), room, whole, repo_bytes, slots: Arc::new(Semaphore::new(parallel)) }
    }

    /// Waits until an event of this size may be taken.
    pub(super) async fn room(&self, frame: &Bytes) -> OwnedSemaphorePermit {
        let size = u32::try_from(frame.len()).unwrap_or(u32::MAX).saturating_add(OVERHEAD).min(self.whole);
        loop {
            // It is never closed.
            if let Ok(room) = Arc::clone(&self.room).acquire_many_owned(size).await {
                return room;
            }
        }
    }

    /// Waits until another event may be worked on.
    pub(super) async fn slot(&self) -> Result<OwnedSemaphorePermit, Unstored> {
        // It is never closed.
        Arc::clone(&self.slots).acquire_owned().await.map_err(|_| Unstored::Stopped)
    }

    /// Takes an event in. `true`: nobody works on the repo yet.
    fn push(&self, did: &Did, pending: Pending) -> bool {
        let mut repos = self.lock();
        let is_idle = !repos.contains_key(did);
        let queue = repos.entry(did.clone()).or_default();
        queue.bytes += pending.frame.as_ref().map_or(0, Bytes::len);
        queue.events.push_back(pending);
        if queue.bytes > self.repo_bytes {
            queue.drop_frames();
        }
        is_idle
    }

    /// The next events of a repo: one, or all that were dropped in a row. None, and nobody works on it any more, when there is none.
    fn next(&self, did: &Did) -> Option<Vec<Pending>> {
        let mut repos = self.lock();
        let queue = repos.get_mut(did)?;
        let dropped = queue.events.iter().take_while(|pending| pending.frame.is_none()).count();
        let next: Vec<Pending> = queue.events.drain(..dropped.max(1).min(queue.events.len())).collect();
        queue.bytes -= next.iter().filter_map(|pending| pending.frame.as_ref()).map(Bytes::len).sum::<usize>();
        if next.is_empty() {
            repos.remove(did);
            return None;
        }
        Some(next)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Did, Queue>> {
        // No code that can panic runs under the lock.
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Too much waits of this repo: what a checkout makes up for is dropped.
    fn drop_frames(&mut self) {
        for pending in self.events.iter_mut().filter(|pending| pending.is_replaceable) {
            pending.frame = None;
            let spare = pending.room.num_permits().saturating_sub(OVERHEAD as usize);
            drop(pending.room.split(spare));
        }
        self.bytes = self.events.iter().filter_map(|pending| pending.frame.as_ref()).map(Bytes::len).sum();
    }
}

/// Takes an event in, and has somebody work on its repo.
pub(super) fn take(core: &Arc<Core>, intake: &Arc<Intake>, did: Did, pending: Pending) {
    if intake.push(&did, pending) {
        core.tracker.spawn(work(Arc::clone(core), Arc::clone(intake), did));
    }
}

async fn work(core: Arc<Core>, intake: Arc<Intake>, did: Did) {
    while let Some(events) = intake.next(&did) {
        if settle::settle(&core, &intake, &did, events).await.is_err() {
            // The program stops. What is left in the queue keeps the watermark where it is.
            return;
        }
    }
}
