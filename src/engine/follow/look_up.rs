//! How an event waits for the identity of its account.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::intake::{CROWDED, Pending, Wait};
use super::settle::Act;
use crate::engine::backoff;
use crate::identity::{Identity, Resolved};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why the account of an event has no identity.
pub(super) enum Unidentified {
    /// There is none, or none that is of use.
    Unknown,
    /// The event has waited for as long as it may, or others need its room.
    GivenUp(&'static str),
    /// The program stops.
    Stopped,
}

impl<'a> Act<'a> {
    /// Looks the account up: as it is remembered, or as it was no earlier than `since`. Failures are tried again until the event has waited for as long as it
    /// may since its arrival, once at least: what waits behind it has arrived later, so that all are given up together.
    ///
    /// Whoever has to wait gives his slot up meanwhile: a directory that hangs must not hold up other repos.
    pub(super) async fn look_up(&mut self, pending: &Pending, mut since: Option<Instant>) -> Result<Arc<Identity>, Unidentified> {
        let until = pending.arrived() + self.follow.options.identity_patience;
        let mut wait = None;
        let mut attempt = 1;
        let found = loop {
            match self.attempt(since, (attempt > 1).then_some(until), &mut wait).await? {
                Some(Ok(identity)) => break Ok(identity),
                // It may have been remembered from before the event, which then says otherwise.
                Some(Err(error)) if !error.is_transient() && since.is_none() => {
                    since = Some(pending.arrived());
                    continue;
                }
                Some(Err(error)) if !error.is_transient() => break Err(Unidentified::Unknown),
                Some(Err(_)) | None => {}
            }
            let now = Instant::now();
            if now >= until {
                break Err(Unidentified::GivenUp("identity_outage"));
            }
            let pause = backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt).min(until - now);
            self.unless_ended(tokio::time::sleep(pause), &mut wait).await?;
            attempt += 1;
        };
        if matches!(found, Err(Unidentified::GivenUp(_))) {
            self.intake.give_up(self.did, "identity_outage");
        }
        drop(wait);
        if self.slot.is_none() {
            self.slot = Some(self.intake.slot().await.map_err(|_| Unidentified::Stopped)?);
        }
        found
    }

    /// One look-up, which ends at `until` where that is given. None: it did.
    async fn attempt(
        &mut self,
        since: Option<Instant>,
        until: Option<Instant>,
        wait: &mut Option<Wait<'a>>,
    ) -> Result<Option<Resolved>, Unidentified> {
        let look_up = self.core.fetcher.current_identity(self.did, since);
        tokio::pin!(look_up);
        if let Poll::Ready(found) = futures::poll!(&mut look_up) {
            return Ok(Some(found));
        }
        match until {
            None => self.unless_ended(look_up, wait).await.map(Some),
            Some(until) => self.unless_ended(tokio::time::timeout_at(until, look_up), wait).await.map(Result::ok),
        }
    }

    /// Waits for something, without a slot, until the program stops or the event is given up.
    async fn unless_ended<T>(&mut self, what: impl Future<Output = T>, wait: &mut Option<Wait<'a>>) -> Result<T, Unidentified> {
        self.slot = None;
        let wait = wait.get_or_insert_with(|| self.intake.wait(self.did));
        tokio::select! {
            () = self.core.stop.cancelled() => Err(Unidentified::Stopped),
            () = wait.given_up.cancelled() => Err(Unidentified::GivenUp(CROWDED)),
            what = what => Ok(what),
        }
    }
}
