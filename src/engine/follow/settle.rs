//! What is done about one event: verify, route, record. It is settled once that is durable; on the way, nothing is skipped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use super::Follow;
use super::intake::{Intake, Next, Pending};
use super::look_up::Unidentified;
use crate::engine::audit;
use crate::engine::core::{Core, Stopped, Unstored};
use crate::engine::progress::add;
use crate::engine::router;
use crate::firehose::event::AccountEvent;
use crate::firehose::frame::{self, Frame};
use crate::firehose::verify::MAX_AHEAD;
use crate::firehose::{CommitFault, Prepared, UpstreamKind, Verdict, Verification};
use crate::identity::Identity;
use crate::job::{Account, OpSet, Route};
use crate::store::AccountRoute;
use crate::syntax::Did;

/// Why an event is not settled yet.
pub(super) enum Unsettled {
    /// It is not in the store.
    Unstored(Unstored),
    /// It waited too long for an identity, or others need its room: a checkout is to make up for it, and for what waits behind it.
    GivenUp(&'static str),
}

impl<E: Into<Unstored>> From<E> for Unsettled {
    fn from(error: E) -> Self {
        Self::Unstored(error.into())
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

/// Settles events of one repo: one, or all that were given up in a row. A store that fails for a while is asked again.
pub(super) async fn settle(core: &Core, intake: &Intake, did: &Did, next: Next) -> Result<(), Stopped> {
    let Some(follow) = core.follow.as_deref() else { return Ok(()) };
    let Next { mut events, given_up } = next;
    let attempt = || async {
        if core.stop.is_cancelled() {
            return Err(Unstored::Stopped);
        }
        let slot = intake.slot().await?;
        match (Act { core, follow, intake, did, slot: Some(slot) }).settle(&events, given_up).await {
            Ok(()) => Ok(None),
            Err(Unsettled::GivenUp(reason)) => Ok(Some(reason)),
            Err(Unsettled::Unstored(error)) => Err(error),
        }
    };
    if let Some(reason) = core.until_stored("recording an event", attempt).await? {
        // Their bytes go before the gap is recorded, which may take as long as the store does.
        events.iter_mut().for_each(|event| event.frame = None);
        core.until_stored("recording a gap", || lost(core, follow, did, reason, events.len())).await?;
    }
    events.into_iter().for_each(Pending::settle);
    Ok(())
}

/// What could not be followed is made up for by a checkout.
async fn lost(core: &Core, follow: &Follow, did: &Did, reason: &'static str, events: usize) -> Result<(), Unstored> {
    let route = core.store.gap(core.consumer, did).await?;
    follow.gap(reason);
    add(&core.counters.events_lost, events);
    tracing::info!(%did, reason, ?route, "an event is lost: its repo is to be checked out again");
    core.dispatch.notify_one();
    Ok(())
}

pub(super) struct Act<'a> {
    pub(super) core: &'a Core,
    pub(super) follow: &'a Follow,
    pub(super) intake: &'a Intake,
    pub(super) did: &'a Did,
    pub(super) slot: Option<OwnedSemaphorePermit>,
}

impl Act<'_> {
    async fn settle(mut self, events: &[Pending], given_up: &'static str) -> Result<(), Unsettled> {
        let Some(first) = events.first() else { return Ok(()) };
        if events.iter().any(|event| event.is_new) {
            let added = self.core.store.enqueue(self.core.consumer, std::slice::from_ref(self.did)).await?;
            add(&self.core.counters.repos_seen, added as usize);
            self.core.dispatch.notify_one();
        }
        self.made_up_for().await?;
        let now = self.core.clock.time_of_day();
        let Some(bytes) = &first.frame else { return self.lost(given_up, events.len()).await };
        match frame::read(bytes) {
            Ok(Frame::Commit(event)) => match Prepared::commit(bytes, &event, now) {
                Ok(prepared) => self.take(first, &prepared, event.since.is_some()).await,
                Err(fault) => self.unprepared(&fault).await,
            },
            Ok(Frame::Sync(event)) => match Prepared::sync(bytes, &event, now) {
                Ok(prepared) => self.take(first, &prepared, false).await,
                Err(fault) => self.unprepared(&fault).await,
            },
            Ok(Frame::Identity(_)) => {
                self.core.fetcher.doubt(self.did, first.arrived()).await;
                add(&self.core.counters.identities_received, 1);
                Ok(())
            }
            Ok(Frame::Account(event)) => self.account(first, &event).await,
            // Nothing else is ever taken in.
            Ok(Frame::Info { .. } | Frame::Error { .. } | Frame::Unknown { .. } | Frame::Malformed(_)) | Err(_) => Ok(()),
        }
    }

    /// Has every repo audited if commits were dropped as being from the future, and the clock of this machine was set forward since: it may have been that.
    async fn made_up_for(&self) -> Result<(), Unsettled> {
        let ahead = &self.follow.ahead_of_us;
        if !ahead.load(Ordering::Acquire) || self.core.clock.set_forward() <= MAX_AHEAD || !ahead.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let begun = audit::begin(self.core, "the clock was set forward").await;
        ahead.fetch_or(begun.is_err(), Ordering::AcqRel);
        Ok(begun?)
    }

    /// A commit that is sound in itself. `continues`: it names a rev that it follows.
    async fn take(&mut self, pending: &Pending, prepared: &Prepared, continues: bool) -> Result<(), Unsettled> {
        if self.follow.recent.covers(self.did, prepared.rev()) {
            add(&self.core.counters.events_known, 1);
            return Ok(());
        }
        let judged = if self.follow.options.verification == Verification::None {
            judge(prepared.unproven())
        } else {
            match self.signer(pending, prepared).await {
                Ok(Ok(identity)) => self.judge(prepared, &identity, continues),
                Ok(Err(untrue)) => Judged::Drop(untrue),
                Err(Unidentified::Stopped) => return Err(Unstored::Stopped.into()),
                Err(Unidentified::Unknown) => return self.lost("no_identity", 1).await,
                Err(Unidentified::GivenUp(reason)) => return Err(Unsettled::GivenUp(reason)),
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

    /// The identity that signed a commit; one of no earlier than its arrival when the one that is remembered did not. Otherwise the reason why the commit is
    /// not the account's.
    async fn signer(&mut self, pending: &Pending, prepared: &Prepared) -> Result<Result<Arc<Identity>, &'static str>, Unidentified> {
        let identity = self.look_up(pending, None).await?;
        if is_by(pending, prepared, &identity).is_ok() {
            return Ok(Ok(identity));
        }
        let identity = self.look_up(pending, Some(pending.arrived())).await?;
        Ok(is_by(pending, prepared, &identity).map(|()| identity))
    }

    /// Judges a commit that is signed, by its ops as far as they are to be proven.
    fn judge(&self, prepared: &Prepared, identity: &Identity, continues: bool) -> Judged {
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

    async fn append(&self, op_set: &OpSet) -> Result<(), Unsettled> {
        if router::route(self.core, op_set).await? != Route::Unknown {
            self.follow.recent.note(self.did, op_set.rev);
        }
        Ok(())
    }

    async fn unprepared(&mut self, fault: &CommitFault) -> Result<(), Unsettled> {
        tracing::debug!(did = %self.did, error = fault as &dyn std::error::Error, "a commit is not taken");
        if let CommitFault::Future(rev) = fault
            && !self.follow.ahead_of_us.swap(true, Ordering::AcqRel)
        {
            tracing::warn!(did = %self.did, %rev, "a commit is from the future and dropped: is the clock of this machine right?");
        }
        match fault.verdict() {
            Verdict::Drop => {
                self.dropped(fault.as_str());
                Ok(())
            }
            Verdict::Gap => self.lost(fault.as_str(), 1).await,
        }
    }

    async fn account(&mut self, pending: &Pending, event: &AccountEvent<'_>) -> Result<(), Unsettled> {
        let account = Account::from_event(event.active, event.status);
        // Whether the events of a relay come from the account's host is for the relay to see to.
        if pending.source.upstream.kind() == UpstreamKind::Host {
            match self.holder(pending, event.active).await {
                Ok(identity) if is_at_home(pending, &identity) => {}
                Ok(_) => {
                    self.dropped("host");
                    return Ok(());
                }
                Err(Unidentified::Stopped) => return Err(Unstored::Stopped.into()),
                // An account without an identity is gone, as the event will say.
                Err(Unidentified::Unknown) => {}
                Err(Unidentified::GivenUp(reason)) => {
                    // A checkout finds out what has become of it, even of one that is unavailable.
                    self.core.store.want(self.core.consumer, self.did).await?;
                    return Err(Unsettled::GivenUp(reason));
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
                if account.is_active() {
                    // It may have come back elsewhere, or from having none.
                    core.fetcher.doubt(self.did, pending.arrived()).await;
                }
                core.lanes.ask(core, self.did);
                core.dispatch.notify_one();
                core.settled.notify_waiters();
            }
            AccountRoute::Unknown | AccountRoute::Stale | AccountRoute::Unchanged => {}
        }
        Ok(())
    }

    /// Who holds an account of which a host speaks. Asked anew when it is inactive: the host that an account has left says so, and may be the first to say
    /// anything of the move.
    async fn holder(&mut self, pending: &Pending, is_active: bool) -> Result<Arc<Identity>, Unidentified> {
        let since = pending.arrived();
        let identity = self.look_up(pending, (!is_active).then_some(since)).await?;
        if !is_active || is_at_home(pending, &identity) {
            return Ok(identity);
        }
        self.look_up(pending, Some(since)).await
    }

    async fn lost(&self, reason: &'static str, events: usize) -> Result<(), Unsettled> {
        Ok(lost(self.core, self.follow, self.did, reason, events).await?)
    }

    fn dropped(&self, reason: &'static str) {
        self.follow.drop(reason);
        add(&self.core.counters.events_dropped, 1);
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

/// Whether a commit is an account's: the upstream may speak for it, and its key signed the commit. If not, the name of what is wrong.
fn is_by(pending: &Pending, prepared: &Prepared, identity: &Identity) -> Result<(), &'static str> {
    if !is_at_home(pending, identity) {
        return Err("host");
    }
    // The dearest step of all, so it is made once for each identity.
    prepared.signed_by(&identity.key).map_err(|_| "signature")
}

/// Whether the upstream may speak for the account: a relay, or the account's own host.
fn is_at_home(pending: &Pending, identity: &Identity) -> bool {
    match pending.source.upstream.kind() {
        UpstreamKind::Relay => true,
        UpstreamKind::Host => identity.pds.name() == pending.source.upstream.at().name(),
    }
}
