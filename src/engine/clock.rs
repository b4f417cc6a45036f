use std::time::SystemTime;

use tokio::time::Instant;

use crate::job::Timestamp;

/// The time of day as it was at the start, moved on by tokio's monotonic clock: a jump of the system clock moves no retry, and a
/// test that pauses tokio's clock pauses retries too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    system: SystemTime,
    monotonic: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { system: SystemTime::now(), monotonic: Instant::now() }
    }

    pub(super) fn now(&self) -> Timestamp {
        let since_epoch = self.system.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + self.monotonic.elapsed();
        Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}
