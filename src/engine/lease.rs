//! Keeps this process's part of the work, where several share a store: renews its lease, enters what was taken, gives up what is too much.
//!
//! What comes in: the store's word on who has what. What goes out: wake-ups of the dispatcher and the lanes. Ends with its token, which is cancelled when nothing
//! of this process is under way any more.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::Core;
use crate::store::{Fleet, Renewal, StoreError};

/// How often the lease is renewed, and it is looked what others tell: a tenth of the lease, between these.
const EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Between two renewals that somebody has asked for.
const PAUSE: Duration = Duration::from_millis(50);

/// How much of a lease this process uses, in twelfths: its clock may run slower than the server's, and what is with the handler has to be let go.
const USED: u32 = 10;

/// The keeping of a lease.
pub(super) struct Lease {
    core: Arc<Core>,
    upstreams: Vec<String>,
    /// Until when the lease certainly holds.
    until: Instant,
    /// When the store is searched next for what nobody has told of: a process may have died between an act and its wake-up.
    search_at: Instant,
}

impl Lease {
    /// Begins: takes what is free. What a backfiller before this one in the same process has not given up is free as well: nobody else works for this process.
    pub(super) async fn begin(core: &Arc<Core>, fleet: &dyn Fleet) -> Result<Self, StoreError> {
        let upstreams = core.follow.as_ref().map(|follow| follow.names()).unwrap_or_default();
        let now = Instant::now();
        let mut lease = Self { core: Arc::clone(core), upstreams, until: now + fleet.lease() * USED / 12, search_at: now + fleet.lease() };
        fleet.leave().await?;
        lease.renew(fleet).await?;
        Ok(lease)
    }

    /// Runs until nothing of this process is under way.
    pub(super) async fn run(mut self) {
        let core = Arc::clone(&self.core);
        let Some(fleet) = core.store.fleet() else { return };
        let every = (fleet.lease() / 10).clamp(EVERY.0, EVERY.1);
        loop {
            tokio::select! {
                () = core.left.cancelled() => return,
                () = tokio::time::sleep(every) => {}
                () = core.shares.poke.notified() => tokio::time::sleep(PAUSE).await,
            }
            if let Err(error) = self.renew(fleet).await {
                core.store_failed("renewing the lease of this process", &error);
                if !error.is_retryable() {
                    core.shares.set_lapsed(true);
                    return;
                }
            } else if let Err(error) = self.give_up(fleet).await {
                core.store_failed("giving up hosts", &error);
            }
        }
    }

    async fn renew(&mut self, fleet: &dyn Fleet) -> Result<(), StoreError> {
        let asked = Instant::now();
        let upstreams = std::mem::take(&mut self.upstreams);
        let mut renewal = fleet.renew(&upstreams);
        let answer = match tokio::time::timeout_at(self.until, &mut renewal).await {
            Ok(answer) => answer,
            Err(_) => {
                if self.core.shares.set_lapsed(true) {
                    tracing::warn!("the lease of this process is not renewed: nothing is delivered until it is");
                }
                (&mut renewal).await
            }
        };
        drop(renewal);
        self.upstreams = upstreams;
        let renewal = answer?;
        self.until = asked + fleet.lease() * USED / 12;
        self.granted(renewal, fleet);
        Ok(())
    }

    fn granted(&mut self, renewal: Renewal, fleet: &dyn Fleet) {
        let Renewal { taken, abandoned, surplus, woken } = renewal;
        let core = &self.core;
        let is_over = core.shares.renewed(self.until);
        if abandoned > 0 {
            tracing::info!(abandoned, "jobs that another process left in progress are enqueued again");
        }
        if is_over || !taken.is_empty() || Instant::now() >= self.search_at {
            self.search_at = Instant::now() + fleet.lease();
            core.shares.take(taken);
            core.lanes.look_into_store();
        }
        // What may be claimed changes by what others do, of which nobody tells.
        core.dispatch.notify_one();
        woken.iter().for_each(|did| core.lanes.ask(core, did));
        core.shares.leave(surplus);
    }

    /// Gives up the hosts that were left. What this process knows of their pauses goes with them.
    async fn give_up(&self, fleet: &dyn Fleet) -> Result<(), StoreError> {
        let core = &self.core;
        let vacated = core.shares.vacated();
        if vacated.is_empty() {
            return Ok(());
        }
        let known = core.pace.hosts();
        let with_pause = |name: String| {
            let found = known.binary_search_by(|host| (*host.host).cmp(&name)).ok();
            let pause = found.and_then(|at| known[at].pause).map_or(Duration::ZERO, |(_, pause)| pause);
            (name, pause)
        };
        let hosts: Vec<(String, Duration)> = vacated.into_iter().map(with_pause).collect();
        fleet.give_up(&hosts).await?;
        core.shares.forget(hosts.iter().map(|(name, _)| name.as_str()));
        Ok(())
    }
}
