use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use governor::clock::{Clock, Reference};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, RateLimiter, StateStore};
use tokio::time::{Duration, Instant};

use super::Rate;

/// Spreads requests over time. The time is a parameter, a decision can be taken back, and the rate can change while it runs,
/// which a bare limiter knows nothing of.
pub(super) struct Meter {
    limiter: RateLimiter<NotKeyed, Dial, Dial, NoOpMiddleware<Duration>>,
    dial: Dial,
    base: Instant,
    rate: Rate,
}

impl Meter {
    /// A meter whose times count from `base`.
    pub(super) fn new(rate: Rate, base: Instant) -> Self {
        let dial = Dial::default();
        Self { limiter: RateLimiter::new(rate.quota(), dial.clone(), dial.clone()), dial, base, rate }
    }

    /// Changes the rate; what was spent stays spent.
    pub(super) fn set_rate(&mut self, rate: Rate) {
        if rate != self.rate {
            // The limiter measures from the reading at its making, which has to stay zero for the spent time to keep its meaning.
            self.dial.0.reading.store(0, Relaxed);
            self.limiter = RateLimiter::new(rate.quota(), self.dial.clone(), self.dial.clone());
            self.rate = rate;
        }
    }

    /// Lets one request through, or says when the next may pass.
    pub(super) fn take(&self, now: Instant) -> Result<Taken, Instant> {
        self.dial.0.reading.store(nanos(now.saturating_duration_since(self.base)), Relaxed);
        let spent = self.dial.0.spent.load(Relaxed);
        match self.limiter.check() {
            Ok(()) => Ok(Taken(spent)),
            Err(not_until) => Err(self.base + not_until.earliest_possible()),
        }
    }

    /// Takes the last decision back: the request is not made.
    pub(super) fn give_back(&self, taken: Taken) {
        self.dial.0.spent.store(taken.0, Relaxed);
    }
}

/// What was spent before a request was let through.
pub(super) struct Taken(u64);

/// The clock and the memory of a limiter. Its owner holds a lock, so the atomics are only there to be shared.
#[derive(Clone, Default)]
struct Dial(Arc<Readings>);

#[derive(Default)]
struct Readings {
    /// Nanoseconds from the base to now.
    reading: AtomicU64,
    /// Nanoseconds from the base to the moment at which all requests so far are paid for; zero before the first.
    spent: AtomicU64,
}

impl Clock for Dial {
    type Instant = Duration;
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.reading.load(Relaxed))
    }
}

impl StateStore for Dial {
    type Key = NotKeyed;
    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let spent = self.0.spent.load(Relaxed);
        let (outcome, spent) = decide((spent > 0).then_some(spent.into()))?;
        self.0.spent.store(spent.as_u64(), Relaxed);
        Ok(outcome)
    }
}

fn nanos(time: Duration) -> u64 {
    time.duration_since(Duration::ZERO).as_u64()
}
