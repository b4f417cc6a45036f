use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;

/// Requests per second; above zero by construction. Fractions are allowed: 0.5 is one request in two seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// The slowest rate: about one request a day.
    pub const MIN: Rate = Rate(1e-5);
    /// The fastest rate, which is no limit in practice.
    pub const MAX: Rate = Rate(1e6);

    /// A rate in requests per second, or `None` outside of [`Rate::MIN`] to [`Rate::MAX`].
    pub const fn per_second(requests: f64) -> Option<Self> {
        // Not a number is in no range, so it is refused as well.
        if requests >= Self::MIN.0 && requests <= Self::MAX.0 { Some(Self(requests)) } else { None }
    }

    /// The same, with what is out of range moved to the nearer end, and what is not a number to the slow one.
    pub(crate) fn clamped(requests: f64) -> Self {
        Self::per_second(requests).unwrap_or(if requests > 1.0 { Self::MAX } else { Self::MIN })
    }

    /// Requests per second.
    pub const fn requests(self) -> f64 {
        self.0
    }

    /// The time from one request to the next.
    pub(crate) fn period(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.0)
    }

    /// As the limiter wants it. Requests are spread evenly, never in bursts, up to a rate at which a timer's resolution would be what
    /// limits them: from 100 a second on, as many as fall into 20 ms may come at once.
    pub(crate) fn quota(self) -> Quota {
        let burst = NonZeroU32::new((self.0 / 50.0) as u32).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(self.period()).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        quota.allow_burst(burst)
    }

    /// The slower of two.
    pub(crate) fn min(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}/s", self.0)
    }
}

impl std::str::FromStr for Rate {
    type Err = NotARate;
    fn from_str(text: &str) -> Result<Self, NotARate> {
        text.parse().ok().and_then(Self::per_second).ok_or(NotARate)
    }
}

/// Text that is not a number of requests per second above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a rate: must be a number of requests per second, from 0.00001 to 1000000")]
pub struct NotARate;
