use std::time::Duration;

use axum::http::header;
use tokio::time::Instant;

use super::answer::{Answer, unix_now};
use super::options::RateLimit;
use crate::sim::fault::RetryHint;

/// How much of a limit is used.
#[derive(Debug, Default)]
pub(super) struct Window {
    began: Option<Instant>,
    used: u64,
}

/// What a limit has to say about one request.
#[derive(Debug)]
pub(super) struct Allowance {
    rate: RateLimit,
    used: u64,
    /// Until the window ends.
    left: Duration,
}

impl Window {
    /// Counts a request.
    pub(super) fn take(&mut self, rate: RateLimit) -> Allowance {
        let now = Instant::now();
        let began = match self.began {
            Some(began) if now - began < rate.window => began,
            _ => {
                *self = Self { began: Some(now), used: 0 };
                now
            }
        };
        self.used += 1;
        Allowance { rate, used: self.used, left: rate.window - (now - began) }
    }
}

impl Allowance {
    /// The answer to a request over the limit.
    pub(super) fn refusal(&self) -> Option<Answer> {
        if !self.rate.enforced || self.used <= self.rate.limit {
            return None;
        }
        if !self.rate.announced {
            return Some(Answer::too_many(RetryHint::None));
        }
        let answer = self.announce(Answer::too_many(RetryHint::ResetIn(self.left)));
        Some(answer.with(header::RETRY_AFTER, &self.seconds_left().to_string()))
    }

    /// Says in the headers of an answer how much is left.
    pub(super) fn announce(&self, answer: Answer) -> Answer {
        if !self.rate.announced {
            return answer;
        }
        let remaining = self.rate.limit.saturating_sub(self.used);
        answer.rate(self.rate.limit, remaining, unix_now() + self.seconds_left(), self.rate.window)
    }

    /// Rounded up: who comes back then finds the window over.
    fn seconds_left(&self) -> u64 {
        self.left.as_secs() + u64::from(self.left.subsec_nanos() > 0)
    }
}
