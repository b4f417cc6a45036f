use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hosts that are remembered; there are some three thousand.
const BOUND: usize = 65_536;

/// Hosts that have proven where a commit starts (Sync 1.1), of which that is demanded ever after; learnt anew after a restart, with the first commit of each.
#[derive(Debug, Default)]
pub(super) struct Provers(Mutex<HashSet<String>>);

impl Provers {
    pub(super) fn note(&self, host: &str) {
        let mut hosts = self.lock();
        if hosts.len() < BOUND && !hosts.contains(host) {
            hosts.insert(host.to_owned());
        }
    }

    pub(super) fn contains(&self, host: &str) -> bool {
        self.lock().contains(host)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
