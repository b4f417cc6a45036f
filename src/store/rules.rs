//! What each verb does to one job: pure, and the same for every store.

use std::time::Duration;

use super::account_rules::Known;
use super::{Advance, Standing, StoreError, Totals};
use crate::job::{
    Account, Epoch, IllegalMove, Job, JobEvent, JobId, JobState, OlderRev, OpSet, Position, Route, Timestamp, UnavailableStatus, retry,
    route,
};
use crate::repo::Link;
use crate::syntax::Rev;

/// The longest failure text that is kept, in bytes.
const FAILURE_LEN: usize = 512;

/// The latest moment for which a job that has failed by `now` may be dated, with what clocks may differ by.
pub(super) fn latest_retry(now: Timestamp) -> Timestamp {
    now.plus(retry::CAP + Duration::from_secs(300))
}

/// The part of a job that the verbs change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) state: JobState,
    pub(super) epoch: Epoch,
    pub(super) rev: Option<Rev>,
    pub(super) data: Option<Link>,
    pub(super) min_rev: Option<Rev>,
    pub(super) older: Option<OlderRev>,
    pub(super) failures: u32,
    pub(super) failure: String,
    pub(super) known: Known,
    pub(super) records: u64,
    pub(super) buffered_op_sets: u64,
    pub(super) buffered_bytes: u64,
}

/// What is to happen to a job's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferAct {
    /// Nothing.
    Keep,
    /// The op set goes behind the last one.
    Push,
    /// All its rows go; their paths become an intent of this epoch.
    ToIntent(Epoch),
    /// All its rows go, and with them every intent and the whole manifest.
    Erase,
}

impl Body {
    /// A job that was just added.
    pub(super) fn new() -> Self {
        Self {
            state: JobState::Enqueued,
            epoch: Epoch(0),
            rev: None,
            data: None,
            min_rev: None,
            older: None,
            failures: 0,
            failure: String::new(),
            known: Known::new(),
            records: 0,
            buffered_op_sets: 0,
            buffered_bytes: 0,
        }
    }

    /// The job as the trait gives it out.
    pub(super) fn into_job(self, id: JobId, did: crate::syntax::Did, host: Option<String>) -> Job {
        let Body { state, epoch, rev, data, min_rev, older, failures, failure, known, records, buffered_op_sets, buffered_bytes } = self;
        let Known { account, untold, seqs: _ } = known;
        Job {
            id,
            did,
            state,
            epoch,
            rev,
            data,
            min_rev,
            older,
            failures,
            failure,
            host,
            account,
            untold,
            records,
            buffered_op_sets,
            buffered_bytes,
        }
    }

    /// When it may be claimed, if ever: at once when enqueued.
    pub(super) fn due_at(&self) -> Option<Timestamp> {
        match self.state {
            JobState::Enqueued => Some(Timestamp(0)),
            JobState::Failed { retry_at, .. } => Some(retry_at),
            JobState::InProgress | JobState::Complete | JobState::Unavailable { .. } => None,
        }
    }

    /// Whether whoever acts under `epoch` may.
    pub(super) fn is_held_by(&self, epoch: Epoch) -> bool {
        self.epoch == epoch && self.state.is_held()
    }

    /// Whether `after` differs only in what an op set changes when it goes into the buffer.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn is_but_for_its_buffer(&self, after: &Self) -> bool {
        let Self { min_rev, buffered_op_sets, buffered_bytes, .. } = *after;
        *after == Self { min_rev, buffered_op_sets, buffered_bytes, ..self.clone() }
    }

    fn position(&self) -> Option<Position> {
        self.rev.map(|rev| Position { rev, data: self.data })
    }

    /// Moves the job by an event.
    pub(super) fn on(&mut self, event: &JobEvent) -> Result<BufferAct, IllegalMove> {
        let next = self.state.on(event)?;
        let ended = self.epoch;
        let ends = self.state.is_held() && !next.is_held();
        self.state = next;
        match *event {
            JobEvent::Claimed => self.epoch = Epoch(ended.0 + 1),
            JobEvent::Failed { attempt, .. } => self.failures = attempt,
            JobEvent::Older { attempt, older, .. } => {
                self.failures = attempt;
                self.older = Some(older);
            }
            JobEvent::Finished => {
                self.failures = 0;
                self.failure.clear();
            }
            JobEvent::Unavailable { status } => self.known.learn(Account::Unavailable(status)),
            JobEvent::Wanted | JobEvent::Released | JobEvent::Abandoned | JobEvent::Gap => {}
        }
        if ends {
            self.epoch = Epoch(ended.0 + 1);
        }
        if matches!(event, JobEvent::Unavailable { status: UnavailableStatus::Deleted }) {
            return Ok(self.erase());
        }
        if !ends {
            return Ok(BufferAct::Keep);
        }
        Ok(self.empty_buffer(ended))
    }

    fn empty_buffer(&mut self, epoch: Epoch) -> BufferAct {
        if self.buffered_op_sets == 0 {
            return BufferAct::Keep;
        }
        (self.buffered_op_sets, self.buffered_bytes) = (0, 0);
        BufferAct::ToIntent(epoch)
    }

    /// [`super::Store::append`]: `tail` is the position after the last op set in the buffer, `bytes` what the op set would take there.
    pub(super) fn append(
        &mut self,
        tail: Option<Position>,
        op_set: &OpSet,
        bytes: u64,
        budget: u64,
    ) -> Result<(Route, BufferAct), IllegalMove> {
        let routed = route(&self.state, self.position(), tail, op_set);
        let is_new = Some(op_set.rev) > self.rev.max(self.min_rev);
        if routed != Route::Stale {
            self.min_rev = self.min_rev.max(Some(op_set.rev));
        }
        match routed {
            Route::Buffered { .. } if self.buffered_bytes.saturating_add(bytes) <= budget => {
                self.buffered_op_sets += 1;
                self.buffered_bytes += bytes;
                Ok((routed, BufferAct::Push))
            }
            Route::Buffered { complete: false } => Ok((Route::Gap, self.empty_buffer(self.epoch))),
            Route::Buffered { complete: true } | Route::Gap => Ok((Route::Gap, self.on(&JobEvent::Gap)?)),
            // The account has signed something that nobody knew of: it may be back. Its own host will say.
            Route::Unavailable if is_new => Ok((Route::Rearmed, self.on(&JobEvent::Wanted)?)),
            Route::Discarded | Route::Stale | Route::Unavailable | Route::Rearmed | Route::Unknown => Ok((routed, BufferAct::Keep)),
        }
    }

    /// [`super::Store::settle`], once it is known that `epoch` is the job's.
    pub(super) fn settle(&mut self, event: &JobEvent, failure: &str) -> Result<BufferAct, IllegalMove> {
        // Op sets that came during the claim are signed by the account: it may have moved, so that its former host was asked.
        let is_contradicted = self.state == JobState::InProgress && self.buffered_op_sets > 0;
        let act = match event {
            JobEvent::Unavailable { .. } if is_contradicted => self.on(&JobEvent::Released)?,
            event => self.on(event)?,
        };
        if !failure.is_empty() {
            self.failure = cut(failure);
        }
        Ok(act)
    }

    /// How the job stands after it was settled.
    pub(super) fn settled(&self) -> Standing {
        match self.state {
            JobState::Complete => Standing::Complete,
            JobState::InProgress => Standing::Held,
            JobState::Enqueued | JobState::Failed { .. } | JobState::Unavailable { .. } => Standing::Ended,
        }
    }

    /// The position of an [`Advance`].
    pub(super) fn advance(&mut self, advance: &Advance, tail: Option<Position>) -> Result<(), StoreError> {
        if let Some(failure) = &advance.failure {
            self.failure = cut(failure);
        }
        if advance.found {
            self.known.learn(Account::Active);
        }
        let Some(position) = advance.position else { return Ok(()) };
        if self.state == JobState::Complete {
            self.failure.clear();
        }
        match self.rev {
            Some(from) if position.rev < from && !advance.accept_older => {
                return Err(StoreError::RevMovesBack { job: advance.job, from, to: position.rev });
            }
            Some(_) | None => (self.rev, self.data, self.older) = (Some(position.rev), position.data, None),
        }
        if advance.accept_older {
            // What is still in the buffer was verified too: it is not part of the past that the host has lost.
            self.min_rev = Some(position.rev).max(tail.map(|tail| tail.rev));
        }
        Ok(())
    }

    /// The end of an [`Advance`], after all else of it: how the job stands (I3).
    pub(super) fn stand(&mut self, finish: bool) -> Result<Standing, IllegalMove> {
        match self.state {
            JobState::Complete => Ok(Standing::Complete),
            JobState::InProgress if !finish || self.buffered_op_sets > 0 => Ok(Standing::Held),
            JobState::InProgress if self.rev.is_none() || self.rev < self.min_rev => Ok(Standing::Behind),
            JobState::InProgress => self.on(&JobEvent::Finished).map(|_| Standing::Complete),
            JobState::Enqueued | JobState::Failed { .. } | JobState::Unavailable { .. } => Ok(Standing::Ended),
        }
    }
}

/// The text up to the last character that ends within the limit, without NUL, which not every database can hold.
pub(super) fn cut(text: &str) -> String {
    let text = text.replace('\0', "\u{fffd}");
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|&end| end <= FAILURE_LEN).last().unwrap_or(0);
    text[..end].to_owned()
}

/// Changes of [`Totals`], as differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) enqueued: i64,
    pub(super) in_progress: i64,
    pub(super) complete: i64,
    pub(super) failed: i64,
    pub(super) unavailable: i64,
    pub(super) records: i64,
    pub(super) buffered_op_sets: i64,
    pub(super) buffered_bytes: i64,
    pub(super) dropped_op_sets: i64,
    pub(super) untold: i64,
}

impl Tally {
    /// Counts a job `sign` times: -1 as it was, 1 as it is.
    pub(super) fn count(&mut self, body: &Body, sign: i64) {
        let signed = |number: u64| sign * i64::try_from(number).unwrap_or(i64::MAX);
        *match body.state {
            JobState::Enqueued => &mut self.enqueued,
            JobState::InProgress => &mut self.in_progress,
            JobState::Complete => &mut self.complete,
            JobState::Failed { .. } => &mut self.failed,
            JobState::Unavailable { .. } => &mut self.unavailable,
        } += sign;
        self.records += signed(body.records);
        self.buffered_op_sets += signed(body.buffered_op_sets);
        self.buffered_bytes += signed(body.buffered_bytes);
        self.untold += signed(u64::from(!body.known.untold.is_empty()));
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) fn add(&mut self, other: &Tally) {
        let pairs = self.fields_mut().into_iter().zip(other.fields());
        pairs.for_each(|(sum, part)| *sum += part);
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn fields(mut self) -> [i64; 10] {
        self.fields_mut().map(|field| *field)
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn fields_mut(&mut self) -> [&mut i64; 10] {
        let Tally {
            enqueued,
            in_progress,
            complete,
            failed,
            unavailable,
            records,
            buffered_op_sets,
            buffered_bytes,
            dropped_op_sets,
            untold,
        } = self;
        [enqueued, in_progress, complete, failed, unavailable, records, buffered_op_sets, buffered_bytes, dropped_op_sets, untold]
    }

    /// The sums. None when one is below zero, which no history leads to.
    pub(super) fn totals(&self) -> Option<Totals> {
        let number = |sum: i64| u64::try_from(sum).ok();
        Some(Totals {
            enqueued: number(self.enqueued)?,
            in_progress: number(self.in_progress)?,
            complete: number(self.complete)?,
            failed: number(self.failed)?,
            unavailable: number(self.unavailable)?,
            records: number(self.records)?,
            buffered_op_sets: number(self.buffered_op_sets)?,
            buffered_bytes: number(self.buffered_bytes)?,
            dropped_op_sets: number(self.dropped_op_sets)?,
            untold: number(self.untold)?,
        })
    }
}
