//! Flush: delivers the buffer of a job in order. The same code serves the end of a checkout and the lanes.

use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::deliver::{Undelivered, deliver};
use super::flush_plan::{FlushPlan, FlushRules};
use super::open::Open;
use super::progress::add;
use super::tell::{Untold, tell_account};
use crate::job::{BufferSeq, Epoch, Job, JobEvent, JobId, JobState, OpSet, Position};
use crate::store::{Advance, ManifestChange, Standing, StoreError};
use crate::syntax::{Did, RecordPath};

/// Bytes of op sets that are read from the buffer at once; a lane holds about twice as much.
const READ_BYTES: u64 = 1 << 20;

/// How a flush ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    /// The buffer is empty and the job complete.
    Complete,
    /// The buffer is empty, but the job stands below `min_rev`.
    Behind,
    /// An op set does not start where the job stands.
    Gap,
    /// The job is gone or another claim acts on it.
    Superseded,
}

/// Why a flush stopped before the buffer was empty.
#[derive(Debug)]
pub(super) enum Unflushed {
    /// The handler did not acknowledge; the paths may be in any state.
    Handler { failure: String, in_doubt: Vec<RecordPath> },
    /// The program stops.
    Stopped { in_doubt: Vec<RecordPath> },
    /// The store failed.
    Store(StoreError),
}

/// What [`flush_complete`] tells its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneEnd {
    /// The program stops.
    Stopped,
    /// The handler or the store failed; the buffer is still there.
    Failed,
}

/// The job that a flush moves.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) job: JobId,
    pub(super) epoch: Epoch,
    pub(super) did: Did,
    /// Cancelled when the program stops, or the repo is to be left alone.
    pub(super) stop: CancellationToken,
}

impl Claim {
    pub(super) fn of(job: &Job, open: &Open) -> Self {
        Self { job: job.id, epoch: job.epoch, did: job.did.clone(), stop: open.stop().clone() }
    }

    /// An advance that changes nothing yet.
    pub(super) fn advance(&self) -> Advance {
        Advance::new(self.job, self.epoch)
    }
}

/// Delivers the buffer until it is empty, and completes the job in the transaction that finds it so (I3).
///
/// `ops` counts what was delivered.
pub(super) async fn flush(core: &Core, claim: &Claim, mut position: Position, ops: &mut u64) -> Result<Flushed, Unflushed> {
    loop {
        let rows = core.store.buffered(claim.job, READ_BYTES).await.map_err(Unflushed::Store)?;
        if rows.is_empty() {
            match core.store.advance(Advance { finish: true, ..claim.advance() }).await.map_err(Unflushed::Store)? {
                Standing::Complete => return Ok(Flushed::Complete),
                Standing::Behind => return Ok(Flushed::Behind),
                Standing::Ended | Standing::Superseded => return Ok(Flushed::Superseded),
                Standing::Held => continue,
            }
        }
        let mut rows = rows.as_slice();
        while !rows.is_empty() {
            if claim.stop.is_cancelled() {
                return Err(Unflushed::Stopped { in_doubt: Vec::new() });
            }
            let rules = FlushRules { did: &claim.did, filter: &core.options.collections, max_changes: core.options.delivery_records.get() };
            let plan = FlushPlan::new(&rules, position, rows);
            position = plan.position;
            rows = behind(rows, plan.through);
            let gap = plan.gap;
            let delivered = plan.delivery.len() as u64;
            if matches!(apply(core, claim, plan).await?, Standing::Ended | Standing::Superseded) {
                return Ok(Flushed::Superseded);
            }
            *ops += delivered;
            if gap {
                return Ok(Flushed::Gap);
            }
        }
    }
}

/// Delivers one plan and records its acknowledgement.
async fn apply(core: &Core, claim: &Claim, plan: FlushPlan) -> Result<Standing, Unflushed> {
    let Some(through) = plan.through else { return Ok(Standing::Held) };
    if let Err(undelivered) = deliver(core, &plan.delivery, &claim.stop).await {
        let in_doubt = plan.edits.into_iter().map(|edit| edit.path).collect();
        return Err(match undelivered {
            Undelivered::Stopped => Unflushed::Stopped { in_doubt },
            Undelivered::Handler(failure) => Unflushed::Handler { failure, in_doubt },
        });
    }
    let counted = [
        (&core.counters.op_sets_flushed, plan.applied),
        (&core.counters.op_sets_overtaken, plan.stale),
        (&core.counters.ops_flushed, plan.delivery.len()),
        (&core.counters.ops_filtered, plan.filtered),
        (&core.counters.ops_bad, plan.bad),
    ];
    let advance = Advance {
        manifest: if plan.edits.is_empty() { ManifestChange::None } else { ManifestChange::Apply(plan.edits) },
        flushed: Some(through),
        position: Some(plan.position),
        ..claim.advance()
    };
    let standing = core.store.advance(advance).await.map_err(Unflushed::Store)?;
    // Whoever has superseded this has taken the rows out of the buffer, and counted them.
    if standing != Standing::Superseded {
        counted.into_iter().for_each(|(counter, by)| add(counter, by));
    }
    Ok(standing)
}

fn behind(rows: &[(BufferSeq, OpSet)], through: Option<BufferSeq>) -> &[(BufferSeq, OpSet)] {
    match through {
        Some(through) => &rows[rows.partition_point(|(seq, _)| *seq <= through)..],
        None => rows,
    }
}

/// Tells the consumer what is to be told of the account, and flushes a job that is complete; answers how many ops were delivered. Any other state is
/// somebody else's: no more is done.
pub(super) async fn flush_complete(core: &Core, open: &Open) -> Result<u64, LaneEnd> {
    let mut ops = 0;
    let flushed = flush_if_complete(core, open, &mut ops).await;
    core.settled.notify_waiters();
    match flushed {
        Ok(()) => Ok(ops),
        Err(Unflushed::Stopped { .. }) => Err(LaneEnd::Stopped),
        Err(Unflushed::Handler { .. }) => Err(LaneEnd::Failed),
        Err(Unflushed::Store(error)) => {
            core.store_failed("flushing a buffer", &error);
            Err(LaneEnd::Failed)
        }
    }
}

pub(super) fn untold(reason: Untold) -> Unflushed {
    match reason {
        Untold::Undelivered(Undelivered::Stopped) => Unflushed::Stopped { in_doubt: Vec::new() },
        Untold::Undelivered(Undelivered::Handler(failure)) => Unflushed::Handler { failure, in_doubt: Vec::new() },
        Untold::Store(error) => Unflushed::Store(error),
    }
}

/// Tells the process that has the host of a job that there is something to deliver.
async fn wake(core: &Core, job: &Job) -> Result<(), StoreError> {
    match core.store.fleet() {
        Some(fleet) if job.buffered_op_sets > 0 || !job.untold.is_empty() => fleet.wake(job.id).await,
        Some(_) | None => Ok(()),
    }
}

async fn flush_if_complete(core: &Core, open: &Open, ops: &mut u64) -> Result<(), Unflushed> {
    let Some(job) = core.store.job(core.consumer, open.did()).await.map_err(Unflushed::Store)? else { return Ok(()) };
    // The job may be another's to deliver; and it is he who is woken.
    let Some(_entered) = core.shares.enter(job.host.as_deref()) else { return wake(core, &job).await.map_err(Unflushed::Store) };
    let Some(job) = tell_account(core, job, open.stop()).await.map_err(untold)? else { return Ok(()) };
    let (JobState::Complete, Some(position)) = (&job.state, job.position()) else { return Ok(()) };
    let claim = Claim::of(&job, open);
    let flushed = flush(core, &claim, position, ops).await;
    if let Err(Unflushed::Handler { failure, .. }) = &flushed {
        let advance = Advance { failure: Some(failure.clone()), ..claim.advance() };
        core.store.advance(advance).await.map_err(Unflushed::Store)?;
    }
    match flushed? {
        Flushed::Complete | Flushed::Superseded => Ok(()),
        Flushed::Gap | Flushed::Behind => {
            add(&core.counters.checkouts_repeated, 1);
            core.store.settle(claim.job, claim.epoch, JobEvent::Gap, "", &[]).await.map_err(Unflushed::Store)?;
            Ok(())
        }
    }
}
