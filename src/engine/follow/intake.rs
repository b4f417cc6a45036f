//! Events on their way into the store: of one repo one after the other, of different repos at once.
//!
//! What comes in: events of repos that are followed, in the order of their upstreams. What goes out: each to [`super::settle`], then it is settled.
//! Bounds: `pending_bytes` in all, `repo_pending_bytes` of one repo, `parallel_events` at work. Ends with the stop token; what is then not settled comes again.
//!
//! A repo whose events are too many is given up: those that a checkout makes up for lose their frames, and are settled as a gap. So is, when all room is
//! taken, the repo that has most of it among those that wait for an identity; others are not made to wait for a directory. What waits for the store alone
//! keeps its room, and the upstreams are not read.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::{OVERHEAD, Queue};
use super::settle;
use super::source::{Source, Taken};
use crate::engine::core::{Core, Unstored};
use crate::syntax::Did;

/// Why events are given up when too many wait.
pub(super) const CROWDED: &str = "crowded";

/// The events that wait, by repo. A repo that is here has a part of the program that works on it.
#[derive(Debug)]
pub(super) struct Intake {
    repos: Mutex<Repos>,
    room: Arc<Semaphore>,
    /// What `room` began with: an event takes no more of it.
    whole: u32,
    repo_bytes: usize,
    slots: Arc<Semaphore>,
    /// Told when a repo begins to wait for an identity.
    waits: Notify,
}

#[derive(Debug, Default)]
struct Repos {
    queues: HashMap<Did, Queue>,
    /// Those of them that wait for an identity.
    waiting: HashSet<Did>,
}

/// An event that waits.
#[derive(Debug)]
pub(super) struct Pending {
    /// None when it was given up.
    pub(super) frame: Option<Bytes>,
    pub(super) source: Arc<Source>,
    pub(super) taken: Taken,
    /// Whether its repo is to be added first.
    pub(super) is_new: bool,
    /// Whether a checkout makes up for it: so it is with what a repo holds, but not with what its account is.
    pub(super) is_replaceable: bool,
    pub(super) room: Room,
}

/// What an event takes of `pending_bytes`.
#[derive(Debug)]
pub(super) struct Room {
    /// When it was taken: the event had arrived by then.
    pub(super) since: Instant,
    /// None once it is the queue's, or given back.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl Pending {
    pub(super) fn settle(self) {
        self.source.settle(self.taken);
    }

    /// When it arrived.
    pub(super) fn arrived(&self) -> Instant {
        self.room.since
    }
}

/// The next events of a repo: one, or all that were given up in a row.
pub(super) struct Next {
    pub(super) events: Vec<Pending>,
    /// Why those without a frame were given up.
    pub(super) given_up: &'static str,
}

impl Intake {
    pub(super) fn new(pending_bytes: u32, repo_bytes: usize, parallel: usize) -> Self {
        let whole = pending_bytes.min(Semaphore::MAX_PERMITS.try_into().unwrap_or(u32::MAX));
        let (room, slots) = (Arc::new(Semaphore::new(whole as usize)), Arc::new(Semaphore::new(parallel)));
        Self { repos: Mutex::default(), room, whole, repo_bytes, slots, waits: Notify::new() }
    }

    /// Waits until an event of this size may be taken. Repos that wait for an identity make room.
    pub(super) async fn room(&self, frame: &Bytes) -> Room {
        let size = u32::try_from(frame.len()).unwrap_or(u32::MAX).saturating_add(OVERHEAD).min(self.whole);
        loop {
            let waits = self.waits.notified();
            tokio::pin!(waits);
            waits.as_mut().enable();
            let permit = match Arc::clone(&self.room).try_acquire_many_owned(size) {
                Ok(permit) => Some(permit),
                Err(_) if self.shed() => None,
                Err(_) => tokio::select! {
                    // It is never closed.
                    permit = Arc::clone(&self.room).acquire_many_owned(size) => permit.ok(),
                    () = waits => None,
                },
            };
            if permit.is_some() {
                return Room { since: Instant::now(), permit };
            }
        }
    }

    /// Gives up the repo that has most room among those that wait for an identity. `false`: there is none.
    fn shed(&self) -> bool {
        let mut repos = self.lock();
        let Repos { queues, waiting } = &mut *repos;
        let largest = waiting.iter().filter_map(|did| Some((queues.get(did)?.replaceable(), did))).max_by_key(|(bytes, _)| *bytes);
        let Some((1.., did)) = largest else { return false };
        tracing::debug!(%did, "no room is left: the repo is given up");
        if let Some(queue) = queues.get_mut(did) {
            queue.give_up(CROWDED);
            queue.give_up_what_is_at_work();
        }
        true
    }

    /// Waits until another event may be worked on.
    pub(super) async fn slot(&self) -> Result<OwnedSemaphorePermit, Unstored> {
        // It is never closed.
        Arc::clone(&self.slots).acquire_owned().await.map_err(|_| Unstored::Stopped)
    }

    /// Takes an event in. `true`: nobody works on the repo yet.
    fn push(&self, did: &Did, pending: Pending) -> bool {
        let mut repos = self.lock();
        let is_idle = !repos.queues.contains_key(did);
        let queue = repos.queues.entry(did.clone()).or_default();
        if queue.push(pending) > self.repo_bytes {
            queue.give_up(CROWDED);
        }
        is_idle
    }

    /// The next events of a repo. None, and nobody works on it any more, when there is none.
    fn next(&self, did: &Did) -> Option<Next> {
        let mut repos = self.lock();
        let next = repos.queues.get_mut(did)?.next();
        if next.is_none() {
            repos.queues.remove(did);
        }
        next
    }

    /// Gives up what waits of a repo behind the event that is worked on.
    pub(super) fn give_up(&self, did: &Did, reason: &'static str) {
        if let Some(queue) = self.lock().queues.get_mut(did) {
            queue.give_up(reason);
        }
    }

    /// The event of a repo that is worked on waits for an identity, until what is returned is dropped.
    pub(super) fn wait<'a>(&'a self, did: &'a Did) -> Wait<'a> {
        let given_up = {
            let mut repos = self.lock();
            repos.waiting.insert(did.clone());
            repos.queues.get_mut(did).map_or_else(CancellationToken::new, Queue::wait)
        };
        self.waits.notify_waiters();
        Wait { intake: self, did, given_up }
    }

    fn lock(&self) -> MutexGuard<'_, Repos> {
        // No code that can panic runs under the lock.
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event waits for an identity.
pub(super) struct Wait<'a> {
    intake: &'a Intake,
    did: &'a Did,
    /// Cancelled when the event is given up because others need its room.
    pub(super) given_up: CancellationToken,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.intake.lock().waiting.remove(self.did);
    }
}

/// Takes an event in, and has somebody work on its repo.
pub(super) fn take(core: &Arc<Core>, intake: &Arc<Intake>, did: Did, pending: Pending) {
    if intake.push(&did, pending) {
        core.tracker.spawn(work(Arc::clone(core), Arc::clone(intake), did));
    }
}

async fn work(core: Arc<Core>, intake: Arc<Intake>, did: Did) {
    while let Some(next) = intake.next(&did) {
        if settle::settle(&core, &intake, &did, next).await.is_err() {
            // The program stops. What is left in the queue keeps the watermark where it is.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, pin_mut};

    use super::*;
    use crate::firehose::Upstream;
    use crate::job::Timestamp;
    use crate::store::UpstreamId;
    use crate::syntax::Seq;

    fn did(number: usize) -> Did {
        Did::new(&format!("did:plc:{number}")).unwrap()
    }

    fn frame(bytes: usize) -> Bytes {
        vec![0; bytes].into()
    }

    /// Takes an event of so many bytes in.
    async fn push(intake: &Intake, did: &Did, bytes: usize, is_replaceable: bool) {
        let upstream = Upstream::relay("wss://relay.test").unwrap();
        let source = Arc::new(Source::new(upstream, UpstreamId(1), None));
        let taken = source.take(Seq::new(1).unwrap(), Timestamp(0));
        let (frame, room) = (frame(bytes), intake.room(&frame(bytes)).await);
        intake.push(did, Pending { frame: Some(frame), source, taken, is_new: false, is_replaceable, room });
    }

    #[tokio::test]
    async fn what_waits_for_the_store_keeps_its_room_and_what_waits_for_an_identity_makes_it() {
        let intake = Intake::new(3_000, 1_000_000, 1);
        push(&intake, &did(1), 1_000, true).await;
        push(&intake, &did(2), 1_000, true).await;
        let (first, _second) = (intake.next(&did(1)).unwrap(), intake.next(&did(2)).unwrap());
        let frame = frame(1_000);
        let room = intake.room(&frame);
        pin_mut!(room);
        assert!(room.as_mut().now_or_never().is_none(), "a repo that waits for the store was given up");
        let waiting = did(1);
        let wait = intake.wait(&waiting);
        let taken = room.await;
        assert!(wait.given_up.is_cancelled());
        drop((wait, first));
        drop(taken);
        assert!(intake.next(&did(1)).is_none());
    }

    #[tokio::test]
    async fn the_repo_that_has_most_is_given_up_and_what_a_checkout_does_not_make_up_for_stays() {
        let intake = Intake::new(10_000, 1_000_000, 1);
        for (repo, events) in [(1, 1), (2, 3), (3, 2)] {
            push(&intake, &did(repo), 100, false).await;
            for _ in 0..events {
                push(&intake, &did(repo), 900, true).await;
            }
        }
        let dids = [did(1), did(2), did(3)];
        let at_work: Vec<Next> = dids.iter().map(|did| intake.next(did).unwrap()).collect();
        assert!(at_work.iter().all(|next| !next.events[0].is_replaceable));
        let waits: Vec<Wait<'_>> = dids.iter().map(|did| intake.wait(did)).collect();
        let _room = intake.room(&frame(4_000)).await;
        assert!(waits.iter().all(|wait| !wait.given_up.is_cancelled()), "an event was given up that no checkout makes up for");
        let next = intake.next(&did(2)).unwrap();
        assert_eq!((next.events.len(), next.given_up), (3, CROWDED));
        assert!(next.events.iter().all(|event| event.frame.is_none()));
        for kept in [did(1), did(3)] {
            assert!(intake.next(&kept).unwrap().events[0].frame.is_some(), "another was given up");
        }
    }
}
