//! A worker: one claim of one repo, from its fetch to the moment it follows.

use std::sync::Arc;
use std::time::Instant;

use super::checkout::CheckoutFailure;
use super::checkout_delivery::{Interrupted, deliver_checkout};
use super::checkout_plan::PlanError;
use super::core::Core;
use super::flush::{self, Claim, Flushed, Unflushed, flush};
use super::open::Open;
use super::progress::add;
use super::tell::tell_account;
use crate::error_chain::error_chain;
use crate::fetch::{Disposition, Permit};
use crate::identity::Identity;
use crate::job::{FailureKind, Freshness, Job, JobEvent, Position, freshness, retry};
use crate::repo::Checkout;
use crate::store::{Advance, Standing, StoreError};
use crate::syntax::{Did, RecordPath};

/// How a claim ended that did not complete its job.
#[derive(Debug)]
enum End {
    /// The attempt failed.
    Failed { kind: FailureKind, failure: String, in_doubt: Vec<RecordPath> },
    /// No attempt was made, or not to its end: the program stops, or the account has moved.
    Released { in_doubt: Vec<RecordPath> },
    /// The host turned the request down for load.
    Refused,
    /// The job has an event of its own.
    Event(JobEvent, String),
    /// Somebody else acts on the job, or it is gone.
    Superseded,
    /// The store failed.
    Store(StoreError),
}

/// Looks up the host of a repo that the store does not know, and remembers it. A failure is recorded on the repo's job.
pub(super) async fn place(core: &Core, open: &Open) -> Option<String> {
    let did = open.did();
    let placed = tokio::select! {
        () = open.stop().cancelled() => return None,
        identity = core.fetcher.identity(did) => identity,
    };
    match placed {
        Ok(identity) => remember_host(core, &identity).await,
        Err(failure) => {
            unresolved(core, did, &failure).await;
            None
        }
    }
}

async fn remember_host(core: &Core, identity: &Identity) -> Option<String> {
    let host = core.fetcher.host(identity);
    match core.store.place(&identity.did, &host).await {
        Ok(()) => Some(host),
        Err(error) => {
            core.store_failed("remembering a host", &error);
            None
        }
    }
}

/// Backfills one repo whose host has admitted a request.
pub(super) async fn run(core: &Arc<Core>, open: &Open, host: &str, permit: Permit) {
    let did = open.did();
    let identity = tokio::select! {
        () = open.stop().cancelled() => return,
        identity = core.fetcher.identity(did) => identity,
    };
    match identity {
        Err(failure) => unresolved(core, did, &failure).await,
        Ok(identity) if core.fetcher.host(&identity) != host => {
            // The account has moved: its queue is another host's.
            remember_host(core, &identity).await;
            core.dispatch.notify_one();
        }
        Ok(identity) => {
            if let Some(job) = claim(core, did).await {
                let began = Instant::now();
                match backfill(core, open, &job, &identity, permit).await {
                    Ok(()) => {
                        add(&core.counters.checkouts_completed, 1);
                        tracing::info!(%did, host, elapsed_ms = began.elapsed().as_millis() as u64, "repo complete");
                    }
                    Err(end) => settle(core, &job, end).await,
                }
            }
        }
    }
    core.settled.notify_waiters();
}

async fn claim(core: &Core, did: &Did) -> Option<Job> {
    match core.store.claim(did, core.now()).await {
        // The builder has made sure that the store has one consumer.
        Ok(mut jobs) => jobs.pop(),
        Err(error) => {
            core.store_failed("claiming a job", &error);
            None
        }
    }
}

/// Records that the identity of an account was not to be had, which was found before its job was claimed.
async fn unresolved(core: &Core, did: &Did, failure: &CheckoutFailure) {
    if let Disposition::Refused(pause) = failure.disposition() {
        // The directory is busy. The job is not touched: no attempt was made.
        add(&core.counters.refused, 1);
        core.held.hold(did, pause);
    } else if let Some(job) = claim(core, did).await {
        settle(core, &job, end_of(failure)).await;
    }
    core.settled.notify_waiters();
}

fn end_of(failure: &CheckoutFailure) -> End {
    let text = error_chain(failure);
    match failure.disposition() {
        Disposition::Failed(kind) => End::Failed { kind, failure: text, in_doubt: Vec::new() },
        Disposition::Refused(_) => End::Refused,
        Disposition::Unavailable(status) => End::Event(JobEvent::Unavailable { status }, text),
    }
}

/// Checkout, delivery, flush. The claim is committed before the fetch begins, so every op set that is discarded before it is in the checkout.
async fn backfill(core: &Arc<Core>, open: &Open, job: &Job, identity: &Identity, permit: Permit) -> Result<(), End> {
    if !job.untold.is_empty() {
        tell(core, open, job.clone()).await?;
    }
    let fetched = tokio::select! {
        () = open.stop().cancelled() => return Err(End::Released { in_doubt: Vec::new() }),
        fetched = core.fetcher.fetch(identity, permit) => fetched,
    };
    let (checkout, own_host) = match fetched {
        Ok(fetched) => fetched,
        Err(failure) => return Err(not_fetched(core, identity, &failure).await),
    };
    add(&core.counters.checkout_bytes, checkout.bytes() as usize);
    let position = Position { rev: checkout.commit().rev(), data: Some(checkout.commit().data()) };
    let accept_older = is_restored(core, job, &checkout, own_host)?;
    let claim = Arc::new(Claim::of(job, open));
    if !job.account.is_active() {
        found(core, open, &claim).await?;
    }
    deliver_checkout(core, &claim, Arc::clone(&checkout)).await.map_err(|reason| interruption(reason, &checkout, identity))?;
    drop(checkout);
    let advance = Advance { position: Some(position), accept_older, finish: true, ..claim.advance() };
    let standing = core.store.advance(advance).await.map_err(End::Store)?;
    let flushed = match standing {
        Standing::Complete => return Ok(()),
        Standing::Held => flush(core, &claim, position, &mut 0).await.map_err(unflushed)?,
        Standing::Behind => Flushed::Behind,
        Standing::Ended | Standing::Superseded => Flushed::Superseded,
    };
    match flushed {
        Flushed::Complete => Ok(()),
        Flushed::Superseded => Err(End::Superseded),
        Flushed::Gap | Flushed::Behind => {
            add(&core.counters.checkouts_repeated, 1);
            Err(End::Event(JobEvent::Gap, String::new()))
        }
    }
}

/// The account was said to be gone, and its repo is there: the consumer is told before it gets the records.
async fn found(core: &Core, open: &Open, claim: &Claim) -> Result<(), End> {
    match core.store.advance(Advance { found: true, ..claim.advance() }).await.map_err(End::Store)? {
        Standing::Ended | Standing::Superseded => return Err(End::Superseded),
        Standing::Held | Standing::Complete | Standing::Behind => {}
    }
    match core.store.job(core.consumer, &claim.did).await.map_err(End::Store)? {
        Some(job) => tell(core, open, job).await,
        None => Err(End::Superseded),
    }
}

async fn tell(core: &Core, open: &Open, job: Job) -> Result<(), End> {
    match tell_account(core, job, open.stop()).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(End::Superseded),
        Err(reason) => Err(unflushed(flush::untold(reason))),
    }
}

/// What becomes of the job when the repo was not fetched.
async fn not_fetched(core: &Core, identity: &Identity, failure: &CheckoutFailure) -> End {
    match failure.disposition() {
        // Another than the account's host refused, a redirect's target: the pace of this host knows nothing of it.
        Disposition::Refused(pause) if matches!(failure, CheckoutFailure::Fetch(error) if error.host != core.fetcher.host(identity)) => {
            core.held.hold(&identity.did, pause);
            End::Refused
        }
        // A host that an account has left says so of it, too.
        Disposition::Unavailable(_) => match core.fetcher.identity_anew(&identity.did).await {
            Ok(now) if now.pds != identity.pds => {
                remember_host(core, &now).await;
                End::Released { in_doubt: Vec::new() }
            }
            Ok(_) => end_of(failure),
            // Where the account is now is not known, so that what this host says is not the last word on it.
            Err(unknown) => match unknown.disposition() {
                Disposition::Unavailable(_) => end_of(failure),
                Disposition::Failed(_) => end_of(&unknown),
                Disposition::Refused(pause) => {
                    core.held.hold(&identity.did, pause);
                    End::Refused
                }
            },
        },
        Disposition::Failed(_) | Disposition::Refused(_) => end_of(failure),
    }
}

/// Judges the age of a checkout (I8). `true`: it is older than what is known, and to be accepted all the same.
fn is_restored(core: &Core, job: &Job, checkout: &Checkout, own_host: bool) -> Result<bool, End> {
    let rev = checkout.commit().rev();
    let now = core.now();
    match freshness(rev, job.known_rev(), job.older, own_host, now) {
        Freshness::Fresh => Ok(false),
        Freshness::Restored => {
            add(&core.counters.restored, 1);
            if let Some(follow) = &core.follow {
                follow.recent.forget(&job.did);
            }
            tracing::warn!(did = %job.did, %rev, "the account's own host insists on an older rev: accepted");
            Ok(true)
        }
        Freshness::Older(seen) => {
            let failure = format!("the checkout is at {rev}, but {} is known", job.known_rev().unwrap_or(rev));
            match seen {
                Some(older) if own_host => {
                    let attempt = job.failures.saturating_add(1);
                    let retry_at = now.plus(retry::delay(FailureKind::Stale, attempt, seed(job)));
                    Err(End::Event(JobEvent::Older { older, attempt, retry_at }, failure))
                }
                Some(_) | None => Err(End::Failed { kind: FailureKind::Stale, failure, in_doubt: Vec::new() }),
            }
        }
    }
}

/// Spreads the retries of jobs that failed together.
fn seed(job: &Job) -> u64 {
    job.id.0 as u64 ^ (job.epoch.0 as u64) << 32
}

fn interruption(reason: Interrupted, checkout: &Checkout, identity: &Identity) -> End {
    let failed = |kind, failure: String| End::Failed { kind, failure, in_doubt: Vec::new() };
    match reason {
        Interrupted::Plan(PlanError::Checkout(error)) => {
            let kind = error.kind();
            let (did, host) = (checkout.commit().did().clone(), identity.pds.name().to_owned());
            failed(kind, error_chain(&CheckoutFailure::Repo { did, host, source: error }))
        }
        Interrupted::Plan(PlanError::Manifest(error)) => {
            End::Store(StoreError::Corrupt { what: format!("manifest of {}: {error}", checkout.commit().did()) })
        }
        Interrupted::Plan(PlanError::Store(error)) | Interrupted::Store(error) => End::Store(error),
        Interrupted::Handler(failure) => failed(FailureKind::Handler, failure),
        Interrupted::Local(died) => failed(FailureKind::Local, died.to_string()),
        Interrupted::Stopped => End::Released { in_doubt: Vec::new() },
        Interrupted::Superseded => End::Superseded,
    }
}

fn unflushed(reason: Unflushed) -> End {
    match reason {
        Unflushed::Handler { failure, in_doubt } => End::Failed { kind: FailureKind::Handler, failure, in_doubt },
        Unflushed::Stopped { in_doubt } => End::Released { in_doubt },
        Unflushed::Store(error) => End::Store(error),
    }
}

/// Records how a claim ended.
async fn settle(core: &Core, job: &Job, end: End) {
    let (event, failure, in_doubt) = match end {
        End::Superseded => return,
        End::Store(error) => {
            core.store_failed("backfilling a repo", &error);
            let kind = FailureKind::Local;
            let attempt = job.failures.saturating_add(1);
            let retry_at = core.now().plus(retry::delay(kind, attempt, seed(job)));
            (JobEvent::Failed { kind, attempt, retry_at }, error_chain(&error), Vec::new())
        }
        End::Failed { kind, failure, in_doubt } => {
            add(&core.counters.checkouts_failed, 1);
            let attempt = job.failures.saturating_add(1);
            let retry_at = core.now().plus(retry::delay(kind, attempt, seed(job)));
            (JobEvent::Failed { kind, attempt, retry_at }, failure, in_doubt)
        }
        End::Released { in_doubt } => (JobEvent::Released, String::new(), in_doubt),
        End::Refused => {
            add(&core.counters.refused, 1);
            (JobEvent::Released, String::new(), Vec::new())
        }
        End::Event(event, failure) => {
            if matches!(event, JobEvent::Unavailable { .. }) {
                add(&core.counters.unavailable, 1);
            }
            (event, failure, Vec::new())
        }
    };
    tracing::info!(did = %job.did, ?event, failure, "claim ended without completion");
    let is_unavailable = matches!(event, JobEvent::Unavailable { .. });
    // Without this row the job would stay in progress with nobody who acts on it.
    let settling = || core.store.settle(job.id, job.epoch, event.clone(), &failure, &in_doubt);
    if core.until_stored("settling a job", settling).await.is_err() {
        return;
    }
    if is_unavailable {
        // The consumer is to be told.
        core.lanes.ask(core, &job.did);
    }
    core.dispatch.notify_one();
}
