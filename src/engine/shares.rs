//! What this process may work on, where several share a store; everything, where the store is its own.
//!
//! Whoever acts on jobs of a host has *entered* it, and the host is given up only when nobody has: so a host passes from one process to another with nothing under
//! way. While the lease cannot be renewed in time, nothing is handed to the handler: others may have taken the work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::store::Share;

/// What this process has.
#[derive(Debug)]
pub(super) struct Shares {
    /// None: everything.
    held: Option<Mutex<Held>>,
    /// Told when there is reason to renew the lease at once.
    pub(super) poke: Notify,
    /// Whether the lease may have run out.
    lapsed: watch::Sender<bool>,
    /// Until when it certainly has not.
    until: Mutex<Option<Instant>>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Held {
    shares: HashMap<Share, Holding>,
    /// How many shares were ever taken.
    taken: u64,
}

/// A share that this process has.
#[derive(Debug)]
struct Holding {
    /// Which one it was of all that were taken: a share that was given up and taken again is another.
    tenure: u64,
    /// How many act on its jobs.
    entered: usize,
    /// It is to be given up, and nobody enters it any more.
    leaving: bool,
}

/// The right to act on jobs of one share, until it is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    shares: Arc<Shares>,
    share: Option<Share>,
}

impl Shares {
    /// Everything, or, where others share the store, nothing yet.
    pub(super) fn new(are_shared: bool) -> Self {
        Self {
            held: are_shared.then(Mutex::default),
            poke: Notify::new(),
            lapsed: watch::Sender::new(false),
            until: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Enters a host, or the jobs that have none. None: they are not this process's, or not for long.
    pub(super) fn enter(self: &Arc<Self>, host: Option<&str>) -> Option<Entered> {
        let Some(mut held) = self.lock() else { return Some(Entered { shares: Arc::clone(self), share: None }) };
        let share = place(host);
        let holding = held.shares.get_mut(&share).filter(|holding| !holding.leaving)?;
        holding.entered += 1;
        Some(Entered { shares: Arc::clone(self), share: Some(share) })
    }

    /// Whether a host, or the jobs that have none, can be entered.
    pub(super) fn holds(&self, host: Option<&str>) -> bool {
        self.held.is_none() || self.tenure(&place(host)).is_some()
    }

    /// Whether this process follows an upstream.
    pub(super) fn follows(&self, upstream: &str) -> bool {
        self.tenure(&Share::Upstream(upstream.to_owned())).is_some()
    }

    /// Since when this process has had a share without a break: the same number as long as it does; none when it has not, or gives it up.
    pub(super) fn tenure(&self, share: &Share) -> Option<u64> {
        let Some(held) = self.lock() else { return Some(0) };
        held.shares.get(share).filter(|holding| !holding.leaving).map(|holding| holding.tenure)
    }

    pub(super) fn take(&self, taken: Vec<Share>) {
        let Some(mut held) = self.lock() else { return };
        for share in taken {
            held.taken += 1;
            let tenure = held.taken;
            held.shares.insert(share, Holding { tenure, entered: 0, leaving: false });
        }
        drop(held);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Has so many hosts be left, less those that are being left already; those first on which nobody acts.
    pub(super) fn leave(&self, surplus: usize) {
        let Some(mut held) = self.lock() else { return };
        let leaving = held.shares.values().filter(|holding| holding.leaving).count();
        let mut hosts: Vec<_> = held
            .shares
            .iter_mut()
            .filter(|(share, holding)| matches!(share, Share::Host(_)) && !holding.leaving)
            .map(|(_, holding)| holding)
            .collect();
        hosts.sort_unstable_by_key(|holding| holding.entered);
        hosts.into_iter().take(surplus.saturating_sub(leaving)).for_each(|holding| holding.leaving = true);
    }

    /// Hosts that are to be given up, on which nobody acts any more.
    pub(super) fn vacated(&self) -> Vec<String> {
        let Some(held) = self.lock() else { return Vec::new() };
        let vacated = held.shares.iter().filter(|(_, holding)| holding.leaving && holding.entered == 0);
        vacated.filter_map(|(share, _)| if let Share::Host(name) = share { Some(name.clone()) } else { None }).collect()
    }

    /// These were given up.
    pub(super) fn forget<'a>(&self, hosts: impl IntoIterator<Item = &'a str>) {
        let Some(mut held) = self.lock() else { return };
        hosts.into_iter().for_each(|host| _ = held.shares.remove(&place(Some(host))));
    }

    /// Told of each change from now on in what this process has.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The lease was renewed, and will do until then. Answers whether it had lapsed.
    pub(super) fn renewed(&self, until: Instant) -> bool {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.set_lapsed(false)
    }

    /// Whether something may be handed out now. A process that was held up as a whole finds it out here, before any of its timers tells.
    pub(super) fn are_certain(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| Instant::now() < until)
    }

    /// The lease may have run out, or was renewed. Answers whether that is a change.
    pub(super) fn set_lapsed(&self, lapsed: bool) -> bool {
        self.lapsed.send_replace(lapsed) != lapsed
    }

    /// Returns as soon as the lease may have run out.
    pub(super) async fn lapsed(&self) {
        // The sender lives as long as this.
        let _ = self.lapsed.subscribe().wait_for(|lapsed| *lapsed).await;
    }

    fn lock(&self) -> Option<MutexGuard<'_, Held>> {
        // No code that can panic runs under the lock.
        self.held.as_ref().map(|held| held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn place(host: Option<&str>) -> Share {
    host.map_or(Share::Unplaced, |name| Share::Host(name.to_owned()))
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let (Some(share), Some(mut held)) = (&self.share, self.shares.lock())
            && let Some(holding) = held.shares.get_mut(share)
        {
            holding.entered -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Share {
        Share::Host(name.to_owned())
    }

    fn shares(taken: &[&str]) -> Arc<Shares> {
        let shares = Arc::new(Shares::new(true));
        shares.take(taken.iter().map(|name| host(name)).collect());
        shares
    }

    #[test]
    fn a_process_alone_has_everything() {
        let shares = Arc::new(Shares::new(false));
        assert!(shares.holds(None) && shares.holds(Some("a")) && shares.follows("relay"));
        assert!(shares.enter(Some("a")).is_some() && shares.enter(None).is_some());
        shares.leave(1);
        assert!(shares.vacated().is_empty() && shares.holds(Some("a")));
    }

    #[test]
    fn only_what_was_taken_can_be_entered() {
        let shares = shares(&["a"]);
        assert!(shares.enter(Some("a")).is_some());
        assert!(shares.enter(Some("b")).is_none() && shares.enter(None).is_none() && !shares.follows("a"));
        shares.take(vec![Share::Unplaced, Share::Upstream("relay".to_owned())]);
        assert!(shares.enter(None).is_some() && shares.follows("relay"));
    }

    #[test]
    fn a_host_is_vacated_when_the_last_has_left() {
        let shares = shares(&["a"]);
        let (first, second) = (shares.enter(Some("a")).unwrap(), shares.enter(Some("a")).unwrap());
        shares.leave(1);
        assert!(shares.enter(Some("a")).is_none() && shares.tenure(&host("a")).is_none());
        drop(first);
        assert!(shares.vacated().is_empty());
        drop(second);
        assert_eq!(shares.vacated(), ["a"]);
        shares.forget(["a"]);
        assert!(shares.vacated().is_empty());
    }

    #[test]
    fn idle_hosts_are_left_first_and_no_more_than_asked_for() {
        let shares = shares(&["a", "b", "c"]);
        let _a = shares.enter(Some("a")).unwrap();
        let _c = shares.enter(Some("c")).unwrap();
        shares.leave(1);
        shares.leave(1);
        assert_eq!(shares.vacated(), ["b"]);
        assert!(shares.holds(Some("a")) && shares.holds(Some("c")));
        shares.leave(2);
        assert_ne!(shares.holds(Some("a")), shares.holds(Some("c")), "two in all are to be left");
    }

    #[test]
    fn a_share_that_was_taken_again_is_another_tenure() {
        let shares = shares(&["a"]);
        let before = shares.tenure(&host("a"));
        shares.forget(["a"]);
        shares.take(vec![host("a")]);
        assert!(before.is_some() && shares.tenure(&host("a")).is_some());
        assert_ne!(before, shares.tenure(&host("a")));
    }

    #[tokio::test]
    async fn a_lapse_is_told_until_it_is_over() {
        let shares = shares(&[]);
        assert!(shares.set_lapsed(true) && !shares.set_lapsed(true));
        shares.lapsed().await;
        assert!(shares.set_lapsed(false));
        assert!(futures::FutureExt::now_or_never(shares.lapsed()).is_none());
    }
}
