use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::job::Timestamp;

/// Where the time of day is read.
pub(super) type TimeOfDay = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The time of day as it was at the start, moved on by tokio's monotonic clock: a jump of the system clock moves no retry, and a
/// test that pauses tokio's clock pauses retries too.
#[derive(Clone)]
pub(super) struct Clock {
    system: SystemTime,
    monotonic: Instant,
    time_of_day: TimeOfDay,
}

impl Clock {
    pub(super) fn start(time_of_day: TimeOfDay) -> Self {
        Self { system: time_of_day(), monotonic: Instant::now(), time_of_day }
    }

    /// The time by which this process dates what it does.
    pub(super) fn now(&self) -> Timestamp {
        timestamp(self.system).plus(self.monotonic.elapsed())
    }

    /// The time to compare with what others say of theirs: a system clock that was behind at the start, and was set since, counts. One that
    /// was set back does not, so that nothing becomes a thing of the future that was none.
    pub(super) fn time_of_day(&self) -> Timestamp {
        self.now().max(timestamp((self.time_of_day)()))
    }

    /// By how much the system clock was set forward since the start; zero if it was not.
    pub(super) fn set_forward(&self) -> Duration {
        self.now().until(timestamp((self.time_of_day)()))
    }
}

fn timestamp(system: SystemTime) -> Timestamp {
    let since_epoch = system.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_system_clock_that_is_set_moves_no_date_and_counts_for_what_others_say_when_it_went_forward() {
        let start = SystemTime::UNIX_EPOCH + 500_000 * HOUR;
        let system = Arc::new(Mutex::new(start));
        let clock = Clock::start(Arc::new({
            let system = Arc::clone(&system);
            move || *system.lock().unwrap()
        }));
        let hours = |hours: u32| timestamp(start + hours * HOUR);
        tokio::time::advance(HOUR).await;
        *system.lock().unwrap() = start + HOUR;
        assert_eq!((clock.now(), clock.time_of_day(), clock.set_forward()), (hours(1), hours(1), Duration::ZERO));
        *system.lock().unwrap() = start + 10 * HOUR;
        assert_eq!((clock.now(), clock.time_of_day(), clock.set_forward()), (hours(1), hours(10), 9 * HOUR));
        *system.lock().unwrap() = start - 10 * HOUR;
        assert_eq!((clock.now(), clock.time_of_day(), clock.set_forward()), (hours(1), hours(1), Duration::ZERO));
        *system.lock().unwrap() = SystemTime::UNIX_EPOCH - HOUR;
        assert_eq!((clock.now(), clock.time_of_day(), clock.set_forward()), (hours(1), hours(1), Duration::ZERO));
    }
}
