//! What is done about one event: verify, route, record. It is settled once that is durable; on the way, nothing is skipped.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Follow;
use super::intake::{Intake, Pending};
use crate::engine::core::{Core, Stopped, Unstored};
use crate::engine::progress::add;
use crate::engine::{CheckoutFailure, backoff, router};
use crate::firehose::event::AccountEvent;
use crate::firehose::frame::{self, Frame};
use crate::firehose::{CommitFault, Prepared, UpstreamKind, Verdict, Verification};
use crate::identity::Identity;
use crate::job::{Account, OpSet, Route};
use crate::store::AccountRoute;
use crate::syntax::Did;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why the account of an event has no identity.
enum Absent {
    /// There is none, or none that is of use.
    Unknown,
    /// Look-ups have failed for as long as the event may wait.
    Outage,
}

impl Absent {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Unknown => "no_identity",
            Self::Outage => "identity_outage",
        }
    }
}

/// What becomes of a commit.
enum Judged {
    /// It is followed.
    Follow(OpSet),
    /// The account has signed that it moved, but not how.
    Gap(&'static str),
    /// It is not true.
    Drop(&'static str),
}

/// Settles events of one repo: one, or all that were dropped in a row. A store that fails for a while is asked again.
pub(super) async fn settle(core: &Core, intake: &Intake, did: &Did, events: Vec<Pending>) -> Result<(), Stopped> {
    let Some(follow) = core.follow.as_deref() else { return Ok(()) };
    let attempt = || async {
        if core.stop.is_cancelled() {
            return Err(Unstored::Stopped);
        }
        let slot = intake.slot().await?;
        Act { core, follow, intake, did, slot: Some(slot) }.settle(&events).await
    };
    core.until_stored("recording an event", attempt).await?;
    events.into_iter().for_each(Pending::settle);
    Ok(())
}

struct Act<'a> {
    core: &'a Core,
    follow: &'a Follow,
    intake: &'a Intake,
    did: &'a Did,
    slot: Option<OwnedSemaphorePermit>,
}

impl Act<'_> {
    async fn settle(mut self, events: &[Pending]) -> Result<(), Unstored> {
        let Some(first) = events.first() else { return Ok(()) };
        if events.iter().any(|event| event.is_new) {
            let added = self.core.store.enqueue(self.core.consumer, std::slice::from_ref(self.did)).await?;
            add(&self.core.counters.repos_seen, added as usize);
            self.core.dispatch.notify_one();
        }
        let Some(bytes) = &first.frame else { return self.lost("crowded", events.len()).await };
        match frame::read(bytes) {
            Ok(Frame::Commit(event)) => match Prepared::commit(bytes, &event, self.core.now()) {
                Ok(prepared) => self.take(first, &prepared, event.since.is_some()).await,
                Err(fault) => self.unprepared(&fault).await,
            },
            Ok(Frame::Sync(event)) => match Prepared::sync(bytes, &event, self.core.now()) {
                Ok(prepared) => self.take(first, &prepared, false).await,
                Err(fault) => self.unprepared(&fault).await,
            },
            Ok(Frame::Identity(_)) => {
                self.core.fetcher.forget(self.did).await;
                add(&self.core.counters.identities_received, 1);
                Ok(())
            }
            Ok(Frame::Account(event)) => self.account(first, &event).await,
            // Nothing else is ever taken in.
            Ok(Frame::Info { .. } | Frame::Error { .. } | Frame::Unknown { .. } | Frame::Malformed(_)) | Err(_) => Ok(()),
        }
    }

    /// A commit that is sound in itself. `continues`: it names a rev that it follows.
    async fn take(&mut self, pending: &Pending, prepared: &Prepared, continues: bool) -> Result<(), Unstored> {
        if self.follow.recent.covers(self.did, prepared.rev()) {
            add(&self.core.counters.events_known, 1);
            return Ok(());
        }
        let judged = if self.follow.options.verification == Verification::None {
            judge(prepared.unproven())
        } else {
            match self.signer(pending, prepared).await? {
                Ok(Some(identity)) => self.judge(prepared, &identity, continues),
                Ok(None) => Judged::Drop("host"),
                Err(absent) => return self.lost(absent.as_str(), 1).await,
            }
        };
        match judged {
            Judged::Follow(op_set) => self.append(&op_set).await,
            Judged::Gap(reason) => {
                self.append(&prepared.gap()).await?;
                self.follow.gap(reason);
                Ok(())
            }
            Judged::Drop(reason) => {
                tracing::debug!(did = %self.did, rev = %prepared.rev(), reason, "a commit is dropped");
                self.dropped(reason);
                Ok(())
            }
        }
    }

    /// The identity that a commit is to be judged by; looked up anew when the one that is remembered does not fit. None: the upstream may not speak for it.
    async fn signer(&mut self, pending: &Pending, prepared: &Prepared) -> Result<Result<Option<Arc<Identity>>, Absent>, Unstored> {
        let mut identity = match self.look_up(false).await? {
            Ok(identity) => identity,
            Err(absent) => return Ok(Err(absent)),
        };
        if !is_at_home(pending, &identity) || prepared.signed_by(&identity.key).is_err() {
            identity = match self.look_up(true).await? {
                Ok(identity) => identity,
                Err(absent) => return Ok(Err(absent)),
            };
        }
        Ok(Ok(is_at_home(pending, &identity).then_some(identity)))
    }

    /// Judges a commit by its signature, and by its ops as far as they are to be proven.
    fn judge(&self, prepared: &Prepared, identity: &Identity, continues: bool) -> Judged {
        if prepared.signed_by(&identity.key).is_err() {
            return Judged::Drop("signature");
        }
        if self.follow.options.verification != Verification::Full {
            return judge(prepared.unproven());
        }
        let host = identity.pds.name();
        if prepared.names_prev_data() {
            self.follow.provers.note(host);
        } else if continues && self.follow.provers.contains(host) {
            // A host that could prove where its commits start, and now does not.
            return Judged::Gap("unproven_start");
        }
        judge(prepared.prove())
    }

    async fn append(&self, op_set: &OpSet) -> Result<(), Unstored> {
        if router::route(self.core, op_set).await? != Route::Unknown {
            self.follow.recent.note(self.did, op_set.rev);
        }
        Ok(())
    }

    async fn unprepared(&mut self, fault: &CommitFault) -> Result<(), Unstored> {
        tracing::debug!(did = %self.did, error = fault as &dyn std::error::Error, "a commit is not taken");
        match fault.verdict() {
            Verdict::Drop => {
                self.dropped(fault.as_str());
                Ok(())
            }
            Verdict::Gap => self.lost(fault.as_str(), 1).await,
        }
    }

    async fn account(&mut self, pending: &Pending, event: &AccountEvent<'_>) -> Result<(), Unstored> {
        let account = Account::from_event(event.active, event.status);
        // Whether the events of a relay come from the account's host is for the relay to see to.
        if pending.source.upstream.kind() == UpstreamKind::Host {
            // Asked anew when it is inactive: the host that an account has left says so, and may be the first to say anything of the move.
            let mut found = self.look_up(!event.active).await?;
            if event.active && found.as_ref().is_ok_and(|identity| !is_at_home(pending, identity)) {
                found = self.look_up(true).await?;
            }
            match found {
                Ok(identity) if is_at_home(pending, &identity) => {}
                Ok(_) => {
                    self.dropped("host");
                    return Ok(());
                }
                // An account without an identity is gone, as the event will say.
                Err(Absent::Unknown) => {}
                Err(absent @ Absent::Outage) => {
                    // A checkout finds out what has become of it, even of one that is unavailable.
                    self.core.store.want(self.core.consumer, self.did).await?;
                    return self.lost(absent.as_str(), 1).await;
                }
            }
        }
        let (core, taken) = (self.core, &pending.taken);
        let route = core.store.account(core.consumer, self.did, taken.id, taken.seq, account).await?;
        add(&core.counters.accounts_received, 1);
        match route {
            AccountRoute::Changed => {
                tracing::info!(did = %self.did, %account, "the account has changed");
                add(&core.counters.accounts_changed, 1);
                core.lanes.ask(core, self.did);
                core.dispatch.notify_one();
                core.settled.notify_waiters();
            }
            AccountRoute::Unknown | AccountRoute::Stale | AccountRoute::Unchanged => {}
        }
        Ok(())
    }

    /// What could not be followed is made up for by a checkout.
    async fn lost(&self, reason: &'static str, events: usize) -> Result<(), Unstored> {
        let route = self.core.store.gap(self.core.consumer, self.did).await?;
        self.follow.gap(reason);
        add(&self.core.counters.events_lost, events);
        tracing::info!(did = %self.did, reason, ?route, "an event is lost: its repo is to be checked out again");
        self.core.dispatch.notify_one();
        Ok(())
    }

    fn dropped(&self, reason: &'static str) {
        self.follow.drop(reason);
        add(&self.core.counters.events_dropped, 1);
    }

    /// Looks the account up. Whoever has to wait for that gives his slot up meanwhile: a directory that hangs must not hold up other repos.
    async fn look_up(&mut self, anew: bool) -> Result<Result<Arc<Identity>, Absent>, Unstored> {
        let (core, did) = (self.core, self.did);
        let mut gives_up_at: Option<Instant> = None;
        let mut attempt = 1;
        loop {
            let look_up = async { if anew { core.fetcher.identity_anew(did).await } else { core.fetcher.identity(did).await } };
            tokio::pin!(look_up);
            let found = match futures::poll!(&mut look_up) {
                Poll::Ready(found) => found,
                Poll::Pending => {
                    self.slot = None;
                    tokio::select! {
                        () = core.stop.cancelled() => return Err(Unstored::Stopped),
                        found = look_up => found,
                    }
                }
            };
            let known = match found {
                Ok(identity) => Some(Ok(identity)),
                Err(CheckoutFailure::Resolve(error)) if !error.is_transient() => Some(Err(Absent::Unknown)),
                Err(_) => None,
            };
            let now = Instant::now();
            let until = *gives_up_at.get_or_insert(now + self.follow.options.identity_patience);
            let known = known.or_else(|| (now >= until).then_some(Err(Absent::Outage)));
            if let Some(known) = known {
                if self.slot.is_none() {
                    self.slot = Some(self.intake.slot().await?);
                }
                return Ok(known);
            }
            self.slot = None;
            let pause = backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt).min(until - now);
            tokio::select! {
                () = core.stop.cancelled() => return Err(Unstored::Stopped),
                () = tokio::time::sleep(pause) => attempt += 1,
            }
        }
    }
}

/// What becomes of a commit whose signature, where it is asked for, is in order.
fn judge(op_set: Result<OpSet, CommitFault>) -> Judged {
    match op_set {
        Ok(op_set) => Judged::Follow(op_set),
        Err(fault) => match fault.verdict() {
            Verdict::Drop => Judged::Drop(fault.as_str()),
            Verdict::Gap => Judged::Gap(fault.as_str()),
        },
    }
}

/// Whether the upstream may speak for the account: a relay, or the account's own host.
fn is_at_home(pending: &Pending, identity: &Identity) -> bool {
    match pending.source.upstream.kind() {
        UpstreamKind::Relay => true,
        UpstreamKind::Host => identity.pds.name() == pending.source.upstream.at().name(),
    }
}
