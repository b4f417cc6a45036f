use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

/// The time of day on a machine whose clock is wrong: the real one, ahead or behind by as much as a test wants, from one moment to the next. For
/// [`Builder::time_of_day`](crate::engine::Builder::time_of_day). Clones are the same clock.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use atproto_backfill::sim::WallClock;
///
/// let clock = WallClock::new();
/// clock.set_ahead(Duration::from_secs(7200));
/// assert!(clock.now() > SystemTime::now() + Duration::from_secs(7000));
/// ```
#[derive(Clone, Default)]
pub struct WallClock {
    /// Milliseconds, below zero behind.
    ahead: Arc<AtomicI64>,
}

impl WallClock {
    /// One that is right.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets it to the real time and this much.
    pub fn set_ahead(&self, by: Duration) {
        self.ahead.store(millis(by), Ordering::Release);
    }

    /// Sets it to the real time less this much.
    pub fn set_behind(&self, by: Duration) {
        self.ahead.store(-millis(by), Ordering::Release);
    }

    /// What it shows.
    pub fn now(&self) -> SystemTime {
        let (real, ahead) = (SystemTime::now(), self.ahead.load(Ordering::Acquire));
        let by = Duration::from_millis(ahead.unsigned_abs());
        let shown = if ahead < 0 { real.checked_sub(by) } else { real.checked_add(by) };
        shown.unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

fn millis(by: Duration) -> i64 {
    i64::try_from(by.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({} ms ahead)", self.ahead.load(Ordering::Acquire))
    }
}
