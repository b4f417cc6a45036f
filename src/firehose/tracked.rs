use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::{PoisonError, RwLock};

use table::Table;

mod table;

/// So many parts, each under a lock of its own: while one grows (a millisecond at ten million repos), readers of the others go on. A power of two.
const SHARDS: usize = 256;

/// The repos that are followed, in memory: whether a commit is of interest is answered without a look at the store.
///
/// Of each DID there is a fingerprint of 64 bits, keyed at random, so that nobody can choose DIDs that collide: 11 to 16 bytes a repo, as full as
/// the table is at the moment, or 109 MB for ten million. A DID that is not in it is taken for one with a probability of one in a million million (at ten
/// million repos), which costs one look-up in the store. Nothing is removed: a purged repo costs such look-ups until the next start.
#[derive(Debug)]
pub struct TrackedRepos {
    key: RandomState,
    shards: Box<[RwLock<Table>]>,
}

impl TrackedRepos {
    /// No repos.
    pub fn new() -> Self {
        Self { key: RandomState::new(), shards: (0..SHARDS).map(|_| RwLock::default()).collect() }
    }

    /// Adds a repo by its DID; whether it was not there.
    pub fn insert(&self, did: &str) -> bool {
        self.insert_fingerprint(self.fingerprint(did))
    }

    /// Whether a repo is followed.
    pub fn contains(&self, did: &str) -> bool {
        let fingerprint = self.fingerprint(did);
        self.shard(fingerprint).is_some_and(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).contains(fingerprint))
    }

    /// How many repos there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let tables: usize = self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).bytes()).sum();
        tables + size_of_val(&*self.shards)
    }

    fn insert_fingerprint(&self, fingerprint: NonZeroU64) -> bool {
        self.shard(fingerprint).is_some_and(|shard| shard.write().unwrap_or_else(PoisonError::into_inner).insert(fingerprint))
    }

    fn fingerprint(&self, did: &str) -> NonZeroU64 {
        NonZeroU64::new(self.key.hash_one(did)).unwrap_or(NonZeroU64::MIN)
    }

    /// By the low bits, because the table goes by the high ones. There always is one.
    fn shard(&self, fingerprint: NonZeroU64) -> Option<&RwLock<Table>> {
        self.shards.get(fingerprint.get() as usize % SHARDS)
    }
}

impl Default for TrackedRepos {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    fn did(number: usize) -> String {
        format!("did:plc:{number:024}")
    }

    #[test]
    fn what_was_added_is_found_and_nothing_else() {
        let tracked = TrackedRepos::new();
        assert!(tracked.is_empty() && !tracked.contains(&did(0)));
        for number in 0..50_000 {
            assert!(tracked.insert(&did(number)), "{number} is new");
        }
        for number in 0..50_000 {
            assert!(!tracked.insert(&did(number)) && tracked.contains(&did(number)), "{number} is there");
        }
        assert!((50_000..200_000).all(|number| !tracked.contains(&did(number))), "64 bits do not collide in this test's lifetime");
        assert_eq!(tracked.len(), 50_000);
    }

    #[test]
    fn ten_million_repos_fit_into_two_hundred_megabytes() {
        let tracked = TrackedRepos::new();
        let mut state = 0x5eed_u64;
        for number in 1..=10_000_000usize {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The hash of a DID is as random as this, and slower to come by in an unoptimised test.
            let mixed = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            tracked.insert_fingerprint(NonZeroU64::new(mixed ^ (mixed >> 29)).expect("not zero"));
            if number.is_power_of_two() && number > 1_000_000 || number == 10_000_000 {
                let each = tracked.bytes() as f64 / number as f64;
                assert!((8.0..16.5).contains(&each), "{each:.1} bytes a repo at {number}");
            }
        }
        assert!(tracked.bytes() < 200_000_000, "{} bytes", tracked.bytes());
        assert!(tracked.len() > 9_999_000);
    }

    #[test]
    fn readers_go_on_while_it_grows() {
        let tracked = TrackedRepos::new();
        tracked.insert(&did(0));
        let done = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !done.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    assert!(tracked.contains(&did(0)));
                    longest = longest.max(began.elapsed());
                }
                longest
            });
            for number in 1..300_000 {
                tracked.insert(&did(number));
            }
            done.store(true, Ordering::Relaxed);
            reader.join().expect("no reader panics")
        });
        assert_eq!(tracked.len(), 300_000);
        assert!(longest < Duration::from_secs(2), "a reader waited {longest:?}");
    }
}
