use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// Numbers from here on are moments in seconds since the Unix epoch, not seconds from now (September 2001; as a delta, 31 years).
const EPOCH_FROM: f64 = 1e9;
/// Numbers from here on are moments in milliseconds.
const EPOCH_MILLIS_FROM: f64 = 1e12;
/// How much of a header is looked at.
const MAX_PARTS: usize = 16;

/// What a host says about its limits in the headers of one answer.
///
/// Understood are `Retry-After` in seconds and as a date; `RateLimit-Limit`, `-Remaining`, `-Reset` (seconds from now, or a moment in
/// Unix seconds or milliseconds) and `-Policy` (`3000;w=300`, also several, also quoted names with `q=`), the joint `RateLimit` of later
/// drafts (`limit=…, remaining=…, reset=…` and `"name";r=…;t=…`), and the same with `X-` in front.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// How long to wait, where it is said.
    pub retry_after: Option<Duration>,
    /// Requests left in the current window.
    pub remaining: Option<u64>,
    /// How long until the current window ends. Zero when it has ended.
    pub reset: Option<Duration>,
    /// The slowest of the policies.
    pub policy: Option<Policy>,
}

/// So many requests in so long a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Requests in a window.
    pub limit: f64,
    /// The length of a window; above zero.
    pub window: Duration,
}

impl Policy {
    /// Requests per second over the whole window.
    pub fn per_second(&self) -> f64 {
        self.limit / self.window.as_secs_f64()
    }
}

impl Limits {
    /// Reads the headers of an answer that arrived at `now`. A `Date` header counts as the host's own now, so that a wrong clock on either
    /// side does not shift the moments it names. Never fails: what is not understood is not there.
    pub fn of(headers: &HeaderMap, now: SystemTime) -> Self {
        let now = text(headers, DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
        let joint = any_text(headers, "ratelimit").map(joint_fields).unwrap_or_default();
        let number_of = |name: &str| any_text(headers, name).and_then(first_number);
        Self {
            retry_after: text(headers, RETRY_AFTER.as_str()).and_then(|value| retry_after(value, now)),
            remaining: number_of("ratelimit-remaining").or(joint.remaining).map(|n| n as u64),
            reset: number_of("ratelimit-reset").or(joint.reset).and_then(|n| from_now(n, now)),
            policy: any_text(headers, "ratelimit-policy").and_then(slowest_policy),
        }
    }

    /// Whether anything was said.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn any_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    text(headers, name).or_else(|| text(headers, &format!("x-{name}")))
}

fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    match number(value) {
        Some(n) => from_now(n, now),
        None => httpdate::parse_http_date(value).ok().map(|date| date.duration_since(now).unwrap_or_default()),
    }
}

/// A number that is not negative, nor infinite.
fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)
}

/// The number at the start of `100`, or of `100, 100;w=10`.
fn first_number(text: &str) -> Option<f64> {
    number(text.split([',', ';']).next()?)
}

/// How long from `now` to a moment that is given as seconds from now, or as Unix seconds or milliseconds.
fn from_now(n: f64, now: SystemTime) -> Option<Duration> {
    if n < EPOCH_FROM {
        return Duration::try_from_secs_f64(n).ok();
    }
    let seconds = if n < EPOCH_MILLIS_FROM { n } else { n / 1e3 };
    let moment = SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
    Some(moment.duration_since(now).unwrap_or_default())
}

#[derive(Default)]
struct Joint {
    remaining: Option<f64>,
    reset: Option<f64>,
}

fn joint_fields(value: &str) -> Joint {
    let mut joint = Joint::default();
    for (key, n) in value.split([',', ';']).take(MAX_PARTS).filter_map(assignment) {
        match key {
            "remaining" | "r" => joint.remaining = joint.remaining.or(Some(n)),
            "reset" | "t" => joint.reset = joint.reset.or(Some(n)),
            _ => {}
        }
    }
    joint
}

fn assignment(part: &str) -> Option<(&str, f64)> {
    let (key, value) = part.split_once('=')?;
    Some((key.trim(), number(value)?))
}

fn slowest_policy(value: &str) -> Option<Policy> {
    let policies = value.split(',').take(MAX_PARTS).filter_map(policy);
    policies.min_by(|a, b| a.per_second().total_cmp(&b.per_second()))
}

/// `<limit>;w=<seconds>`, or `"name";q=<limit>;w=<seconds>`.
fn policy(value: &str) -> Option<Policy> {
    let mut parts = value.split(';').take(MAX_PARTS);
    let mut limit = parts.next().and_then(number);
    let mut window = None;
    for (key, n) in parts.filter_map(assignment) {
        match key {
            "q" => limit = Some(n),
            "w" => window = Duration::try_from_secs_f64(n).ok().filter(|window| *window >= Duration::from_millis(1)),
            _ => {}
        }
    }
    Some(Policy { limit: limit.filter(|limit| *limit > 0.0)?, window: window? })
}
