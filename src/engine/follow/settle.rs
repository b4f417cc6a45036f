//! What is done about one event: verify, route, record. It is settled once that is durable; on the way, nothing is skipped.

use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Follow;
use super::intake::{Intake, Pending};
use crate::engine::core::Core;
use crate::engine::progress::add;
use crate::engine::{CheckoutFailure, backoff, router};
use crate::firehose::event::AccountEvent;
use crate::firehose::frame::{self, Frame};
use crate::firehose::{CommitFault, Prepared, UpstreamKind, Verdict, Verification};
use crate::identity::Identity;
use crate::job::{Account, OpSet};
use crate::store::{AccountRoute, StoreError};
use crate::syntax::Did;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The program stops before an event is settled.
#[derive(Debug)]
pub(super) struct Stopped;

/// Why an event is not settled at the first attempt.
#[derive(Debug)]
enum Hitch {
    Store(StoreError),
    Stopped,
}

impl From<StoreError> for Hitch {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What is known of the account of an event.
enum Known {
    Identity(std::sync::Arc<Identity>),
    /// It has none, for good or for now.
    None,
    /// Look-ups have failed for as long as the event may wait.
    OutOfPatience,
}

/// Settles events of one repo: one, or all that were dropped in a row. A store that fails for a while is asked again.
pub(super) async fn settle(core: &Core, intake: &Intake, did: &Did, events: Vec<Pending>) -> Result<(), Stopped> {
    let Some(follow) = core.follow.as_deref() else { return Ok(()) };
    let mut attempt = 1;
    loop {
        if core.stop.is_cancelled() {
            return Err(Stopped);
        }
        let slot = std::sync::Arc::clone(&intake.slots).acquire_owned().await.map_err(|_| Stopped)?;
        let act = Act { core, follow, intake, did, slot: Some(slot) };
        match act.settle(&events).await {
            Ok(()) => break,
            Err(Hitch::Stopped) => return Err(Stopped),
            Err(Hitch::Store(error)) => core.store_failed("recording an event", &error),
        }
        tokio::select! {
            () = core.stop.cancelled() => return Err(Stopped),
            () = tokio::time::sleep(backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt)) => attempt += 1,
        }
    }
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
    async fn settle(mut self, events: &[Pending]) -> Result<(), Hitch> {
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
    async fn take(&mut self, pending: &Pending, prepared: &Prepared, continues: bool) -> Result<(), Hitch> {
        if self.follow.recent.covers(self.did, prepared.rev()) {
            add(&self.core.counters.events_known, 1);
            return Ok(());
        }
        let mut host = None;
        if self.follow.options.verification != Verification::None {
            let mut identity = match self.identity().await? {
                Known::Identity(identity) => identity,
                Known::None => return self.lost("no_identity", 1).await,
                Known::OutOfPatience => return self.lost("identity_outage", 1).await,
            };
            if !self.is_at_home(pending, &identity) || prepared.signed_by(&identity.key).is_err() {
                identity = match self.refreshed().await? {
                    Known::Identity(identity) => identity,
                    Known::None => return self.lost("no_identity", 1).await,
                    Known::OutOfPatience => return self.lost("identity_outage", 1).await,
                };
                if !self.is_at_home(pending, &identity) {
                    self.dropped("host");
                    return Ok(());
                }
                if let Err(error) = prepared.signed_by(&identity.key) {
                    tracing::debug!(did = %self.did, rev = %prepared.rev(), %error, "a commit is dropped");
                    self.dropped("signature");
                    return Ok(());
                }
            }
            host = Some(identity.pds.name().to_owned());
        }
        match self.op_set(prepared, host, continues) {
            Ok(op_set) => self.append(&op_set).await,
            Err(fault) => match fault.verdict() {
                Verdict::Drop => {
                    tracing::debug!(did = %self.did, rev = %prepared.rev(), error = &fault as &dyn std::error::Error, "a commit is dropped");
                    self.dropped(fault.as_str());
                    Ok(())
                }
                // The account has signed that it moved.
                Verdict::Gap => {
                    self.follow.gap(fault.as_str());
                    self.append(&prepared.gap()).await
                }
            },
        }
    }

    /// The op set of a commit, as far as it is to be proven.
    fn op_set(&self, prepared: &Prepared, host: Option<String>, continues: bool) -> Result<OpSet, CommitFault> {
        if self.follow.options.verification != Verification::Full {
            return prepared.unproven();
        }
        if let Some(host) = host {
            if prepared.names_prev_data() {
                self.follow.provers.note(host);
            } else if continues && self.follow.provers.contains(&host) {
                // A host that could prove where its commits start, and now does not.
                self.follow.gap("unproven_start");
                return Ok(prepared.gap());
            }
        }
        prepared.prove()
    }

    async fn append(&self, op_set: &OpSet) -> Result<(), Hitch> {
        if router::route(self.core, op_set).await? != crate::job::Route::Unknown {
            self.follow.recent.note(self.did, op_set.rev);
        }
        Ok(())
    }

    async fn unprepared(&mut self, fault: &CommitFault) -> Result<(), Hitch> {
        tracing::debug!(did = %self.did, error = fault as &dyn std::error::Error, "a commit is not taken");
        match fault.verdict() {
            Verdict::Drop => {
                self.dropped(fault.as_str());
                Ok(())
            }
            Verdict::Gap => self.lost(fault.as_str(), 1).await,
        }
    }

    async fn account(&mut self, pending: &Pending, event: &AccountEvent<'_>) -> Result<(), Hitch> {
        let account = Account::from_event(event.active, event.status);
        // Whether the events of a relay come from the account's host is for the relay to see to.
        if pending.source.upstream.kind() == UpstreamKind::Host {
            // Asked anew: the host that an account has left says that it is deactivated, and may be the first to say anything of the move.
            let at_home = match if event.active { self.identity().await? } else { self.refreshed().await? } {
                Known::Identity(identity) if self.is_at_home(pending, &identity) => true,
                Known::Identity(_) => match self.refreshed().await? {
                    Known::Identity(identity) => self.is_at_home(pending, &identity),
                    Known::None => true,
                    Known::OutOfPatience => return self.lost("identity_outage", 1).await,
                },
                // An account without an identity is gone, as the event will say.
                Known::None => true,
                Known::OutOfPatience => return self.lost("identity_outage", 1).await,
            };
            if !at_home {
                self.dropped("host");
                return Ok(());
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

    /// Whether the upstream may speak for the account: a relay, or the account's own host.
    fn is_at_home(&self, pending: &Pending, identity: &Identity) -> bool {
        match pending.source.upstream.kind() {
            UpstreamKind::Relay => true,
            UpstreamKind::Host => identity.pds.name() == pending.source.upstream.at().name(),
        }
    }

    /// What could not be followed is made up for by a checkout.
    async fn lost(&self, reason: &'static str, events: usize) -> Result<(), Hitch> {
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

    async fn identity(&mut self) -> Result<Known, Hitch> {
        self.look_up(false).await
    }

    async fn refreshed(&mut self) -> Result<Known, Hitch> {
        self.look_up(true).await
    }

    /// Looks the account up. Whoever has to wait for that gives his slot up meanwhile: a directory that hangs must not hold up other repos.
    async fn look_up(&mut self, anew: bool) -> Result<Known, Hitch> {
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
                        () = core.stop.cancelled() => return Err(Hitch::Stopped),
                        found = look_up => found,
                    }
                }
            };
            let known = match found {
                Ok(identity) => Some(Known::Identity(identity)),
                Err(CheckoutFailure::Resolve(error)) if !error.is_transient() => Some(Known::None),
                Err(_) => None,
            };
            let now = Instant::now();
            let until = *gives_up_at.get_or_insert(now + self.follow.options.identity_patience);
            let known = known.or_else(|| (now >= until).then_some(Known::OutOfPatience));
            if let Some(known) = known {
                self.regain_slot().await?;
                return Ok(known);
            }
            self.slot = None;
            let pause = backoff::pause(FIRST_PAUSE, LONGEST_PAUSE, attempt).min(until - now);
            tokio::select! {
                () = core.stop.cancelled() => return Err(Hitch::Stopped),
                () = tokio::time::sleep(pause) => attempt += 1,
            }
        }
    }

    async fn regain_slot(&mut self) -> Result<(), Hitch> {
        if self.slot.is_none() {
            let slots = std::sync::Arc::clone(&self.intake.slots);
            self.slot = Some(slots.acquire_owned().await.map_err(|_| Hitch::Stopped)?);
        }
        Ok(())
    }
}
