//! Which upstreams this process follows, where several share a store, and whether it knows of every repo that others add.
//!
//! A repo that another process has added is known here a moment later, and events that come in between are passed over. So it is recorded up to which job the repos are
//! known, and a checkout is not begun before. Who takes an upstream over finds jobs that the one before did not know of: of those whose checkouts had begun while nobody
//! followed the upstream, it is made again.

use std::sync::Arc;
use std::time::Duration;

use super::Follow;
use crate::engine::core::{Core, Stopped};
use crate::job::{Job, JobId, JobState};
use crate::store::{Fleet, StoreError};

/// How often it is looked which repos others have added.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Jobs that are read at once.
const PAGE: usize = 4096;

/// Begins to follow upstreams as this process gets them, until the program stops.
pub(super) async fn run(core: Arc<Core>, follow: Arc<Follow>, known: Option<JobId>) {
    let Some(fleet) = core.store.fleet() else { return };
    let mut leading = Leading { core: &core, follow: &follow, fleet, waiting: follow.names(), leads: false, known };
    let mut changes = core.shares.changes();
    loop {
        if leading.look().await.is_err() {
            return;
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            // The sender is the core's own.
            _ = changes.changed() => {}
            () = follow.added.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

struct Leading<'a> {
    core: &'a Arc<Core>,
    follow: &'a Arc<Follow>,
    fleet: &'a dyn Fleet,
    /// Upstreams that others follow.
    waiting: Vec<String>,
    /// Whether this process follows any.
    leads: bool,
    /// The repos of jobs up to this one are known.
    known: Option<JobId>,
}

impl Leading<'_> {
    async fn look(&mut self) -> Result<(), Stopped> {
        let gained: Vec<String>;
        (gained, self.waiting) = self.waiting.drain(..).partition(|name| self.core.shares.follows(name));
        for name in &gained {
            let before = self.core.until_stored("reading which repos were followed", || self.fleet.known(name)).await?;
            if let Some(before) = before {
                self.catch_up(Some(before), true).await?;
            }
        }
        self.leads |= !gained.is_empty();
        let before = self.known;
        if self.leads {
            self.catch_up(before, false).await?;
        }
        if let Some(known) = self.known.filter(|_| !gained.is_empty() || self.known != before) {
            self.core.until_stored("recording which repos are followed", || self.fleet.know(known)).await?;
            // They may be claimed now.
            self.core.dispatch.notify_one();
        }
        for name in gained {
            tracing::info!(upstream = name, "this process follows the firehose");
            if let Some(upstream) = self.follow.upstreams.iter().find(|upstream| upstream.name() == name) {
                self.core.until_stored("reading a cursor", || super::begin(self.core, self.follow, upstream)).await?;
            }
        }
        Ok(())
    }

    /// Gets to know the repos of all jobs after one. `missed`: the one before may have passed over events of them.
    async fn catch_up(&mut self, mut after: Option<JobId>, missed: bool) -> Result<(), Stopped> {
        loop {
            let read = || self.fleet.newcomers(self.core.consumer, after, PAGE);
            let jobs = self.core.until_stored("reading which jobs are new", read).await?;
            let Some(last) = jobs.last() else { break };
            let last = last.id;
            for job in &jobs {
                self.follow.tracked.insert(job.did.as_str());
                if missed {
                    self.core.until_stored("recording a gap", || self.late(job)).await?;
                }
            }
            after = Some(last);
            self.known = self.known.max(after);
        }
        Ok(())
    }

    /// A repo of which events may have been passed over.
    async fn late(&self, job: &Job) -> Result<(), StoreError> {
        match job.state {
            // Its checkout is still to begin.
            JobState::Enqueued | JobState::Failed { .. } => return Ok(()),
            JobState::InProgress | JobState::Complete => _ = self.core.store.gap(self.core.consumer, &job.did).await?,
            JobState::Unavailable { .. } => _ = self.core.store.want(self.core.consumer, &job.did).await?,
        }
        self.core.dispatch.notify_one();
        Ok(())
    }
}
