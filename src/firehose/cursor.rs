//! Whether what an upstream sends goes on where we stood.
//!
//! An upstream may no longer honour a cursor, and some do not say so: a relay begins at its oldest event or goes live without a word. So the
//! first events of a connection are compared with the last one that was taken. What cannot be told from an honest stream: an upstream that
//! restarted its sequence and has passed the old cursor by a little when we come back; the audit that a user may ask for finds what that hid.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::Resume;
use crate::job::Timestamp;
use crate::syntax::Seq;

/// How many of the latest events are remembered, so that one that comes again is known for certain; 16 KiB.
const REMEMBERED: usize = 1024;
/// How many events behind a jump are asked for their times: on a relay one host may claim any.
const WITNESSES: u32 = 8;

/// How far an upstream has been followed: an event, and how late it was by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedCursor {
    /// The number of the event.
    pub seq: Seq,
    /// The latest time that it or an event before it claimed, never ahead of our own clock. On a relay a single time is the word of any host.
    pub time: Timestamp,
}

/// When a stream counts as broken off.
///
/// A jump in `seq` alone is legitimate: an upstream removes the events of a deleted account. A jump in time alone is a quiet upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorRules {
    /// With [`CursorRules::far_time`]: the jump in `seq` above which a connection may not go on where the one before ended; the times of the first
    /// eight events decide. Default 1,000, which a relay passes in seconds; deleted accounts seldom leave a larger hole. Too low costs an audit, too high hides a small upstream's gap.
    pub far_seq: u64,
    /// With [`CursorRules::far_seq`]: the jump in time. Default 60 s; events of a busy upstream are never so far apart.
    pub far_time: Duration,
    /// The jump in `seq` that is doubted wherever it comes, and is a gap, whatever the time, when a new connection begins with it. Default 10,000,000:
    /// over an hour of the whole network.
    pub huge_seq: u64,
    /// How much newer than all before it an event with a lower `seq` may be. Beyond, the sequence was restarted; within, it is an event
    /// that was sent again. Default 5 min, the tolerance for clocks everywhere in this program.
    pub replay_slack: Duration,
}

impl Default for CursorRules {
    fn default() -> Self {
        Self { far_seq: 1_000, far_time: Duration::from_secs(60), huge_seq: 10_000_000, replay_slack: Duration::from_secs(300) }
    }
}

/// How an event, or a message about the cursor, relates to what was taken before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// It follows. The event is to be processed.
    Continuous,
    /// The event was taken before, or came late: it is not to be processed.
    Duplicate,
    /// Its number lies so far above all others that it is not believed: it is not to be processed, and the connection to be made anew. If the next one begins
    /// with such a number again, that is a [`GapReason::Far`].
    Doubtful,
    /// Something between is missing, and every repo that this upstream carries is in doubt. The event of [`GapReason::Far`] is to be processed.
    Gap(GapReason),
}

/// Why a stream does not go on where it was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// The upstream says that the cursor is older than what it retains. It goes on with the oldest.
    Outdated,
    /// The upstream says that it has not come as far as the cursor: its sequence was restarted.
    Future,
    /// What a connection begins with lies far behind the cursor in `seq`, and in time.
    Far {
        /// The cursor.
        from: Seq,
        /// The first event.
        to: Seq,
        /// The time between both, as claimed.
        elapsed: Duration,
    },
    /// An event below the cursor is another than the one that was there, or is newer than all that were taken: the sequence was restarted.
    Restarted {
        /// The highest event before.
        from: Seq,
        /// The event that showed it; it was not taken, and comes again.
        to: Seq,
    },
}

impl GapReason {
    /// The name in metrics and in the store.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Outdated => "outdated_cursor",
            Self::Future => "future_cursor",
            Self::Far { .. } => "far_from_cursor",
            Self::Restarted { .. } => "restarted_sequence",
        }
    }

    /// Whether the sequence is a new one, so that the connection must be made anew (it asks for the oldest event then) and what is in
    /// flight of the old sequence says nothing about the new one.
    pub fn is_new_sequence(&self) -> bool {
        match self {
            Self::Future | Self::Restarted { .. } => true,
            Self::Outdated | Self::Far { .. } => false,
        }
    }
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outdated => f.write_str("the upstream no longer retains the events after the cursor"),
            Self::Future => f.write_str("the upstream has not come as far as the cursor"),
            Self::Far { from, to, elapsed } => write!(f, "event {to} came first after {from}, {} s later", elapsed.as_secs()),
            Self::Restarted { from, to } => write!(f, "event {to} is newer than {from} was"),
        }
    }
}

/// The sequence of one upstream, over all its connections. Pure: the events are told to it, in the order of their arrival.
///
/// After a gap it goes on with the oldest event that is retained, so that the audit finds fewer repos that moved: after
/// [`GapReason::Outdated`] the upstream does that by itself, after [`GapReason::Far`] it has done so, and a new sequence is asked for from 0.
#[derive(Debug, Clone)]
pub struct Sequence {
    rules: CursorRules,
    /// The event with the highest number that was taken; none at a first start and after a gap.
    last: Option<SavedCursor>,
    /// What to ask for where nothing was taken.
    beginning: Resume,
    /// As long as it is open whether this connection goes on where the one before ended.
    opening: Option<Opening>,
    /// Whether an event was doubted and none was taken since.
    doubted: bool,
    /// The latest of the times that were claimed and not ahead of ours.
    newest: Timestamp,
    /// The latest events taken, in the order of their numbers, with the times that they claimed, if any.
    recent: VecDeque<(Seq, Option<Timestamp>)>,
}

/// What a connection is compared with.
#[derive(Debug, Clone, Copy)]
struct Opening {
    from: SavedCursor,
    /// How many events have told their time.
    witnesses: u32,
}

impl Opening {
    fn after(from: SavedCursor) -> Self {
        Self { from, witnesses: 0 }
    }
}

impl Sequence {
    /// Goes on after what was saved; none is a first start, which is no gap.
    pub fn new(rules: CursorRules, saved: Option<SavedCursor>) -> Self {
        let newest = saved.map_or(Timestamp(i64::MIN), |saved| saved.time);
        let opening = saved.map(Opening::after);
        Self { rules, last: saved, beginning: Resume::Live, opening, doubted: false, newest, recent: VecDeque::new() }
    }

    /// A new connection was made: what comes next is its first.
    pub fn connected(&mut self) {
        self.opening = self.last.map(Opening::after);
    }

    /// An event came, with the time that it claims, if it claims one; `now` is ours.
    pub fn event(&mut self, seq: Seq, time: impl Into<Option<Timestamp>>, now: Timestamp) -> Continuity {
        let claimed = time.into();
        let mut continuity = Continuity::Continuous;
        if let Some(last) = self.last {
            if seq <= last.seq {
                return self.again(last, seq, claimed, now);
            }
            let is_huge = seq.get() - last.seq.get() > self.rules.huge_seq;
            if is_huge && !(self.doubted && self.opening.is_some()) {
                self.doubted = true;
                return Continuity::Doubtful;
            }
            if let Some(opening) = self.opening.take() {
                continuity = self.opens(opening, seq, claimed, now);
            }
        }
        self.doubted = false;
        // What claims no time, or one that is still to come, is at least as old as the one before.
        self.newest = self.newest.max(claimed.unwrap_or(self.newest).min(now));
        let time = if self.newest == Timestamp(i64::MIN) { now } else { self.newest };
        self.last = Some(SavedCursor { seq, time });
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((seq, claimed));
        continuity
    }

    /// The upstream said `#info OutdatedCursor`. What it sends then is the oldest that it has, and is not compared with anything.
    ///
    /// Without a cursor that was taken it is no gap: some say so whenever they are asked for the oldest.
    pub fn outdated(&mut self) -> Continuity {
        self.broken_off(GapReason::Outdated)
    }

    /// The upstream ended the connection with the error `FutureCursor`. Without a cursor that was taken it is no gap.
    pub fn future(&mut self) -> Continuity {
        self.broken_off(GapReason::Future)
    }

    /// What follows cannot be read, however often it is asked for: it goes on with what happens from now on. That is a gap, which whoever says so
    /// has to make up for.
    pub fn step_over(&mut self) {
        self.forget(Resume::Live);
    }

    /// What the next connection is to ask for.
    pub fn resume(&self) -> Resume {
        self.last.map_or(self.beginning, |last| Resume::After(last.seq))
    }

    /// The highest event that was taken.
    pub fn last(&self) -> Option<SavedCursor> {
        self.last
    }

    /// Whether a connection that begins like this goes on where the one before ended; it stays open while there is too little to tell.
    fn opens(&mut self, opening: Opening, seq: Seq, claimed: Option<Timestamp>, now: Timestamp) -> Continuity {
        let Opening { from, witnesses } = opening;
        let jump = seq.get() - from.seq.get();
        if jump <= self.rules.far_seq {
            return Continuity::Continuous;
        }
        let elapsed = from.time.until(claimed.unwrap_or(from.time).min(now));
        if elapsed > self.rules.far_time || jump > self.rules.huge_seq {
            return Continuity::Gap(GapReason::Far { from: from.seq, to: seq, elapsed });
        }
        let witnesses = witnesses + u32::from(claimed.is_some());
        self.opening = (witnesses < WITNESSES).then_some(Opening { from, witnesses });
        Continuity::Continuous
    }

    /// An event that does not lie above the last one.
    fn again(&mut self, last: SavedCursor, seq: Seq, claimed: Option<Timestamp>, now: Timestamp) -> Continuity {
        let known = self.recent.binary_search_by_key(&seq, |(seq, _)| *seq).ok().and_then(|at| self.recent.get(at));
        let restarted = match (known, claimed) {
            (_, None) => false,
            (Some((_, before)), Some(_)) => *before != claimed,
            // A host may claim any time; ours bounds it, so that it cannot pass for newer than it can be.
            (None, Some(time)) => time.min(now) > self.newest.plus(self.rules.replay_slack),
        };
        if restarted { self.broken_off(GapReason::Restarted { from: last.seq, to: seq }) } else { Continuity::Duplicate }
    }

    fn broken_off(&mut self, reason: GapReason) -> Continuity {
        if self.last.is_none() {
            return Continuity::Continuous;
        }
        self.forget(Resume::Oldest);
        Continuity::Gap(reason)
    }

    fn forget(&mut self, beginning: Resume) {
        self.last = None;
        self.opening = None;
        self.doubted = false;
        self.beginning = beginning;
        self.newest = Timestamp(i64::MIN);
        self.recent.clear();
    }
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
