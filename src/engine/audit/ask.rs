//! Asks one host, at its pace, until it answers or is given up.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::super::backoff;
use super::super::core::Core;
use super::super::progress::add;
use super::verdict::Said;
use crate::error_chain::error_chain;
use crate::fetch::{Disposition, FetchError, Host, Latest, Permit, RepoPage, WaitReason};
use crate::job::{FailureKind, UnavailableStatus};
use crate::syntax::Did;

/// Attempts of one question.
const ATTEMPTS: u32 = 3;
/// Failures in a row after which a host is given up. With the pauses of the pace for a host that cannot be reached, some minutes.
const HOST_FAILURES: u32 = 6;
/// A host that only fails is given up after this long, however few attempts its pauses have allowed.
const FAILING: Duration = Duration::from_secs(15 * 60);
/// Refusals in a row after which a host is given up.
const REFUSALS: u32 = 30;
/// A host that wants to be left alone for longer than this is given up. A refusal passes, and checkouts would be refused as well.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);
/// Attempts to look up where a host is, and pauses between them.
const LOOK_UPS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Repos in a page of a listing: the most that hosts give.
const PAGE: u16 = 1000;

/// A host that is asked.
pub(super) struct Line {
    core: Arc<Core>,
    name: String,
    pds: Host,
    failures: u32,
    /// When it is given up if it goes on failing.
    deadline: Option<Instant>,
    refusals: u32,
    given_up: bool,
}

/// What came of a question.
enum Outcome<T> {
    Is(T),
    Unavailable(UnavailableStatus),
    Failed,
}

impl Line {
    /// A host by the name that the jobs of some repos have. The repos tell where it is; none when none of them does.
    pub(super) async fn find(core: &Arc<Core>, name: &str, repos: &[Did]) -> Option<Self> {
        // Those that have moved away say nothing of this host.
        let mut repos = repos.iter().take(LOOK_UPS as usize).cycle();
        for attempt in 1..=LOOK_UPS {
            match core.fetcher.identity(repos.next()?).await {
                Ok(identity) if core.fetcher.host(&identity) == name => return Some(Self::to(core, name, identity.pds.clone())),
                Ok(_) => {}
                Err(failure) => {
                    tracing::debug!(host = name, failure = error_chain(&failure), "audit: where the host is was not found out");
                    let pause = match failure.disposition() {
                        Disposition::Unavailable(_) => continue,
                        Disposition::Refused(pause) => pause.min(PATIENCE),
                        Disposition::Failed(_) => backoff::pause(FIRST_PAUSE * 5, LONGEST_PAUSE, attempt),
                    };
                    tokio::time::sleep(pause).await;
                }
            }
        }
        None
    }

    pub(super) fn to(core: &Arc<Core>, name: &str, pds: Host) -> Self {
        Self { core: Arc::clone(core), name: name.to_owned(), pds, failures: 0, deadline: None, refusals: 0, given_up: false }
    }

    /// The name that jobs have it under.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub(super) fn pds(&self) -> &Host {
        &self.pds
    }

    /// Whether it is not worth asking any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Where a repo stands.
    pub(super) async fn latest(&mut self, did: &Did) -> Said {
        let (core, pds) = (Arc::clone(&self.core), self.pds.clone());
        match self.ask(|permit| core.fetcher.source().latest_commit(did, &pds, permit)).await {
            Outcome::Is(Latest { rev, .. }) => Said::At(rev),
            Outcome::Unavailable(status) => Said::Inactive(Some(status)),
            Outcome::Failed => Said::Nothing,
        }
    }

    /// A page of its repos.
    pub(super) async fn page(&mut self, cursor: Option<&str>) -> Option<RepoPage> {
        let (core, pds) = (Arc::clone(&self.core), self.pds.clone());
        match self.ask(|permit| core.fetcher.source().list_repos(&pds, cursor, PAGE, permit)).await {
            Outcome::Is(page) => Some(page),
            Outcome::Unavailable(_) | Outcome::Failed => None,
        }
    }

    async fn ask<'a, T>(&mut self, request: impl Fn(Permit) -> BoxFuture<'a, Result<T, FetchError>>) -> Outcome<T> {
        let mut attempt = 1;
        while !self.given_up {
            let Some(permit) = self.admit().await else { break };
            let error = match request(permit).await {
                Ok(answer) => {
                    self.answered();
                    return Outcome::Is(answer);
                }
                Err(error) => error,
            };
            tracing::debug!(host = self.name, error = error_chain(&error), "audit: no answer");
            match error.disposition() {
                Disposition::Unavailable(status) => {
                    self.answered();
                    return Outcome::Unavailable(status);
                }
                Disposition::Refused(pause) => self.refused(&error, pause).await,
                // Asked again, it would say the same.
                Disposition::Failed(FailureKind::HttpClient) => return Outcome::Failed,
                Disposition::Failed(_) => {
                    self.failures += 1;
                    self.deadline.get_or_insert_with(|| Instant::now() + FAILING);
                    self.given_up = self.failures >= HOST_FAILURES;
                    if attempt >= ATTEMPTS {
                        return Outcome::Failed;
                    }
                    tokio::time::sleep(backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt)).await;
                    attempt += 1;
                }
            }
        }
        self.given_up = true;
        Outcome::Failed
    }

    fn answered(&mut self) {
        (self.failures, self.deadline, self.refusals) = (0, None, 0);
    }

    /// A refusal is no attempt: the pace knows how long the host is to be left alone.
    async fn refused(&mut self, error: &FetchError, pause: Duration) {
        add(&self.core.counters.refused, 1);
        self.refusals += 1;
        self.given_up = self.refusals >= REFUSALS;
        if error.host != self.name {
            // A redirect's target, of which the pace of this host knows nothing.
            tokio::time::sleep(pause.min(PATIENCE)).await;
        }
    }

    /// None when the host is paused for too long.
    async fn admit(&self) -> Option<Permit> {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
        match self.core.pace.admit_before(&self.name, deadline).await {
            Ok(permit) => Some(permit),
            Err(wait) => match wait.reason {
                WaitReason::Refused | WaitReason::Exhausted | WaitReason::Unreachable => None,
                // Others are asking it, which ends.
                WaitReason::Rate | WaitReason::InFlight | WaitReason::Global => Some(self.core.pace.admit(&self.name).await),
            },
        }
    }
}
