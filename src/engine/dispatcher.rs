//! The dispatcher: finds repos that are due, in per-host queues, and starts workers as far as hosts and slots allow.
//!
//! What comes in: wake-ups, and what the store says is due. What goes out: one worker a repo, with the host's permit. A host that is
//! paused or busy is passed over, so it starves nobody. Bounds: `parallel_backfills` workers, [`QUEUE`] repos a host in memory. Ends with the stop token.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::core::Core;
use super::follow;
use super::open::Open;
use super::shares::Entered;
use super::worker;
use crate::fetch::Permit;
use crate::store::{StoreError, Where};
use crate::syntax::Did;

/// Repos of one host that are held in memory ahead of their checkout.
const QUEUE: usize = 64;
/// Repos without a known host that are looked up at once.
const LOOK_UPS: usize = 32;
/// How often all hosts are searched at most: with thousands of hosts a search costs milliseconds.
const SEARCH_EVERY: Duration = Duration::from_millis(200);
/// How often they are searched at least: a failed job comes due without anybody announcing it.
const SEARCH_AT_LEAST_EVERY: Duration = Duration::from_secs(5);

/// Runs until the program stops.
pub(super) async fn run(core: Arc<Core>) {
    if let Some(follow) = &core.follow {
        follow::attached(&core, follow).await;
    }
    let (placed_tx, mut placed_rx) = mpsc::channel(LOOK_UPS);
    let mut dispatcher = Dispatcher::new(Arc::clone(&core), placed_tx);
    let mut search_at = Instant::now();
    loop {
        if Instant::now() >= search_at {
            search_at = Instant::now() + dispatcher.search_or_report().await;
        }
        // Made before looking at the hosts, so that a place that becomes free in between is not missed.
        let freed = core.pace.freed();
        dispatcher.start_look_ups().await;
        let ready_at = dispatcher.start_workers().await;
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.dispatch.notified() => search_at = search_at.min(dispatcher.searched + SEARCH_EVERY),
            () = freed => {}
            () = core.room.notified() => {}
            Some((did, host)) = placed_rx.recv() => dispatcher.placed(did, host),
            () = tokio::time::sleep_until(search_at.min(ready_at.unwrap_or(search_at))) => {}
        }
    }
}

/// Repos of one host, or without a known one, read ahead from the store.
#[derive(Debug, Default)]
struct HostQueue {
    dids: VecDeque<Did>,
    /// Whether the store may hold more of this host.
    more: bool,
}

struct Dispatcher {
    core: Arc<Core>,
    slots: Arc<Semaphore>,
    queues: HashMap<String, HostQueue>,
    /// Hosts in turn; exactly those in `queues`.
    turn: VecDeque<String>,
    unplaced: HostQueue,
    looking_up: HashSet<Did>,
    placed: mpsc::Sender<(Did, Option<String>)>,
    /// When all hosts were last searched.
    searched: Instant,
}

impl Dispatcher {
    fn new(core: Arc<Core>, placed: mpsc::Sender<(Did, Option<String>)>) -> Self {
        let slots = Arc::new(Semaphore::new(core.options.parallel_backfills.get()));
        Self {
            core,
            slots,
            queues: HashMap::new(),
            turn: VecDeque::new(),
            unplaced: HostQueue::default(),
            looking_up: HashSet::new(),
            placed,
            searched: Instant::now(),
        }
    }

    /// Searches the store; returns after how long to search again.
    async fn search_or_report(&mut self) -> Duration {
        self.searched = Instant::now();
        match self.search().await {
            Ok(next_retry) => next_retry.clamp(SEARCH_EVERY, SEARCH_AT_LEAST_EVERY),
            Err(error) => {
                self.core.store_failed("looking for repos that are due", &error);
                SEARCH_AT_LEAST_EVERY
            }
        }
    }

    /// Finds hosts that have become due. Returns how long until the next failed job comes due.
    async fn search(&mut self) -> Result<Duration, StoreError> {
        let now = self.core.now();
        let due = self.core.store.due_hosts(now).await?;
        for name in due.hosts.into_iter().filter(|name| self.core.shares.holds(Some(name))).collect::<Vec<_>>() {
            self.queue_of(name).more = true;
        }
        self.unplaced.more |= due.unplaced && self.core.shares.holds(None);
        Ok(due.next_retry.map_or(Duration::MAX, |at| now.until(at)))
    }

    fn queue_of(&mut self, host: String) -> &mut HostQueue {
        match self.queues.entry(host) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(place) => {
                self.turn.push_back(place.key().clone());
                place.insert(HostQueue::default())
            }
        }
    }

    /// Looks up repos whose host is not known, as far as there is room.
    async fn start_look_ups(&mut self) {
        while self.looking_up.len() < LOOK_UPS && !self.core.stop.is_cancelled() {
            if self.unplaced.dids.is_empty() && std::mem::take(&mut self.unplaced.more) {
                let limit = QUEUE + self.looking_up.len() + self.core.held.len();
                match self.core.store.due(Where::Unplaced, self.core.now(), limit).await {
                    Ok(dids) => {
                        self.unplaced.more = dids.len() == limit;
                        let (looking_up, held) = (&self.looking_up, &self.core.held);
                        self.unplaced.dids.extend(dids.into_iter().filter(|did| !looking_up.contains(did) && !held.is_held(did)));
                    }
                    Err(error) => self.core.store_failed("looking for repos without a host", &error),
                }
            }
            let Some(did) = self.unplaced.dids.pop_front() else { return };
            self.look_up(did);
        }
    }

    fn look_up(&mut self, did: Did) {
        let Some(entered) = self.core.shares.enter(None) else { return };
        let Some(open) = self.core.open.open(&did) else { return };
        self.looking_up.insert(did.clone());
        let (core, placed) = (Arc::clone(&self.core), self.placed.clone());
        self.core.tracker.spawn(async move {
            let host = worker::place(&core, &open).await;
            close(&core, open);
            drop(entered);
            // The dispatcher is gone only when the program stops.
            let _ = placed.send((did, host)).await;
        });
    }

    /// A look-up has ended: with a host the repo is queued, without one its job has been settled.
    fn placed(&mut self, did: Did, host: Option<String>) {
        self.looking_up.remove(&did);
        let Some(host) = host else { return };
        if !self.core.shares.holds(Some(&host)) {
            // It may be new, and free.
            self.core.shares.poke.notify_one();
        } else {
            let queue = self.queue_of(host);
            // What does not fit is found again: its host is in the store now.
            if queue.dids.len() < QUEUE {
                queue.dids.push_back(did);
            } else {
                queue.more = true;
            }
        }
    }

    /// Starts workers while there are slots and hosts that admit. Returns when the next host will admit, if one is waited for.
    async fn start_workers(&mut self) -> Option<Instant> {
        let mut ready_at: Option<Instant> = None;
        let mut passed_over = 0;
        while passed_over < self.turn.len() && !self.core.stop.is_cancelled() {
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { return ready_at };
            let Some(host) = self.turn.pop_front() else { return ready_at };
            let entered = self.core.shares.enter(Some(&host));
            let Some((open, entered)) = (if entered.is_some() { self.next_of(&host).await } else { None }).zip(entered) else {
                // The next search finds it again if there is more, and it is this process's.
                self.queues.remove(&host);
                continue;
            };
            self.turn.push_back(host.clone());
            match self.core.pace.try_admit(&host) {
                Ok(permit) => {
                    passed_over = 0;
                    self.start(open, entered, host, permit, slot);
                }
                Err(wait) => {
                    passed_over += 1;
                    ready_at = ready_at.into_iter().chain(wait.until).min();
                    self.queue_of(host).dids.push_front(open.did().clone());
                    close(&self.core, open);
                }
            }
        }
        ready_at
    }

    /// The next repo of a host that nobody has open.
    async fn next_of(&mut self, host: &str) -> Option<Open> {
        let queue = self.queues.get_mut(host)?;
        if queue.dids.is_empty() && std::mem::take(&mut queue.more) {
            let limit = QUEUE + self.core.held.len();
            match self.core.store.due(Where::Host(host), self.core.now(), limit).await {
                Ok(dids) => {
                    queue.more = dids.len() == limit;
                    queue.dids.extend(dids.into_iter().filter(|did| !self.core.held.is_held(did)));
                }
                Err(error) => self.core.store_failed("looking for repos of a host", &error),
            }
        }
        while let Some(did) = queue.dids.pop_front() {
            if let Some(open) = self.core.open.open(&did) {
                return Some(open);
            }
        }
        None
    }

    fn start(&self, open: Open, entered: Entered, host: String, permit: Permit, slot: OwnedSemaphorePermit) {
        let core = Arc::clone(&self.core);
        self.core.tracker.spawn(async move {
            worker::run(&core, &open, &host, permit).await;
            close(&core, open);
            drop((entered, slot));
            core.room.notify_one();
        });
    }
}

/// Closes a repo, and passes it to a lane when one was asked for meanwhile.
fn close(core: &Core, open: Open) {
    if let Some(open) = open.close() {
        core.lanes.push(open, 0);
    }
}
