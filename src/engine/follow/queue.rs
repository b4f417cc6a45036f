//! The events of one repo that wait, in order, and the one that is worked on.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::intake::{Next, Pending};

/// What an event takes of `pending_bytes` beside its frame.
pub(super) const OVERHEAD: u32 = 256;

#[derive(Debug, Default)]
pub(super) struct Queue {
    events: VecDeque<Pending>,
    /// Of the frames that a checkout makes up for.
    bytes: usize,
    /// Why events have lost their frames, the last time.
    given_up: &'static str,
    at_work: AtWork,
}

/// What is kept of the events that somebody works on.
#[derive(Debug, Default)]
struct AtWork {
    room: Vec<OwnedSemaphorePermit>,
    /// Of the frames that a checkout makes up for.
    bytes: usize,
    /// Cancelled when they are given up; none before anybody waits for that.
    given_up: Option<CancellationToken>,
}

impl Queue {
    /// Takes an event in. Returns the bytes that a checkout would make up for.
    pub(super) fn push(&mut self, pending: Pending) -> usize {
        self.bytes += bytes(&pending);
        self.events.push_back(pending);
        self.bytes
    }

    /// Hands out the next event, or all in a row that were given up. The room of those handed out before is free from now on.
    pub(super) fn next(&mut self) -> Option<Next> {
        self.at_work = AtWork::default();
        let given_up = self.events.iter().take_while(|pending| pending.frame.is_none()).count();
        let mut events: Vec<Pending> = self.events.drain(..given_up.max(1).min(self.events.len())).collect();
        self.at_work.bytes = events.iter().map(bytes).sum();
        self.at_work.room = events.iter_mut().filter_map(|pending| pending.room.permit.take()).collect();
        self.bytes -= self.at_work.bytes;
        (!events.is_empty()).then_some(Next { events, given_up: self.given_up })
    }

    /// What giving the repo up would free.
    pub(super) fn replaceable(&self) -> usize {
        self.bytes + self.at_work.bytes
    }

    /// Takes the frames of what waits, and gives their room back at once. What a checkout does not make up for stays.
    pub(super) fn give_up(&mut self, reason: &'static str) {
        self.given_up = reason;
        self.bytes = 0;
        for pending in self.events.iter_mut().filter(|pending| pending.is_replaceable && pending.frame.is_some()) {
            pending.frame = None;
            if let Some(permit) = &mut pending.room.permit {
                let spare = permit.num_permits().saturating_sub(OVERHEAD as usize);
                drop(permit.split(spare));
            }
        }
    }

    /// Has whoever works on an event let go of it, and gives its room back at once. Nothing where a checkout does not make up for it.
    pub(super) fn give_up_what_is_at_work(&mut self) {
        if std::mem::take(&mut self.at_work.bytes) > 0 {
            self.at_work.room.clear();
            self.wait().cancel();
        }
    }

    /// Cancelled when what is worked on is given up.
    pub(super) fn wait(&mut self) -> CancellationToken {
        self.at_work.given_up.get_or_insert_default().clone()
    }
}

/// What a checkout makes up for.
fn bytes(pending: &Pending) -> usize {
    pending.frame.as_ref().filter(|_| pending.is_replaceable).map_or(0, Bytes::len)
}
