use std::time::Duration;

use super::Timestamp;
use crate::syntax::Rev;

/// How often the account's own host must give the same older rev before it is believed, the first time included.
pub const CONFIRMATIONS: u32 = 3;
/// How long the confirmations must lie apart, first to last.
pub const CONFIRM_OVER: Duration = Duration::from_secs(600);

/// An older rev that the account's own host gave, remembered on the job until it is believed or overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OlderRev {
    /// The rev that the host gave.
    pub rev: Rev,
    /// How often in a row, from 1.
    pub confirmations: u32,
    /// When it was given first.
    pub since: Timestamp,
}

/// Whether a checkout may be accepted (I8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Not older than anything known of the repo.
    Fresh,
    /// Older. To be retried; what is to be remembered, if the account's own host said so, goes into [`JobEvent::Older`](super::JobEvent::Older).
    Older(Option<OlderRev>),
    /// Older, and confirmed: the host was restored from a backup. To be accepted with [`Advance::accept_older`](crate::store::Advance), counted and logged.
    Restored,
}

/// Judges the rev of a checkout against the highest rev known of the repo: the higher of the job's `rev` and `min_rev`.
///
/// Only the account's own host can confirm an older rev; a mirror or a file that lags proves nothing.
pub fn freshness(checkout: Rev, known: Option<Rev>, remembered: Option<OlderRev>, own_host: bool, now: Timestamp) -> Freshness {
    if known.is_none_or(|known| checkout >= known) {
        return Freshness::Fresh;
    }
    if !own_host {
        return Freshness::Older(remembered);
    }
    let seen = match remembered {
        // One from the future was dated by a clock that has been set back since: it would confirm nothing for as long as that was ahead.
        Some(before) if before.rev == checkout && before.since <= now => {
            OlderRev { confirmations: before.confirmations.saturating_add(1), ..before }
        }
        Some(_) | None => OlderRev { rev: checkout, confirmations: 1, since: now },
    };
    if seen.confirmations >= CONFIRMATIONS && seen.since.until(now) >= CONFIRM_OVER {
        return Freshness::Restored;
    }
    Freshness::Older(Some(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn rev(n: u64) -> Rev {
        Rev::from_parts(n, 0)
    }

    /// What the freshness is after the host gave these revs at these minutes, own host or not.
    fn after(sightings: &[(u64, i64, bool)]) -> Freshness {
        let mut remembered = None;
        let mut last = Freshness::Fresh;
        for &(number, minute, own_host) in sightings {
            last = freshness(rev(number), Some(rev(100)), remembered, own_host, Timestamp(minute * MINUTE));
            if let Freshness::Older(seen) = last {
                remembered = seen;
            }
        }
        last
    }

    #[test]
    fn a_checkout_at_or_above_the_known_rev_is_fresh() {
        assert_eq!(freshness(rev(5), None, None, true, Timestamp(0)), Freshness::Fresh);
        assert_eq!(freshness(rev(5), Some(rev(5)), None, true, Timestamp(0)), Freshness::Fresh);
        assert_eq!(freshness(rev(6), Some(rev(5)), None, false, Timestamp(0)), Freshness::Fresh);
    }

    #[test]
    fn an_older_rev_is_accepted_when_the_own_host_gave_it_three_times_over_ten_minutes() {
        assert!(matches!(after(&[(7, 0, true)]), Freshness::Older(Some(OlderRev { confirmations: 1, .. }))));
        assert!(matches!(after(&[(7, 0, true), (7, 20, true)]), Freshness::Older(Some(OlderRev { confirmations: 2, .. }))));
        assert!(matches!(after(&[(7, 0, true), (7, 1, true), (7, 9, true)]), Freshness::Older(Some(OlderRev { confirmations: 3, .. }))));
        assert_eq!(after(&[(7, 0, true), (7, 1, true), (7, 10, true)]), Freshness::Restored);
        assert_eq!(after(&[(7, 0, true), (7, 1, true), (7, 3, true), (7, 12, true)]), Freshness::Restored);
    }

    #[test]
    fn another_older_rev_begins_the_count_anew() {
        let anew = OlderRev { rev: rev(8), confirmations: 1, since: Timestamp(11 * MINUTE) };
        assert_eq!(after(&[(7, 0, true), (7, 1, true), (8, 11, true)]), Freshness::Older(Some(anew)));
    }

    #[test]
    fn a_mirror_never_confirms_nor_disturbs_the_count() {
        assert_eq!(after(&[(7, 0, false), (7, 5, false), (7, 30, false)]), Freshness::Older(None));
        assert_eq!(after(&[(7, 0, true), (9, 1, false), (7, 2, true), (7, 10, true)]), Freshness::Restored);
    }

    #[test]
    fn a_clock_that_was_set_back_confirms_nothing_and_the_count_begins_anew() {
        assert!(matches!(after(&[(7, 60, true), (7, 1, true), (7, 0, true)]), Freshness::Older(Some(_))));
        let anew = OlderRev { rev: rev(7), confirmations: 1, since: Timestamp(MINUTE) };
        assert_eq!(after(&[(7, 60, true), (7, 61, true), (7, 1, true)]), Freshness::Older(Some(anew)));
        assert_eq!(after(&[(7, 600, true), (7, 601, true), (7, 1, true), (7, 6, true), (7, 11, true)]), Freshness::Restored);
    }
}
