//! Which repos somebody acts on: at most one delivery path a repo in this process (I1).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio_util::sync::CancellationToken;

use crate::syntax::Did;

/// The repos that are open.
#[derive(Debug)]
pub(super) struct OpenRepos {
    repos: Mutex<HashMap<Did, Holder>>,
    /// Told whenever a repo is closed.
    closed: Notify,
    /// The stop of the whole program.
    stop: CancellationToken,
}

/// What others have to say to whoever holds a repo.
#[derive(Debug)]
struct Holder {
    /// A lane was asked for meanwhile.
    asked: bool,
    stop: CancellationToken,
}

/// The right to act on a repo. Dropping it closes the repo.
#[derive(Debug)]
pub(super) struct Open {
    did: Did,
    stop: CancellationToken,
    repos: Arc<OpenRepos>,
    closed: bool,
}

impl OpenRepos {
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self { repos: Mutex::default(), closed: Notify::new(), stop }
    }

    /// Opens a repo, unless it is open.
    pub(super) fn open(self: &Arc<Self>, did: &Did) -> Option<Open> {
        self.open_or(did, |_| ())
    }

    /// Opens a repo, or, when it is open, has whoever holds it told by [`Open::close`] that a lane was asked for.
    pub(super) fn open_or_ask(self: &Arc<Self>, did: &Did) -> Option<Open> {
        self.open_or(did, |holder| holder.asked = true)
    }

    fn open_or(self: &Arc<Self>, did: &Did, tell: impl FnOnce(&mut Holder)) -> Option<Open> {
        match self.lock().entry(did.clone()) {
            Entry::Occupied(mut holder) => {
                tell(holder.get_mut());
                None
            }
            Entry::Vacant(place) => {
                let stop = self.stop.child_token();
                place.insert(Holder { asked: false, stop: stop.clone() });
                Some(Open { did: did.clone(), stop, repos: Arc::clone(self), closed: false })
            }
        }
    }

    /// Has whoever acts on a repo stop, and waits until nobody does.
    pub(super) async fn end(&self, did: &Did) {
        loop {
            let closed = self.closed.notified();
            match self.lock().get(did) {
                Some(holder) => holder.stop.cancel(),
                None => return,
            }
            closed.await;
        }
    }

    /// Whether nobody acts on any repo.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The next time that any repo is closed, from now on.
    pub(super) fn closed(&self) -> Notified<'_> {
        self.closed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Did, Holder>> {
        // No code that can panic runs under the lock, so a poisoned map is as good as any.
        self.repos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    pub(super) fn did(&self) -> &Did {
        &self.did
    }

    /// Cancelled when the program stops, or the repo is to be left alone.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Closes the repo, unless a lane was asked for: then the caller keeps the right and has to flush.
    pub(super) fn close(mut self) -> Option<Self> {
        let asked = {
            let mut repos = self.repos.lock();
            let asked = repos.get_mut(&self.did).is_some_and(|holder| std::mem::take(&mut holder.asked));
            if !asked {
                repos.remove(&self.did);
                // Another may open the repo from now on; dropping this must not close it for him.
                self.closed = true;
            }
            asked
        };
        if !asked {
            self.repos.closed.notify_waiters();
        }
        asked.then_some(self)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.closed {
            self.repos.lock().remove(&self.did);
            self.repos.closed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repos() -> (Arc<OpenRepos>, Did) {
        (Arc::new(OpenRepos::new(CancellationToken::new())), Did::new("did:plc:abc").unwrap())
    }

    #[test]
    fn a_repo_is_open_to_one_at_a_time() {
        let (repos, did) = repos();
        let open = repos.open(&did).unwrap();
        assert!(repos.open(&did).is_none());
        assert!(open.close().is_none());
        drop(repos.open(&did).unwrap());
        assert!(repos.open(&did).is_some());
    }

    #[test]
    fn whoever_closes_a_repo_learns_that_a_lane_was_asked_for_once() {
        let (repos, did) = repos();
        let open = repos.open(&did).unwrap();
        assert!(repos.open_or_ask(&did).is_none() && repos.open_or_ask(&did).is_none());
        let open = open.close().expect("it was asked for");
        assert!(repos.open(&did).is_none(), "the right was lost");
        assert!(open.close().is_none());
    }

    #[tokio::test]
    async fn closing_the_last_repo_is_told() {
        let (repos, did) = repos();
        for close in [drop, |open: Open| assert!(open.close().is_none())] {
            let open = repos.open(&did).unwrap();
            let closed = repos.closed();
            assert!(!repos.is_empty());
            close(open);
            closed.await;
            assert!(repos.is_empty());
        }
    }

    #[tokio::test]
    async fn ending_waits_until_the_holder_has_gone() {
        let (repos, did) = repos();
        repos.end(&did).await;
        let open = repos.open(&did).unwrap();
        let ending = tokio::spawn({
            let (repos, did) = (Arc::clone(&repos), did.clone());
            async move { repos.end(&did).await }
        });
        open.stop().cancelled().await;
        assert!(!ending.is_finished());
        drop(open);
        ending.await.unwrap();
        assert!(!repos.open(&did).unwrap().stop().is_cancelled());
    }
}
