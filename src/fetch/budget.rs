use tokio::time::{Duration, Instant};

use super::limits::Limits;
use super::meter::{Meter, Taken};
use super::{Backoff, PaceOptions, Rate, Wait, WaitReason};

/// No host is left alone for longer, whatever it demands.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60 * 60);
/// The least pause of a host that says "at once", growing while it goes on refusing.
const LEAST_PAUSE: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(60) };
/// So many server errors or stalls in a row make a host one that only fails.
const TROUBLES: u32 = 5;
/// No refusal slows a host down below this share of its rate.
const SLOWEST: f64 = 1.0 / 16.0;
/// After so long without a refusal a slowed host is tried a little faster.
const RAISE_AFTER: Duration = Duration::from_secs(60);
const RAISE_BY: f64 = 1.25;

/// What one host may be asked, and when. Decides only; the time, and how far a pause is drawn out, are parameters.
pub(super) struct Budget {
    meter: Meter,
    /// The rate that refusals have slowed it to.
    slowed: Rate,
    /// When `slowed` last changed.
    changed: Instant,
    /// What the host's own headers leave for the rest of their window.
    left: Option<(Rate, Instant)>,
    /// What the host's policy allows.
    policy: Option<Rate>,
    window: Option<Duration>,
    pause: Option<(WaitReason, Instant)>,
    in_flight: u32,
    /// Server errors, stalls and failures to connect in a row.
    troubles: u32,
    /// Whether it can only be probed.
    ailing: bool,
    troubled: Instant,
    /// Refusals in a row.
    refusals: u32,
    refused_at: Option<Instant>,
    refused: u64,
    used: Instant,
}

/// How a request ended, for the budget.
pub(super) enum Outcome<'a> {
    /// An answer that is neither a refusal nor a server error.
    Fine(&'a Limits),
    /// 429 or 503.
    Refused { status: u16, limits: &'a Limits },
    /// Another 5xx, a stall or a cut body.
    Troubled,
    /// No connection.
    Unreachable,
}

impl Budget {
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Self {
            meter: Meter::new(rate, now),
            slowed: rate,
            changed: now,
            left: None,
            policy: None,
            window: None,
            pause: None,
            in_flight: 0,
            troubles: 0,
            ailing: false,
            troubled: now,
            refusals: 0,
            refused_at: None,
            refused: 0,
            used: now,
        }
    }

    /// Lets one request through, unless something speaks against it.
    pub(super) fn admit(&mut self, now: Instant, options: &PaceOptions) -> Result<Taken, Wait> {
        if let Some((reason, until)) = self.pause {
            if now < until {
                return Err(Wait { reason, until: Some(until) });
            }
            self.pause = None;
        }
        if self.ailing && self.in_flight > 0 {
            return Err(Wait { reason: WaitReason::Unreachable, until: None });
        }
        if self.in_flight >= options.host_in_flight.get() {
            return Err(Wait { reason: WaitReason::InFlight, until: None });
        }
        let rate = self.rate(now);
        self.meter.set_rate(rate);
        let taken = self.meter.take(now).map_err(|until| Wait { reason: WaitReason::Rate, until: Some(until) })?;
        self.in_flight += 1;
        self.used = now;
        Ok(taken)
    }

    /// The admitted request is not made after all.
    pub(super) fn give_back(&mut self, taken: Taken) {
        self.meter.give_back(taken);
        self.release();
    }

    /// A request has ended.
    pub(super) fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// The rate that holds now.
    pub(super) fn rate(&mut self, now: Instant) -> Rate {
        self.left = self.left.filter(|(_, until)| now < *until);
        let left = self.left.map(|(rate, _)| rate);
        [self.policy, left].into_iter().flatten().fold(self.slowed, Rate::min)
    }

    /// Learns from how a request ended that was admitted at `admitted`. `stretch` (1.0 to 1.25) draws out pauses that nobody named, so that
    /// they do not end together.
    pub(super) fn learn(&mut self, outcome: &Outcome<'_>, admitted: Instant, now: Instant, stretch: f64, options: &PaceOptions) {
        match outcome {
            Outcome::Fine(limits) => {
                self.troubles = 0;
                if std::mem::take(&mut self.ailing) {
                    self.pause = self.pause.filter(|(reason, _)| *reason != WaitReason::Unreachable);
                }
                if self.is_news_of_refusals(admitted) {
                    self.refusals = 0;
                }
                self.heed_policy(limits);
                self.heed(limits, now);
                self.raise(now, options);
            }
            Outcome::Refused { status, limits } => self.refuse(*status, limits, admitted, now, stretch, options),
            Outcome::Troubled => self.trouble(1, admitted, now, stretch, options),
            Outcome::Unreachable => self.trouble(TROUBLES, admitted, now, stretch, options),
        }
    }

    /// Keeps to what the host says is left, so that it need not refuse.
    fn heed(&mut self, limits: &Limits, now: Instant) {
        let (Some(remaining), Some(reset)) = (limits.remaining, limits.reset) else { return };
        let reset = reset.min(MAX_PAUSE);
        // Those in flight may not be counted by the host yet; the one that has just ended is.
        let remaining = remaining.saturating_sub(u64::from(self.in_flight.saturating_sub(1)));
        if reset.is_zero() {
            self.left = None;
        } else if remaining == 0 {
            self.pause_until(WaitReason::Exhausted, now + reset);
        } else {
            self.left = Some((at_least_hourly(remaining as f64 / reset.as_secs_f64()), now + reset));
        }
    }

    fn heed_policy(&mut self, limits: &Limits) {
        if let Some(policy) = limits.policy {
            self.policy = Some(at_least_hourly(policy.per_second()));
            self.window = Some(policy.window);
        }
    }

    /// Whether a request was admitted after the last refusal: those that were in flight with the refused one tell nothing new.
    fn is_news_of_refusals(&self, admitted: Instant) -> bool {
        self.refused_at.is_none_or(|refused| admitted > refused)
    }

    fn refuse(&mut self, status: u16, limits: &Limits, admitted: Instant, now: Instant, stretch: f64, options: &PaceOptions) {
        self.refused += 1;
        self.troubles = 0;
        self.ailing = false;
        self.heed_policy(limits);
        if self.is_news_of_refusals(admitted) {
            self.refusals = self.refusals.saturating_add(1);
            self.refused_at = Some(now);
            self.slowed = Rate::clamped((self.slowed.requests() / 2.0).max(options.host_rate.requests() * SLOWEST));
            self.changed = now;
        }
        let pause = match limits.retry_after.or(limits.reset.filter(|reset| !reset.is_zero())) {
            Some(named) => named.max(LEAST_PAUSE.pause(self.refusals, 1.0)),
            None if status == 429 && limits.reset.is_none() => self.window.unwrap_or(options.outer_window),
            None => options.refused.pause(self.refusals, stretch),
        };
        self.pause_until(WaitReason::Refused, now + pause.min(MAX_PAUSE));
    }

    fn trouble(&mut self, weight: u32, admitted: Instant, now: Instant, stretch: f64, options: &PaceOptions) {
        // What was in flight when the host fell silent tells nothing new.
        if self.ailing && admitted <= self.troubled {
            return;
        }
        self.troubles = self.troubles.saturating_add(if self.ailing { 1 } else { weight });
        self.troubled = now;
        if self.troubles >= TROUBLES {
            self.ailing = true;
            self.pause_until(
                WaitReason::Unreachable,
                now + options.unreachable.pause(self.troubles - TROUBLES + 1, stretch).min(MAX_PAUSE),
            );
        }
    }

    fn raise(&mut self, now: Instant, options: &PaceOptions) {
        if self.slowed < options.host_rate && now.saturating_duration_since(self.changed) >= RAISE_AFTER {
            self.slowed = Rate::clamped(self.slowed.requests() * RAISE_BY).min(options.host_rate);
            self.changed = now;
        }
    }

    fn pause_until(&mut self, reason: WaitReason, until: Instant) {
        if self.pause.is_none_or(|(_, earlier)| earlier < until) {
            self.pause = Some((reason, until));
        }
    }

    /// The pause that holds now.
    pub(super) fn pause(&self, now: Instant) -> Option<(WaitReason, Duration)> {
        self.pause.filter(|(_, until)| now < *until).map(|(reason, until)| (reason, until - now))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    pub(super) fn is_ailing(&self) -> bool {
        self.ailing
    }

    /// How much would be lost by forgetting this host: nothing, that it does not answer, or what it asked for. Then, when it was last used.
    pub(super) fn worth(&self, now: Instant, options: &PaceOptions) -> (u8, Instant) {
        let class = match self.pause(now) {
            Some((WaitReason::Unreachable, _)) => 1,
            Some(_) => 2,
            None if self.ailing => 1,
            None if self.slowed < options.host_rate => 2,
            None => 0,
        };
        (class, self.used)
    }
}

/// What a host's headers demand, but no slower than one request per longest pause.
fn at_least_hourly(per_second: f64) -> Rate {
    Rate::clamped(per_second.max(1.0 / MAX_PAUSE.as_secs_f64()))
}
