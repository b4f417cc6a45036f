//! One upstream: reads its frames, keeps its place, and passes on what is about repos that are followed.
//!
//! What comes in: frames. What goes out: events to the intake, an audit when the cursor is not honoured. Bounds: the intake's; while it is full, nothing is
//! read. Ends with the stop token.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Follow;
use super::intake::{self, Pending};
use super::source::Source;
use crate::engine::audit;
use crate::engine::core::{Core, Stopped};
use crate::engine::progress::add;
use crate::firehose::event::moment;
use crate::firehose::frame::{self, Frame};
use crate::firehose::{Arrival, ConnectionError, Continuity, Remedy, Resume, SavedCursor, Sequence, Subscription};
use crate::syntax::{Did, Seq};

/// What an upstream says in words is reported so often a connection, and cut to so many characters: it is the upstream's to choose.
const REMARKS: u32 = 10;
const REMARK: usize = 200;
/// Connections in a row that end at something unreadable before it is stepped over: it may be the same bytes every time.
const UNREADABLE: u32 = 3;

struct Following {
    core: Arc<Core>,
    follow: Arc<Follow>,
    source: Arc<Source>,
    subscription: Subscription,
    sequence: Sequence,
    /// Whether it counts among the upstreams of which nothing more can be missed.
    attached: bool,
    /// Why the next connection begins behind a gap. Its audit begins when that connection stands: what is committed after an answer of the audit comes over it.
    gap_before: Option<&'static str>,
    /// Connections in a row that ended at something unreadable.
    unreadable: u32,
    /// What the upstream has said in words on this connection.
    remarks: u32,
}

pub(super) async fn run(core: Arc<Core>, follow: Arc<Follow>, source: Arc<Source>, saved: Option<SavedCursor>) {
    let sequence = Sequence::new(follow.options.rules, saved);
    let mut subscription = follow.client.subscribe(source.upstream.clone());
    subscription.resume_from(sequence.resume());
    // Without a cursor nothing is known of what came before.
    let gap_before = saved.is_none().then_some("the first connection to an upstream");
    let mut following = Following { core, follow, source, subscription, sequence, attached: false, gap_before, unreadable: 0, remarks: 0 };
    if saved.is_some() {
        following.attach();
    }
    let stop = following.core.stop.clone();
    loop {
        let arrival = tokio::select! {
            () = stop.cancelled() => return,
            arrival = following.subscription.next() => arrival,
        };
        let went_on = match arrival {
            Arrival::Connected { asked, host } => following.connected(asked, host.name()).await,
            Arrival::Lost { error, pause } => {
                following.lost(&error, pause);
                Ok(())
            }
            Arrival::Frame(bytes) => following.frame(bytes).await,
        };
        if went_on.is_err() {
            return;
        }
    }
}

impl Following {
    async fn connected(&mut self, asked: Resume, host: &str) -> Result<(), Stopped> {
        tracing::info!(upstream = self.source.upstream.name(), %asked, host, "connected to a firehose");
        self.source.change(|standing| standing.connected = true);
        self.sequence.connected();
        self.remarks = 0;
        if let Some(reason) = self.gap_before {
            if !self.is_all_to_come().await? {
                self.audit(reason).await?;
            }
            self.gap_before = None;
        }
        self.attach();
        Ok(())
    }

    fn lost(&mut self, error: &ConnectionError, pause: Duration) {
        let text = crate::error_chain::error_chain(error);
        tracing::warn!(
            upstream = self.source.upstream.name(),
            error = text,
            pause_ms = pause.as_millis() as u64,
            "no connection to a firehose"
        );
        self.source.change(|standing| {
            standing.connected = false;
            standing.losses += 1;
            standing.failure = text;
        });
        if error.remedy() == Remedy::Unreadable {
            self.unreadable += 1;
        }
        if self.unreadable >= UNREADABLE {
            self.unreadable = 0;
            self.gap_before = Some("unreadable bytes in a firehose");
            self.sequence.step_over();
        }
        let resume = self.sequence.resume();
        if resume == Resume::Live {
            // Without an event there is no number to go on from: what happens until the next connection stands is not seen.
            self.gap_before.get_or_insert("a connection to a firehose ended before its first event");
        }
        self.subscription.resume_from(resume);
    }

    fn attach(&mut self) {
        if !std::mem::replace(&mut self.attached, true) {
            self.follow.attached.send_modify(|count| *count += 1);
        }
    }

    async fn frame(&mut self, bytes: Bytes) -> Result<(), Stopped> {
        add(&self.core.counters.events_received, 1);
        let frame = match frame::read(&bytes) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::warn!(upstream = self.source.upstream.name(), %error, "a frame is unreadable");
                add(&self.core.counters.events_unreadable, 1);
                self.unreadable += 1;
                self.subscription.reconnect("a frame is unreadable");
                return Ok(());
            }
        };
        match frame {
            Frame::Info { name: "OutdatedCursor", .. } => {
                add(&self.core.counters.events_passed, 1);
                let continuity = self.sequence.outdated();
                self.check(continuity).await.map(drop)
            }
            Frame::Error { name: "FutureCursor", .. } => {
                add(&self.core.counters.events_passed, 1);
                let continuity = self.sequence.future();
                self.check(continuity).await?;
                self.subscription.reconnect("the cursor is in the future");
                Ok(())
            }
            Frame::Info { name, message } => {
                add(&self.core.counters.events_passed, 1);
                self.remark(name, message);
                Ok(())
            }
            Frame::Error { name, message } => {
                add(&self.core.counters.events_passed, 1);
                self.remark(name, message);
                // Nothing follows an error (atproto.com/specs/event-stream, "Framing").
                self.subscription.reconnect("the upstream says that it has failed");
                Ok(())
            }
            frame => self.event(&frame, &bytes).await,
        }
    }

    async fn event(&mut self, frame: &Frame<'_>, bytes: &Bytes) -> Result<(), Stopped> {
        let Some(seq) = frame.seq() else {
            self.malformed();
            return Ok(());
        };
        let now = self.core.clock.time_of_day();
        let continuity = self.sequence.event(seq, frame.time().and_then(moment), now);
        match continuity {
            Continuity::Continuous | Continuity::Gap(_) => {}
            Continuity::Duplicate => {
                add(&self.core.counters.events_repeated, 1);
                return Ok(());
            }
            Continuity::Doubtful => {
                add(&self.core.counters.events_passed, 1);
                tracing::warn!(upstream = self.source.upstream.name(), %seq, "a sequence number far beyond all others");
                self.subscription.reconnect("a sequence number far beyond all others");
                return Ok(());
            }
        }
        if self.check(continuity).await? {
            add(&self.core.counters.events_passed, 1);
            self.subscription.reconnect("the sequence has begun anew");
            return Ok(());
        }
        self.subscription.progressed();
        self.unreadable = 0;
        let time = self.sequence.last().map_or(now, |last| last.time);
        self.take(frame, seq, time, bytes).await
    }

    fn remark(&mut self, name: &str, message: Option<&str>) {
        self.remarks = self.remarks.saturating_add(1);
        if self.remarks > REMARKS {
            return;
        }
        let cut = |text: &str| text.chars().take(REMARK).collect::<String>();
        tracing::warn!(upstream = self.source.upstream.name(), name = cut(name), message = message.map(cut), "the upstream says");
    }

    /// Acts upon a break in the sequence. `true`: the event that showed it is of a new sequence, which has to be asked for from its beginning.
    async fn check(&mut self, continuity: Continuity) -> Result<bool, Stopped> {
        let Continuity::Gap(reason) = continuity else { return Ok(false) };
        self.source.change(|standing| standing.gaps += 1);
        self.audit(&format!("{}: {reason}", self.source.upstream.name())).await?;
        if reason.is_new_sequence() {
            let restart = || self.core.store.restart_upstream(self.source.upstream.name());
            let id = self.core.until_stored("forgetting a cursor", restart).await?;
            self.source.restart(id);
        }
        self.follow.gap(reason.as_str());
        Ok(reason.is_new_sequence())
    }

    /// Whether no checkout has begun yet, so that none can be older than this connection.
    async fn is_all_to_come(&self) -> Result<bool, Stopped> {
        let totals = self.core.until_stored("reading how many repos there are", || self.core.store.totals(self.core.consumer)).await?;
        Ok(totals.in_progress + totals.complete + totals.failed + totals.unavailable == 0)
    }

    /// Has every repo audited; returns once that is durable, so that no cursor is saved beyond the gap before.
    async fn audit(&self, reason: &str) -> Result<(), Stopped> {
        self.core.until_stored("recording a gap in a firehose", || audit::begin(&self.core, reason)).await
    }

    async fn take(&self, frame: &Frame<'_>, seq: Seq, time: crate::job::Timestamp, bytes: &Bytes) -> Result<(), Stopped> {
        let counters = &self.core.counters;
        let interest = match frame {
            Frame::Unknown { .. } => {
                add(&counters.events_unknown, 1);
                None
            }
            Frame::Malformed(event) => {
                tracing::debug!(upstream = self.source.upstream.name(), %seq, field = event.field, "an event is malformed");
                self.malformed();
                None
            }
            frame => self.interest(frame),
        };
        let Some((did, is_new)) = interest else {
            self.source.pass(seq, time);
            return Ok(());
        };
        let room = tokio::select! {
            () = self.core.stop.cancelled() => return Err(Stopped),
            room = self.follow.intake.room(bytes) => room,
        };
        add(&counters.events_taken, 1);
        let taken = self.source.take(seq, time);
        // A copy: the message may be a small part of a large buffer of the connection.
        let copy = Some(Bytes::copy_from_slice(bytes));
        let is_replaceable = matches!(frame, Frame::Commit(_) | Frame::Sync(_));
        let pending = Pending { frame: copy, source: Arc::clone(&self.source), taken, is_new, is_replaceable, room };
        intake::take(&self.core, &self.follow.intake, did, pending);
        Ok(())
    }

    /// The repo of an event, if it is followed or now begins to be. A `true` with it: it is new.
    fn interest(&self, frame: &Frame<'_>) -> Option<(Did, bool)> {
        let counters = &self.core.counters;
        let did = frame.did()?;
        let is_tracked = self.follow.tracked.contains(did);
        let is_taken = is_tracked
            || match frame {
                Frame::Commit(event) => self.follow.options.track.takes(event),
                Frame::Sync(_) => self.follow.options.track == super::Track::Seen,
                Frame::Account(event) => event.active && self.follow.options.track == super::Track::Seen,
                _ => false,
            };
        if !is_taken {
            add(&counters.events_untracked, 1);
            return None;
        }
        let Ok(did) = Did::new(did) else {
            self.malformed();
            return None;
        };
        // Before it is in the store, so that no event can slip through in between.
        let is_new = !is_tracked && self.follow.tracked.insert(did.as_str());
        Some((did, is_new))
    }

    fn malformed(&self) {
        add(&self.core.counters.events_malformed, 1);
    }
}
