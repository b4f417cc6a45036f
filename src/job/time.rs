use std::time::Duration;

/// A moment: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment `after` later; saturates.
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long until `later`; zero when it has passed.
    pub fn until(self, later: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}
