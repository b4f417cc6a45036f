//! The router: takes op sets in, and has the store decide and keep them in one transaction.

use std::collections::HashSet;

use super::core::Core;
use super::progress::add;
use crate::job::{OpAction, OpSet, Route};
use crate::repo::Link;
use crate::store::StoreError;
use crate::syntax::RecordPath;

/// An op set that no commit can be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpSetError {
    /// A record's bytes do not have the CID of its op.
    #[error("the record at {path} is not {cid}")]
    Cid {
        /// The record.
        path: RecordPath,
        /// The CID of the op.
        cid: Link,
    },
    /// Two ops for one record.
    #[error("more than one op for {path}")]
    Twice {
        /// The record.
        path: RecordPath,
    },
}

/// Checks what can be checked of an op set by itself.
pub(super) fn check(op_set: &OpSet) -> Result<(), OpSetError> {
    let mut paths = HashSet::with_capacity(op_set.ops.len());
    for op in &op_set.ops {
        match &op.action {
            OpAction::Create { cid, record } | OpAction::Update { cid, record } if Link::of(record) != *cid => {
                return Err(OpSetError::Cid { path: op.path.clone(), cid: *cid });
            }
            OpAction::Create { .. } | OpAction::Update { .. } | OpAction::Delete => {}
        }
        if !paths.insert(&op.path) {
            return Err(OpSetError::Twice { path: op.path.clone() });
        }
    }
    Ok(())
}

/// Routes an op set by the state of its job.
pub(super) async fn route(core: &Core, op_set: &OpSet) -> Result<Route, StoreError> {
    let route = core.store.append(core.consumer, op_set, core.options.buffer_bytes).await?;
    let counters = &core.counters;
    let counter = match route {
        Route::Buffered { complete } => {
            if complete {
                core.lanes.ask(core, &op_set.did);
            }
            add(&counters.ops_buffered, op_set.ops.len());
            &counters.op_sets_buffered
        }
        Route::Discarded => &counters.op_sets_discarded,
        Route::Stale => &counters.op_sets_stale,
        Route::Gap => {
            tracing::info!(did = %op_set.did, rev = %op_set.rev, "gap: to be checked out again");
            core.dispatch.notify_one();
            &counters.op_sets_gap
        }
        Route::Unavailable => &counters.op_sets_unavailable,
        Route::Rearmed => {
            tracing::info!(did = %op_set.did, rev = %op_set.rev, "an unavailable account has signed a commit: to be checked out again");
            core.dispatch.notify_one();
            &counters.op_sets_rearming
        }
        Route::Unknown => &counters.op_sets_unknown,
    };
    add(counter, 1);
    add(&counters.op_sets_received, 1);
    Ok(route)
}
