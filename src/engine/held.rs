//! Repos that are left alone for a while, though the store says that they are due: somebody other than their host has refused them for load.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::syntax::Did;

/// Repos that are held at once. More are not held: they are asked for again, at the pace of their host.
const BOUND: usize = 4096;

/// The repos that are held, and until when. Forgotten with the process: then they are asked for once more.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<HashMap<Did, Instant>>);

impl Held {
    pub(super) fn hold(&self, did: &Did, pause: Duration) {
        let mut held = self.lock();
        let now = Instant::now();
        if held.len() >= BOUND {
            held.retain(|_, until| *until > now);
        }
        if held.len() < BOUND {
            held.insert(did.clone(), now + pause);
        }
    }

    pub(super) fn is_held(&self, did: &Did) -> bool {
        let mut held = self.lock();
        match held.get(did) {
            Some(until) if *until > Instant::now() => true,
            Some(_) => {
                held.remove(did);
                false
            }
            None => false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Did, Instant>> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_repo_is_held_for_its_pause_and_no_longer() {
        let (held, did) = (Held::default(), Did::new("did:plc:abc").unwrap());
        assert!(!held.is_held(&did));
        held.hold(&did, Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(held.is_held(&did));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!held.is_held(&did));
        assert_eq!(held.len(), 0);
    }

    #[test]
    fn no_more_than_the_bound_are_held() {
        let held = Held::default();
        for number in 0..BOUND + 100 {
            held.hold(&Did::new(&format!("did:plc:{number}")).unwrap(), Duration::from_secs(60));
        }
        assert_eq!(held.len(), BOUND);
    }
}
