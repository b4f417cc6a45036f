use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::syntax::{Did, Rev};

/// Repos in one generation; two are kept: about 40 MB when all are full.
const GENERATION: usize = 131_072;

/// The last recorded rev of the repos that were heard of recently, so that the same commit from another upstream, or a replay, costs no verification.
/// Only what was verified and is in the store may be noted.
#[derive(Debug, Default)]
pub(in crate::engine) struct Recent(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    new: HashMap<Did, Rev>,
    old: HashMap<Did, Rev>,
}

impl Recent {
    /// Whether the repo is known to stand at this rev or above.
    pub(super) fn covers(&self, did: &Did, rev: Rev) -> bool {
        let generations = self.lock();
        [&generations.new, &generations.old].into_iter().any(|repos| repos.get(did).is_some_and(|known| *known >= rev))
    }

    pub(super) fn note(&self, did: &Did, rev: Rev) {
        let mut generations = self.lock();
        if generations.new.len() >= GENERATION {
            generations.old = std::mem::take(&mut generations.new);
        }
        let known = generations.new.entry(did.clone()).or_insert(rev);
        *known = rev.max(*known);
    }

    /// The repo may stand at a lower rev again.
    pub(in crate::engine) fn forget(&self, did: &Did) {
        let mut generations = self.lock();
        generations.new.remove(did);
        generations.old.remove(did);
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: usize) -> Did {
        Did::new(&format!("did:plc:{number}")).unwrap()
    }

    fn rev(number: u64) -> Rev {
        Rev::from_parts(number, 0)
    }

    #[test]
    fn covers_what_was_noted_and_nothing_above() {
        let recent = Recent::default();
        recent.note(&did(1), rev(5));
        recent.note(&did(1), rev(4));
        assert!(recent.covers(&did(1), rev(5)) && recent.covers(&did(1), rev(3)));
        assert!(!recent.covers(&did(1), rev(6)) && !recent.covers(&did(2), rev(1)));
        recent.forget(&did(1));
        assert!(!recent.covers(&did(1), rev(1)));
    }

    #[test]
    fn two_generations_are_kept() {
        let recent = Recent::default();
        for number in 0..3 * GENERATION {
            recent.note(&did(number), rev(1));
        }
        assert!(recent.covers(&did(3 * GENERATION - 1), rev(1)) && recent.covers(&did(2 * GENERATION - 1), rev(1)));
        assert!(!recent.covers(&did(0), rev(1)));
    }
}
