use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::firehose::{SavedCursor, Ticket, Upstream, UpstreamKind, Watermark};
use crate::job::Timestamp;
use crate::store::UpstreamId;
use crate::syntax::Seq;

/// One upstream as the parts that follow it share it: how far its events are settled, and how it is doing.
#[derive(Debug)]
pub(in crate::engine) struct Source {
    pub(super) upstream: Upstream,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    id: UpstreamId,
    watermark: Watermark,
    standing: UpstreamProgress,
}

/// How an upstream is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamProgress {
    /// Host, port and path.
    pub name: String,
    /// Whose events it carries.
    pub kind: UpstreamKind,
    /// Whether a connection is open.
    pub connected: bool,
    /// The last event that was taken, and the moment that the upstream says it was emitted. The lag is the time since.
    pub last: Option<SavedCursor>,
    /// The event at and below which everything is settled: recorded, delivered, or known to be nothing. What is saved as the cursor.
    pub settled: Option<SavedCursor>,
    /// Events that were taken and are not settled yet.
    pub in_flight: usize,
    /// Connections lost or not to be had, since the start of this process.
    pub losses: u64,
    /// Why there was no connection last, in words; empty if there always was one.
    pub failure: String,
    /// Cursors that the upstream did not honour, since the start of this process: each has had all repos audited.
    pub gaps: u64,
}

/// An event that was taken and is not settled yet.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) seq: Seq,
    /// The sequence that it belongs to.
    pub(super) id: UpstreamId,
    ticket: Ticket,
}

impl Source {
    pub(super) fn new(upstream: Upstream, id: UpstreamId, saved: Option<SavedCursor>) -> Self {
        let standing = UpstreamProgress {
            name: upstream.name().to_owned(),
            kind: upstream.kind(),
            connected: false,
            last: saved,
            settled: saved,
            in_flight: 0,
            losses: 0,
            failure: String::new(),
            gaps: 0,
        };
        Self { upstream, state: Mutex::new(State { id, watermark: Watermark::new(saved), standing }) }
    }

    /// Takes an event that is to be settled later.
    pub(super) fn take(&self, seq: Seq, time: Timestamp) -> Taken {
        let mut state = self.lock();
        state.standing.last = Some(SavedCursor { seq, time });
        Taken { seq, id: state.id, ticket: state.watermark.begin(seq, time) }
    }

    /// Takes an event that needs nothing done.
    pub(super) fn pass(&self, seq: Seq, time: Timestamp) {
        let mut state = self.lock();
        state.standing.last = Some(SavedCursor { seq, time });
        let ticket = state.watermark.begin(seq, time);
        state.watermark.end(ticket);
    }

    /// Everything that had to be done about an event is durable (I5).
    pub(super) fn settle(&self, taken: Taken) {
        self.lock().watermark.end(taken.ticket);
    }

    /// The sequence has begun anew, under another id.
    pub(super) fn restart(&self, id: UpstreamId) {
        let mut state = self.lock();
        state.id = id;
        state.watermark.restart();
        state.standing.last = None;
    }

    /// Where the watermark is, and of which sequence.
    pub(super) fn watermark(&self) -> (UpstreamId, Option<SavedCursor>) {
        let state = self.lock();
        (state.id, state.watermark.watermark())
    }

    pub(super) fn in_flight(&self) -> usize {
        self.lock().watermark.in_flight()
    }

    pub(super) fn change(&self, act: impl FnOnce(&mut UpstreamProgress)) {
        act(&mut self.lock().standing);
    }

    pub(super) fn progress(&self) -> UpstreamProgress {
        let state = self.lock();
        UpstreamProgress { settled: state.watermark.watermark(), in_flight: state.watermark.in_flight(), ..state.standing.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
