//! Hands something to the handler until it is acknowledged, or the attempts are used up.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::backoff;
use super::core::Core;
use super::progress::add;
use crate::consumer::{Action, Delivery, HandlerError};
use crate::error_chain::error_chain;
use crate::job::Account;
use crate::syntax::Did;

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

/// What the handler makes of something it was given, once and for all.
enum Answer {
    Acknowledged,
    Rejected,
}

/// Returns once the handler has acknowledged. What it rejected one by one is counted, and counts as acknowledged.
///
/// `stop` ends the pauses between attempts.
pub(super) async fn deliver(core: &Core, delivery: &Delivery, stop: &CancellationToken) -> Result<(), Undelivered> {
    if delivery.is_empty() {
        return Ok(());
    }
    match until_answered(core, delivery.did(), stop, || core.handler.deliver(delivery)).await? {
        Answer::Acknowledged => count(core, delivery),
        Answer::Rejected => add(&core.counters.records_rejected, delivery.len()),
    }
    Ok(())
}

/// Tells the handler of an account. Returns once it has acknowledged or rejected that.
pub(super) async fn tell(core: &Core, did: &Did, account: Account, stop: &CancellationToken) -> Result<(), Undelivered> {
    match until_answered(core, did, stop, || core.handler.tell(did, account)).await? {
        Answer::Acknowledged => add(&core.counters.accounts_told, 1),
        Answer::Rejected => add(&core.counters.accounts_rejected, 1),
    }
    Ok(())
}

async fn until_answered<'a>(
    core: &'a Core,
    did: &Did,
    stop: &CancellationToken,
    attempt: impl Fn() -> BoxFuture<'a, Result<(), HandlerError>>,
) -> Result<Answer, Undelivered> {
    let attempts = core.options.handler_attempts.get();
    let mut attempted = 1;
    loop {
        if !core.shares.are_certain() {
            return Err(Undelivered::Stopped);
        }
        let answer = tokio::select! {
            biased;
            () = core.abandon.cancelled() => return Err(Undelivered::Stopped),
            // Somebody else may be delivering the same.
            () = core.shares.lapsed() => return Err(Undelivered::Stopped),
            answer = tokio::time::timeout(core.options.handler_timeout, catching(attempt())) => answer,
        };
        let failure = match answer {
            Ok(Ok(())) => return Ok(Answer::Acknowledged),
            Ok(Err(HandlerError::Reject(reason))) => {
                tracing::warn!(%did, %reason, "the handler rejects what it was given");
                return Ok(Answer::Rejected);
            }
            Ok(Err(HandlerError::Retry(error))) => error_chain(error.as_ref()),
            Err(_) => format!("the handler took longer than {} ms", core.options.handler_timeout.as_millis()),
        };
        tracing::warn!(%did, attempt = attempted, attempts, failure, "the handler does not acknowledge");
        if attempted == attempts {
            return Err(Undelivered::Handler(failure));
        }
        let pause = backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempted as u32);
        tokio::select! {
            () = stop.cancelled() => return Err(Undelivered::Stopped),
            () = tokio::time::sleep(pause) => attempted += 1,
        }
    }
}

/// A handler that panics has not acknowledged. Were the panic let through, it would end the worker and leave its job in progress.
async fn catching(attempt: BoxFuture<'_, Result<(), HandlerError>>) -> Result<(), HandlerError> {
    match AssertUnwindSafe(attempt).catch_unwind().await {
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
