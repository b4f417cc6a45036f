//! Waiting for servers that refuse for load or cannot be reached, and saying so.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::report::say;
use crate::engine::CheckoutFailure;
use crate::fetch::{Disposition, Pace, Permit, WaitReason};
use crate::identity::ResolveError;
use crate::syntax::Did;

/// How long is waited for one repo in all, and how long a server that was waited for in vain is not waited for again.
pub(super) const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Waiting for less is not worth a word.
const QUIET: Duration = Duration::from_secs(3);

/// Why a repo, or the key of one, was not to be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotHad {
    /// The one attempt that counts failed.
    #[error(transparent)]
    Checkout(#[from] CheckoutFailure),
    /// The host could not even be asked in time.
    #[error("{did} from {host}: waited for in vain: the host {}", words(*reason))]
    InVain {
        /// The repo.
        did: Did,
        /// Its host.
        host: String,
        /// What was waited for last.
        reason: WaitReason,
    },
}

impl From<ResolveError> for NotHad {
    fn from(error: ResolveError) -> Self {
        Self::Checkout(error.into())
    }
}

impl NotHad {
    /// Who refused for load, and for how long; none if it is another failure.
    fn refusal(&self) -> Option<(&str, Duration)> {
        let Self::Checkout(failure) = self else { return None };
        let Disposition::Refused(pause) = failure.disposition() else { return None };
        match failure {
            CheckoutFailure::Resolve(error) => Some((&error.server, pause)),
            CheckoutFailure::Fetch(error) => Some((&error.host, pause)),
            CheckoutFailure::Repo { .. } | CheckoutFailure::Local { .. } => None,
        }
    }
}

/// The patience of one run.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Servers that were waited for in vain, and since when they are not any more.
    given_up: Mutex<HashMap<String, Instant>>,
}

impl Patience {
    /// The patience with one repo, which begins now.
    pub(super) fn with<'a>(&'a self, did: &'a Did) -> Waiting<'a> {
        Waiting { patience: self, did, deadline: Instant::now() + PATIENCE }
    }

    /// A server serves again, so that it is worth waiting for.
    pub(super) fn restore(&self, server: &str) {
        self.lock().remove(server);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is waited for on behalf of one repo.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    patience: &'a Patience,
    did: &'a Did,
    deadline: Instant,
}

impl Waiting<'_> {
    /// Makes attempts until one is not refused for load: that is no failure, the server is asked again when it is ready.
    ///
    /// # Errors
    /// What the last attempt met with: something other than a refusal, or a refusal that lasts too long.
    pub(super) async fn attempt<T, F: Future<Output = Result<T, NotHad>>>(&self, attempt: impl Fn() -> F) -> Result<T, NotHad> {
        loop {
            let error = match attempt().await {
                Ok(had) => return Ok(had),
                Err(error) => error,
            };
            let Some((server, pause)) = error.refusal() else { return Err(error) };
            // Servers that name no pause at all are not asked in a tight loop.
            let pause = pause.max(Duration::from_secs(1));
            if !self.bears(server, Instant::now() + pause) {
                return Err(error);
            }
            say(format_args!("{}: {server} refused for load, asked again in {} s", self.did, seconds(pause)));
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until the pace lets a request to the host through.
    ///
    /// # Errors
    /// [`NotHad::InVain`], as soon as it is certain that it will not in time.
    pub(super) async fn admit(&self, pace: &Pace, host: &str) -> Result<Permit, NotHad> {
        let mut quiet = Instant::now() + QUIET;
        let mut said = None;
        loop {
            let wait = match pace.admit_before(host, quiet.min(self.deadline)).await {
                Ok(permit) => return Ok(permit),
                Err(wait) => wait,
            };
            let now = Instant::now();
            let until = wait.until.unwrap_or(now).max(now);
            let of_host = matches!(wait.reason, WaitReason::Refused | WaitReason::Exhausted | WaitReason::Unreachable);
            let goes_on = now < self.deadline && until <= self.deadline;
            if of_host && !self.bears(host, until) || !goes_on {
                return Err(NotHad::InVain { did: self.did.clone(), host: host.to_owned(), reason: wait.reason });
            }
            // Of the waits for this run's own requests, each kind is worth one line; of a host's pauses, each.
            let news = (wait.reason, wait.until.filter(|_| of_host));
            if said.replace(news) != Some(news) {
                self.say(host, wait.reason, until - now);
            }
            quiet = until + QUIET;
        }
    }

    fn say(&self, host: &str, reason: WaitReason, pause: Duration) {
        let pause = if pause.is_zero() { String::new() } else { format!(", for {} s", seconds(pause)) };
        say(format_args!("{}: waiting{pause}: {host} {}", self.did, words(reason)));
    }

    /// Whether a server is waited for until then. If that is too long, later repos do not wait for it either.
    fn bears(&self, server: &str, until: Instant) -> bool {
        let now = Instant::now();
        let mut given_up = self.patience.lock();
        if given_up.get(server).is_some_and(|since| now < *since + PATIENCE) {
            return false;
        }
        let bears = now < self.deadline && until <= self.deadline;
        if !bears {
            given_up.insert(server.to_owned(), now);
        }
        bears
    }
}

fn words(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Rate => "has been asked as often as it may be",
        WaitReason::InFlight => "is sending other repos",
        WaitReason::Global => "comes after other hosts, which are asked as often as this program may",
        WaitReason::Refused => "refused for load",
        WaitReason::Exhausted => "says that its limit is used up",
        WaitReason::Unreachable => "cannot be reached",
    }
}

/// Whole seconds, rounded up: what is said to last is not over before.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::fetch::{Backoff, PaceOptions};
    use crate::identity::ResolveCause;

    const HOST: &str = "pds.example.com";

    fn did() -> Did {
        Did::new("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap()
    }

    /// A pace that finds the host unreachable, and probes it after so long.
    fn unreachable(pause: Duration) -> Pace {
        let pace = Pace::new(PaceOptions { unreachable: Backoff { first: pause, last: pause }, ..PaceOptions::default() });
        pace.try_admit(HOST).unwrap().unreachable();
        pace
    }

    fn refusal(pause: Duration) -> NotHad {
        ResolveError { did: did(), server: HOST.to_owned(), cause: ResolveCause::Refused { pause } }.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_host_is_probed_but_not_waited_for_longer_than_patience() {
        let (did, patience, began) = (did(), Patience::default(), Instant::now());
        let permit = patience.with(&did).admit(&unreachable(Duration::from_secs(100)), HOST).await.unwrap();
        assert!(began.elapsed() >= Duration::from_secs(100), "{:?}", began.elapsed());
        drop(permit);
        let began = Instant::now();
        let error = patience.with(&did).admit(&unreachable(Duration::from_secs(3600)), HOST).await.unwrap_err();
        assert!(matches!(error, NotHad::InVain { reason: WaitReason::Unreachable, .. }), "{error}");
        assert_eq!(began.elapsed(), Duration::ZERO, "it is certain at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_never_freed_is_waited_for_until_patience_ends() {
        let (did, patience, pace) =
            (did(), Patience::default(), Pace::new(PaceOptions { global_rate: crate::fetch::Rate::MAX, ..PaceOptions::default() }));
        let mut held = Vec::new();
        while held.len() < PaceOptions::default().host_in_flight.get() as usize {
            held.push(pace.admit(HOST).await);
        }
        let began = Instant::now();
        let error = patience.with(&did).admit(&pace, HOST).await.unwrap_err();
        assert!(matches!(error, NotHad::InVain { reason: WaitReason::InFlight, .. }), "{error}");
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_waited_for_no_longer_than_patience_and_once_for_all_repos() {
        let (did, patience, attempts) = (did(), Patience::default(), Cell::new(0));
        let refused = || {
            attempts.set(attempts.get() + 1);
            async { Err::<(), _>(refusal(Duration::from_secs(60))) }
        };
        let began = Instant::now();
        patience.with(&did).attempt(refused).await.unwrap_err();
        assert!(began.elapsed() <= PATIENCE && began.elapsed() >= PATIENCE - Duration::from_secs(60), "{:?}", began.elapsed());
        assert!((15..=16).contains(&attempts.get()), "{}", attempts.get());
        let began = Instant::now();
        patience.with(&did).attempt(refused).await.unwrap_err();
        assert_eq!(began.elapsed(), Duration::ZERO, "it was given up");
        patience.restore(HOST);
        let first = Cell::new(true);
        let served = || {
            let refuses = first.replace(false);
            async move { if refuses { Err(refusal(Duration::from_secs(60))) } else { Ok(()) } }
        };
        patience.with(&did).attempt(served).await.unwrap();
    }

    #[test]
    fn what_is_said_to_last_is_not_over_before() {
        for (millis, said) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(millis)), said);
        }
    }
}
