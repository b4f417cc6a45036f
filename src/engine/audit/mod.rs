//! The audit: compares where every job stands with what its host reports, and has those checked out again that have moved.
//!
//! Due after a gap in the firehose, where commits may have been missed of any repo. What comes in: an audit that the store remembers.
//! What goes out: [`Store::want`](crate::store::Store::want). A crash or a stop interrupts it at its last checkpoint, and the next process goes on there; a second
//! gap while it runs has it begin anew, because what it is done with may have moved since.
//!
//! Where several processes share a store, each audits what it has, from the first job: the audit ends when that is done with all hosts.
//!
//! Looked at are complete jobs, and unavailable ones, whose account may have become active meanwhile. One that waits for a checkout is left alone, because
//! its checkout begins later than the audit did; one in the middle of a checkout is looked at when that is over, because its repo may have been fetched before the gap.
//!
//! | the host says | a complete job | an unavailable job |
//! |---|---|---|
//! | a rev above what is known | checked out again | checked out |
//! | that rev, or a lower one (a mirror that lags) | left alone | checked out |
//! | deactivated, taken down, deleted, not found | checked out again, which finds a new host or the reason | left alone, if the account is still that host's, and the reason no other |
//! | nothing in the end, or what makes no sense | checked out again, to be sure | the same |

mod ask;
mod hosts;
mod list;
mod scope;
mod verdict;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use self::scope::Scope;
use self::walk::Audit;
use super::backoff;
use super::core::Core;
use crate::store::{AuditState, StoreError};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often it is looked whether another process has begun an audit, or left a part of one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Has all jobs audited, from the first, whatever audit is under way. Durable once this returns.
///
/// After a gap, to be called when the connection that ended it stands: what is committed after an answer of the audit comes over that.
pub(super) async fn begin(core: &Core, reason: &str) -> Result<(), StoreError> {
    core.store.audit_begin(core.consumer, reason, core.now()).await?;
    tracing::warn!(reason, "every repo is to be audited");
    core.audit.notify_one();
    Ok(())
}

/// Runs audits, the one that a former process left first, until the program stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut failures = 0;
    loop {
        let ran = tokio::select! {
            () = core.stop.cancelled() => return,
            // Another has begun: all that this one has found out is in the store.
            () = core.audit.notified() => continue,
            ran = run_one(&core) => ran,
        };
        let wait = match ran {
            Ok(true) => continue,
            Ok(false) if core.store.fleet().is_some() => LOOK_EVERY,
            Ok(false) => Duration::MAX,
            Err(error) => {
                core.store_failed("auditing", &error);
                failures += 1;
                backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, failures)
            }
        };
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.audit.notified() => failures = 0,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Runs the audit that is due, if one is. `false`: none is.
async fn run_one(core: &Arc<Core>) -> Result<bool, StoreError> {
    let Some(state) = core.store.audit(core.consumer).await? else { return Ok(false) };
    let AuditState { id, ref reason, after, passed, .. } = state;
    let scope = Scope::of(core, id).await?;
    if scope.is_empty() {
        // All that is left of it is other processes'; or nothing, when several were done with the last at the same time.
        if let Some(fleet) = core.store.fleet() {
            fleet.audited(core.consumer, id, &[]).await?;
        }
        return Ok(false);
    }
    tracing::info!(reason, passed, "audit {}", if after.is_some() { "goes on" } else { "begins" });
    let before = core.counters.read();
    let mut audit = Audit::new(Arc::clone(core), &state, scope);
    if audit.walk().await? && audit.end().await? {
        let now = core.counters.read();
        let (audited, moved) = (now.audited - before.audited, now.audit_moved - before.audit_moved);
        let failed = now.audit_failed - before.audit_failed;
        tracing::info!(reason, audited, moved, failed, "audit ended");
        core.settled.notify_waiters();
    }
    Ok(true)
}
