//! When a failed job is tried again.

use std::time::Duration;

use super::FailureKind;

/// The longest first delay.
pub const FIRST: Duration = Duration::from_secs(60);
/// The longest first delay where the host may well have the right thing a moment later: an export that was torn by a commit, a replica that lags.
pub const FIRST_OF_TRANSIENT: Duration = Duration::from_secs(5);
/// The longest delay of all.
pub const CAP: Duration = Duration::from_secs(3600);

/// How long to wait after `failures` failures in a row (from 1; 0 counts as 1), the last of this kind: one minute or, where that is likely to
/// help, five seconds, doubled with each further one up to an hour, of which a part between a half and the whole, chosen by `seed`, so that jobs that failed together do not come back together.
pub fn delay(kind: FailureKind, failures: u32, seed: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    let whole = (first(kind) * (1 << doublings)).min(CAP);
    let half = whole.as_millis() as u64 / 2;
    Duration::from_millis(half + scatter(seed ^ u64::from(failures)) % (half + 1))
}

fn first(kind: FailureKind) -> Duration {
    match kind {
        FailureKind::MissingBlock | FailureKind::Stale => FIRST_OF_TRANSIENT,
        FailureKind::Resolve
        | FailureKind::BrokenIdentity
        | FailureKind::Connect
        | FailureKind::Timeout
        | FailureKind::HttpClient
        | FailureKind::HttpServer
        | FailureKind::MalformedCar
        | FailureKind::InvalidTree
        | FailureKind::InvalidCommit
        | FailureKind::BadSignature
        | FailureKind::TooLarge
        | FailureKind::Handler
        | FailureKind::Local => FIRST,
    }
}

/// SplitMix64's finisher: neighbouring seeds give unrelated numbers.
fn scatter(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_delays_double_from_a_minute_to_an_hour_and_stay_there() {
        let longest = |failures| (0..4000).map(|seed| delay(FailureKind::Connect, failures, seed)).max().unwrap().as_secs_f64().round();
        let minutes: Vec<f64> =
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 64, 65, u32::MAX].map(|failures| (longest(failures) / 6.0).round() / 10.0).to_vec();
        assert_eq!(minutes, [1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0]);
    }

    proptest! {
        #[test]
        fn no_delay_is_below_half_the_first_or_above_an_hour(failures: u32, seed: u64) {
            for &kind in FailureKind::ALL {
                let delay = delay(kind, failures, seed);
                prop_assert!(delay >= first(kind) / 2 && delay <= CAP, "{kind:?}: {delay:?}");
            }
        }
    }

    #[test]
    fn a_delay_may_be_the_half_and_may_be_the_whole() {
        let delays = || (0..60_000).map(|seed| delay(FailureKind::Stale, 1, seed));
        assert_eq!((delays().min(), delays().max()), (Some(FIRST_OF_TRANSIENT / 2), Some(FIRST_OF_TRANSIENT)));
    }

    #[test]
    fn seeds_are_scattered_as_splitmix64_has_it() {
        // The first numbers of the reference implementation from the state 0, which it raises by this step.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        assert_eq!([0, step, step.wrapping_mul(2)].map(scatter), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn jobs_that_failed_together_come_back_spread_over_the_second_half() {
        let mut quarters = [0; 4];
        for seed in 0..1000 {
            let share = delay(FailureKind::Connect, 7, seed).as_secs_f64() / CAP.as_secs_f64();
            quarters[((share - 0.5) * 7.99) as usize] += 1;
        }
        assert!(quarters.iter().all(|&count| count > 200), "{quarters:?}");
    }
}
