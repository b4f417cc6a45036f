//! Hands one delivery to the handler until it is acknowledged, or the attempts are used up.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::core::Core;
use super::error_chain;
use super::progress::add;
use crate::consumer::{Action, Delivery, HandlerError};

/// The pause after the first failed attempt; doubles with each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Long enough for a database to restart, short enough that a checkout need not be thrown away for it.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why a delivery was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undelivered {
    /// The program stops, or the repo is to be left alone.
    Stopped,
    /// The handler failed in every attempt; the last error in words.
    Handler(String),
}

/// Returns once the handler has acknowledged. What it rejected one by one is counted, and counts as acknowledged.
///
/// `stop` ends the pauses between attempts.
pub(super) async fn deliver(core: &Core, delivery: &Delivery, stop: &CancellationToken) -> Result<(), Undelivered> {
    if delivery.is_empty() {
        return Ok(());
    }
    let attempts = core.options.handler_attempts.get();
    let mut attempt = 1;
    loop {
        let answer = tokio::select! {
            () = core.abandon.cancelled() => return Err(Undelivered::Stopped),
            answer = tokio::time::timeout(core.options.handler_timeout, attempt_once(core, delivery)) => answer,
        };
        let failure = match answer {
            Ok(Ok(())) => {
                count(core, delivery);
                return Ok(());
            }
            Ok(Err(HandlerError::Reject(reason))) => {
                tracing::warn!(did = %delivery.did(), changes = delivery.len(), %reason, "the handler rejects a delivery");
                add(&core.counters.records_rejected, delivery.len());
                return Ok(());
            }
            Ok(Err(HandlerError::Retry(error))) => error_chain(error.as_ref()),
            Err(_) => format!("the handler took longer than {} ms", core.options.handler_timeout.as_millis()),
        };
        tracing::warn!(did = %delivery.did(), attempt, attempts, failure, "the handler does not acknowledge");
        if attempt == attempts {
            return Err(Undelivered::Handler(failure));
        }
        let pause = backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt as u32);
        tokio::select! {
            () = stop.cancelled() => return Err(Undelivered::Stopped),
            () = tokio::time::sleep(pause) => attempt += 1,
        }
    }
}

/// A handler that panics has not acknowledged. Were the panic let through, it would end the worker and leave its job in progress.
async fn attempt_once(core: &Core, delivery: &Delivery) -> Result<(), HandlerError> {
    match AssertUnwindSafe(core.handler.deliver(delivery)).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(format!("the handler panicked: {}", words.unwrap_or("without words")).into())
        }
    }
}

/// Counts what was acknowledged.
fn count(core: &Core, delivery: &Delivery) {
    let (mut created, mut updated, mut deleted) = (0, 0, 0);
    for change in delivery.changes() {
        match change.action() {
            Action::Create => created += 1,
            Action::Update => updated += 1,
            Action::Delete => deleted += 1,
        }
    }
    add(&core.counters.records_created, created);
    add(&core.counters.records_updated, updated);
    add(&core.counters.records_deleted, deleted);
    add(&core.counters.records_rejected, delivery.rejected() as usize);
}
