//! Which repos somebody acts on: at most one delivery path a repo in this process (I1).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::syntax::Did;

/// The repos that are open, each with whether a lane was asked for meanwhile.
#[derive(Debug, Default)]
pub(super) struct OpenRepos(Mutex<HashMap<Did, bool>>);

/// The right to act on a repo. Dropping it closes the repo.
#[derive(Debug)]
pub(super) struct Open {
    did: Did,
    repos: Arc<OpenRepos>,
    closed: bool,
}

impl OpenRepos {
    /// Opens a repo, unless it is open.
    pub(super) fn open(self: &Arc<Self>, did: &Did) -> Option<Open> {
        match self.lock().entry(did.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert(false);
                Some(Open { did: did.clone(), repos: Arc::clone(self), closed: false })
            }
        }
    }

    /// Opens a repo, or, when it is open, has whoever holds it told by [`Open::close`] that a lane was asked for.
    pub(super) fn open_or_ask(self: &Arc<Self>, did: &Did) -> Option<Open> {
        match self.lock().entry(did.clone()) {
            Entry::Occupied(mut place) => {
                place.insert(true);
                None
            }
            Entry::Vacant(place) => {
                place.insert(false);
                Some(Open { did: did.clone(), repos: Arc::clone(self), closed: false })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Did, bool>> {
        // No code that can panic runs under the lock, so a poisoned map is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    pub(super) fn did(&self) -> &Did {
        &self.did
    }

    /// Closes the repo, unless a lane was asked for: then the caller keeps the right and has to flush.
    pub(super) fn close(mut self) -> Option<Self> {
        let asked = {
            let mut open = self.repos.lock();
            let asked = open.get_mut(&self.did).is_some_and(std::mem::take);
            if !asked {
                open.remove(&self.did);
                // Another may open the repo from now on; dropping this must not close it for him.
                self.closed = true;
            }
            asked
        };
        asked.then_some(self)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.closed {
            self.repos.lock().remove(&self.did);
        }
    }
}
