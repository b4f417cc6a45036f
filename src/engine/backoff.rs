use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The pause after `attempt` failed attempts (from 1): `first`, doubled with each further one up to `longest`, of which a random part
/// between a half and the whole, so that what failed together does not come back together.
pub(super) fn pause(first: Duration, longest: Duration, attempt: u32) -> Duration {
    let whole = first.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(longest);
    let share = RandomState::new().hash_one(attempt) as f64 / u64::MAX as f64;
    whole.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_longest_and_never_overflows() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        for (attempt, whole) in [(0, 100), (1, 100), (2, 200), (5, 1600), (8, 10_000), (64, 10_000), (u32::MAX, 10_000)] {
            let whole = Duration::from_millis(whole);
            for _ in 0..100 {
                let pause = pause(first, longest, attempt);
                assert!(pause >= whole / 2 && pause <= whole, "attempt {attempt}: {pause:?}");
            }
        }
    }
}
