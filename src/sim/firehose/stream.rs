use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::{Event, FirehoseOptions};
use crate::sim::fault::Place;
use crate::sim::lock;
use crate::syntax::Did;

/// The sequence of one upstream: numbers events in the order in which they come, and retains the newest.
#[derive(Debug)]
pub(in crate::sim) struct Stream {
    pub(in crate::sim) place: Place,
    pub(in crate::sim) options: FirehoseOptions,
    window: Mutex<Window>,
    /// Events that are to come after the next one of their repo.
    held: Mutex<HashMap<Did, Arc<Event>>>,
    /// The newest event when a connection last began with what was to come.
    live_from: AtomicU64,
    /// Counts what was sequenced, which wakes those who wait for more.
    grown: watch::Sender<u64>,
}

#[derive(Debug)]
struct Window {
    /// How often the sequence began anew.
    era: u64,
    /// The number of the next event.
    next: u64,
    /// The highest number that is no longer retained; 0 if there is none.
    discarded: u64,
    events: VecDeque<(u64, Arc<Event>)>,
}

/// How far a connection is: the number of the last event that it has had, and the era of that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sim) struct Position {
    pub(in crate::sim) era: u64,
    pub(in crate::sim) seq: u64,
}

/// Where a new connection begins.
#[derive(Debug)]
pub(in crate::sim) enum Start {
    /// After this position; `outdated` where the cursor asked for more than is retained, and the upstream says so.
    After { position: Position, outdated: bool },
    /// Nowhere: the cursor is yet to come, and the upstream says so.
    Future,
}

/// What there is for a connection.
#[derive(Debug)]
pub(in crate::sim) enum Next {
    /// These events, with their numbers.
    Events(Vec<(u64, Arc<Event>)>),
    /// Nothing yet.
    Nothing,
    /// Events that the connection has not had are no longer retained.
    Overtaken,
    /// The sequence began anew.
    Restarted,
}

impl Stream {
    pub(in crate::sim) fn new(place: Place, options: FirehoseOptions) -> Self {
        let window = Window { era: 0, next: options.first_seq.max(1), discarded: 0, events: VecDeque::new() };
        Self {
            place,
            options,
            window: Mutex::new(window),
            held: Mutex::default(),
            live_from: AtomicU64::new(0),
            grown: watch::Sender::new(0),
        }
    }

    /// Numbers an event, and then the one of its repo that was held back.
    pub(in crate::sim) fn push(&self, event: Arc<Event>) {
        let held = lock(&self.held).remove(&event.did);
        self.number(event);
        held.into_iter().for_each(|event| self.number(event));
    }

    /// Holds an event back until the next of its repo is numbered. If one is held already, this is the next.
    pub(in crate::sim) fn hold(&self, event: &Arc<Event>) {
        let mut held = lock(&self.held);
        if held.contains_key(&event.did) {
            drop(held);
            self.push(Arc::clone(event));
        } else {
            held.insert(event.did.clone(), Arc::clone(event));
        }
    }

    fn number(&self, event: Arc<Event>) {
        let mut window = lock(&self.window);
        let seq = window.next;
        window.next += 1;
        window.events.push_back((seq, event));
        while window.events.len() > self.options.window.max(1) {
            window.discarded = window.events.pop_front().map_or(0, |(seq, _)| seq);
        }
        drop(window);
        self.grown.send_modify(|grown| *grown += 1);
    }

    /// Retains no event of an account any more, as the reference implementation does when one is deleted.
    pub(in crate::sim) fn purge(&self, did: &Did) {
        lock(&self.window).events.retain(|(_, event)| event.did != *did);
    }

    /// Retains nothing, and numbers from 1 again.
    pub(in crate::sim) fn restart(&self) {
        let mut window = lock(&self.window);
        *window = Window { era: window.era + 1, next: 1, discarded: 0, events: VecDeque::new() };
        drop(window);
        self.grown.send_modify(|grown| *grown += 1);
    }

    /// Where a connection with this cursor begins (atproto.com/specs/event-stream, "Sequence Numbers").
    pub(in crate::sim) fn start(&self, cursor: Option<u64>) -> Start {
        let window = lock(&self.window);
        let head = window.next - 1;
        let at = |seq| Position { era: window.era, seq };
        match cursor {
            None => {
                self.live_from.store(head, Ordering::Release);
                Start::After { position: at(head), outdated: false }
            }
            Some(cursor) if cursor > head && self.options.silent => Start::After { position: at(head), outdated: false },
            Some(cursor) if cursor > head => Start::Future,
            Some(cursor) => {
                let last = if self.options.inclusive { cursor.saturating_sub(1) } else { cursor };
                let outdated = last < window.discarded;
                Start::After { position: at(last.max(window.discarded)), outdated: outdated && !self.options.silent }
            }
        }
    }

    /// Up to `most` events after a position.
    pub(in crate::sim) fn after(&self, position: Position, most: usize) -> Next {
        let window = lock(&self.window);
        if window.era != position.era {
            return Next::Restarted;
        }
        if position.seq < window.discarded {
            return Next::Overtaken;
        }
        let from = window.events.partition_point(|(seq, _)| *seq <= position.seq);
        let events: Vec<_> = window.events.range(from..).take(most).cloned().collect();
        if events.is_empty() { Next::Nothing } else { Next::Events(events) }
    }

    /// The number of the newest event; 0 if there is none.
    pub(in crate::sim) fn head(&self) -> u64 {
        lock(&self.window).next - 1
    }

    /// Whether a connection that has had nothing yet, and has begun with what was to come, has nothing to have up to this number.
    pub(in crate::sim) fn begins_after(&self, seq: u64) -> bool {
        self.live_from.load(Ordering::Acquire) >= seq
    }

    /// The position so many retained events before another.
    pub(in crate::sim) fn before(&self, position: Position, events: usize) -> Position {
        let window = lock(&self.window);
        let at = window.events.partition_point(|(seq, _)| *seq <= position.seq);
        let seq = match at.saturating_sub(events).checked_sub(1).and_then(|at| window.events.get(at)) {
            Some((seq, _)) => *seq,
            None => window.discarded,
        };
        Position { seq, ..position }
    }

    /// Changes whenever there is something new.
    pub(in crate::sim) fn grown(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }
}
