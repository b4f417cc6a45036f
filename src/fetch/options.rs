use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::Rate;

/// How fast hosts are asked, and how long they are left alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaceOptions {
    /// Requests per second to one host. It is asked more slowly when it says so, never faster. Default 8.
    pub host_rate: Rate,
    /// Requests in flight to one host, their bodies included. Default 2.
    pub host_in_flight: NonZeroU32,
    /// Requests per second to all hosts together. Default 100.
    pub global_rate: Rate,
    /// How many hosts are remembered; beyond, those are forgotten of which nothing was learnt, then the unreachable ones. Default 10,000.
    pub remembered_hosts: NonZeroUsize,
    /// Pauses after refusals that do not say how long. Default 10 s to 5 min.
    pub refused: Backoff,
    /// The pause after a 429 that says nothing at all, which comes from an outer limiter: its whole window. Default 5 min.
    pub outer_window: Duration,
    /// Pauses of a host that cannot be reached, or that only fails, from one probe to the next. Default 10 s to 10 min.
    pub unreachable: Backoff,
}

impl Default for PaceOptions {
    fn default() -> Self {
        Self {
            host_rate: Rate::clamped(8.0),
            host_in_flight: NonZeroU32::MIN.saturating_add(1),
            global_rate: Rate::clamped(100.0),
            remembered_hosts: NonZeroUsize::MIN.saturating_add(9_999),
            refused: Backoff { first: Duration::from_secs(10), last: Duration::from_secs(300) },
            outer_window: Duration::from_secs(300),
            unreachable: Backoff { first: Duration::from_secs(10), last: Duration::from_secs(600) },
        }
    }
}

/// Pauses that double from the first to the last. So that they do not end together, the pace draws each out by up to a quarter, and a firehose
/// takes a random part of each between a half and the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub last: Duration,
}

impl Backoff {
    /// The pause after so many times, counted from 1: `first × 2^(times − 1)`, at most `last`, times `stretch`.
    pub(crate) fn pause(self, times: u32, stretch: f64) -> Duration {
        // The shift is bounded, so that it cannot overflow into no pause at all.
        let doubled = self.first.saturating_mul(1 << times.saturating_sub(1).min(30));
        Duration::try_from_secs_f64(doubled.min(self.last).as_secs_f64() * stretch).unwrap_or(self.last)
    }
}
