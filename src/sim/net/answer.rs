use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use bytes::Bytes;

use super::body::Step;
use crate::sim::fault::RetryHint;

/// An answer before it becomes HTTP.
#[derive(Debug)]
pub(in crate::sim) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(in crate::sim) body: Vec<Step>,
}

const PAGE: &str = "<!DOCTYPE html><html><head><title>Please wait</title></head><body><h1>Please wait</h1></body></html>\n";

impl Answer {
    pub(super) fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        Self { status, headers, body: vec![Step::Send(body.into())] }
    }

    pub(super) fn json(body: &serde_json::Value) -> Self {
        Self::new(StatusCode::OK, "application/json; charset=utf-8", body.to_string())
    }

    pub(super) fn car(body: Vec<Step>) -> Self {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.car"))]);
        Self { status: StatusCode::OK, headers, body }
    }

    /// An XRPC error.
    pub(super) fn error(status: u16, name: &str, message: &str) -> Self {
        let mut answer = Self::json(&serde_json::json!({"error": name, "message": message}));
        answer.status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer
    }

    /// A page for people.
    pub(super) fn page(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, "text/html; charset=utf-8", PAGE)
    }

    pub(super) fn redirect(to: &str) -> Self {
        Self::new(StatusCode::FOUND, "text/plain; charset=utf-8", "Found").with(header::LOCATION, to)
    }

    pub(super) fn unavailable(after: Option<Duration>) -> Self {
        let answer = Self::error(503, "NotEnoughResources", "too busy");
        match after {
            Some(after) => answer.with(header::RETRY_AFTER, &after.as_secs().to_string()),
            None => answer,
        }
    }

    pub(super) fn too_many(hint: RetryHint) -> Self {
        let answer = Self::error(429, "RateLimitExceeded", "Rate Limit Exceeded");
        match hint {
            RetryHint::Seconds(after) => answer.with(header::RETRY_AFTER, &after.as_secs().to_string()),
            RetryHint::Date(after) => answer.with(header::RETRY_AFTER, &httpdate::fmt_http_date(SystemTime::now() + after)),
            RetryHint::ResetAt(after) => answer.rate(3000, 0, unix_now() + after.as_secs(), Duration::from_secs(300)),
            RetryHint::ResetIn(after) => answer.rate(3000, 0, after.as_secs(), Duration::from_secs(300)),
            RetryHint::None => Self::page(429),
        }
    }

    /// The headers by which the reference implementation tells how much of a limit is left.
    pub(super) fn rate(self, limit: u64, remaining: u64, reset: u64, window: Duration) -> Self {
        self.with(HeaderName::from_static("ratelimit-limit"), &limit.to_string())
            .with(HeaderName::from_static("ratelimit-remaining"), &remaining.to_string())
            .with(HeaderName::from_static("ratelimit-reset"), &reset.to_string())
            .with(HeaderName::from_static("ratelimit-policy"), &format!("{limit};w={}", window.as_secs()))
    }

    /// Sets a header; a value that no header may have is left out.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// Seconds since the Unix epoch, by the real clock: clients compare with theirs.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
