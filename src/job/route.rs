use super::{JobState, OpSet};
use crate::repo::Link;
use crate::syntax::Rev;

/// Where a repo stands: a rev, and the root of the tree at it, where known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The rev.
    pub rev: Rev,
    /// The root of the tree; none when the giver of an op set did not know it.
    pub data: Option<Link>,
}

/// What becomes of an op set that is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// It is in the buffer, durably, and will be delivered in order.
    Buffered {
        /// Whether the job is complete, so that a lane has to be told; in progress, its worker flushes.
        complete: bool,
    },
    /// The job waits for a checkout, which will contain it; the rev is remembered as `min_rev`.
    Discarded,
    /// The job, or its buffer, has it already.
    Stale,
    /// It does not start where the job stands, or the buffer is full: the job is enqueued again.
    Gap,
    /// The account is unavailable, and the rev is none that was not known: dropped.
    Unavailable,
    /// The account was unavailable, but has signed something new: the job is enqueued again, so that its host is asked whether it is back. Not kept; the rev is
    /// remembered as `min_rev`, so that the same op set does it once.
    Rearmed,
    /// There is no such job.
    Unknown,
}

/// How an op set relates to a position (I2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chain {
    /// The position has it already.
    Stale,
    /// It starts elsewhere: what lies between is not known.
    Gap,
    /// It starts exactly there.
    Apply,
}

/// Whether `op_set` starts where the repo stands. `None` stands for a repo of which nothing was checked out yet: only a gap can follow,
/// even on a first commit, because what the host sends later may lack what came before.
pub fn chain(stands: Option<Position>, op_set: &OpSet) -> Chain {
    let Some(stands) = stands else { return Chain::Gap };
    if op_set.rev <= stands.rev {
        return Chain::Stale;
    }
    let starts_here = match (op_set.prev_data, stands.data) {
        // An equal root is an equal repo, and another root is another repo, whatever `since` says.
        (Some(from), Some(here)) => from == here,
        (None, _) | (_, None) => op_set.since == Some(stands.rev),
    };
    if starts_here { Chain::Apply } else { Chain::Gap }
}

/// Where an op set goes that is handed in for a job in `state` at `stands`, with `tail` the position after the last op set of its buffer.
///
/// It never answers [`Route::Unknown`]; that the buffer is full, and that the rev re-arms an unavailable job, is for the store to find.
pub fn route(state: &JobState, stands: Option<Position>, tail: Option<Position>, op_set: &OpSet) -> Route {
    let stands = tail.or(stands);
    match state {
        JobState::Enqueued | JobState::Failed { .. } => Route::Discarded,
        JobState::Unavailable { .. } => Route::Unavailable,
        // Where the checkout will end is not known yet: the flush finds the gaps.
        JobState::InProgress if stands.is_some_and(|stands| op_set.rev <= stands.rev) => Route::Stale,
        JobState::InProgress => Route::Buffered { complete: false },
        JobState::Complete => match chain(stands, op_set) {
            Chain::Stale => Route::Stale,
            Chain::Gap => Route::Gap,
            Chain::Apply => Route::Buffered { complete: true },
        },
    }
}
