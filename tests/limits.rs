//! What hosts say about their limits, in every form that is known to be in use.
use std::time::{Duration, SystemTime};

use atproto_backfill::fetch::{Limits, Policy};
use proptest::prelude::*;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// 2026-03-01 12:00:00 UTC.
const NOW: u64 = 1_772_366_400;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

fn limits(headers: &[(&str, &str)]) -> Limits {
    let pairs = headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()));
    Limits::of(&HeaderMap::from_iter(pairs), now())
}

fn seconds(n: u64) -> Option<Duration> {
    Some(Duration::from_secs(n))
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    assert_eq!(limits(&[("retry-after", "17")]).retry_after, seconds(17));
    assert_eq!(limits(&[("retry-after", " 17 ")]).retry_after, seconds(17));
    assert_eq!(limits(&[("retry-after", "0")]).retry_after, seconds(0));
    assert_eq!(limits(&[("retry-after", "1.5")]).retry_after, Some(Duration::from_millis(1500)));
    assert_eq!(limits(&[("retry-after", "Sun, 01 Mar 2026 12:01:40 GMT")]).retry_after, seconds(100));
    assert_eq!(limits(&[("retry-after", "Sunday, 01-Mar-26 12:01:40 GMT")]).retry_after, seconds(100));
    assert_eq!(limits(&[("retry-after", "Sun Mar  1 12:01:40 2026")]).retry_after, seconds(100));
    assert_eq!(limits(&[("retry-after", "Sun, 01 Mar 2026 11:00:00 GMT")]).retry_after, seconds(0), "a date that has passed");
}

#[test]
fn a_reset_is_seconds_from_now_or_a_moment() {
    assert_eq!(limits(&[("ratelimit-reset", "42")]).reset, seconds(42));
    assert_eq!(limits(&[("ratelimit-reset", &(NOW + 42).to_string())]).reset, seconds(42));
    assert_eq!(limits(&[("ratelimit-reset", &((NOW + 42) * 1000).to_string())]).reset, seconds(42));
    assert_eq!(limits(&[("ratelimit-reset", &(NOW - 42).to_string())]).reset, seconds(0));
    assert_eq!(limits(&[("x-ratelimit-reset", "42")]).reset, seconds(42));
}

#[test]
fn moments_count_from_the_hosts_own_clock_where_it_shows_it() {
    let wrong_clock = ("date", "Sun, 01 Mar 2026 13:00:00 GMT");
    assert_eq!(limits(&[wrong_clock, ("ratelimit-reset", &(NOW + 3600 + 42).to_string())]).reset, seconds(42));
    assert_eq!(limits(&[wrong_clock, ("retry-after", "Sun, 01 Mar 2026 13:00:07 GMT")]).retry_after, seconds(7));
}

#[test]
fn the_reference_pds_is_understood() {
    let reset = (NOW + 200).to_string();
    let said = limits(&[
        ("RateLimit-Limit", "3000"),
        ("RateLimit-Remaining", "2994"),
        ("RateLimit-Reset", &reset),
        ("RateLimit-Policy", "3000;w=300"),
    ]);
    let policy = Policy { limit: 3000.0, window: Duration::from_secs(300) };
    assert_eq!(said, Limits { retry_after: None, remaining: Some(2994), reset: seconds(200), policy: Some(policy) });
    assert_eq!(policy.per_second(), 10.0);
}

#[test]
fn later_drafts_are_understood() {
    let joint = limits(&[("ratelimit", "limit=100, remaining=50, reset=30"), ("ratelimit-policy", "100;w=60")]);
    assert_eq!((joint.remaining, joint.reset), (Some(50), seconds(30)));
    let named = limits(&[("ratelimit", "\"default\";r=50;t=30"), ("ratelimit-policy", "\"default\";q=100;w=60")]);
    assert_eq!((named.remaining, named.reset), (Some(50), seconds(30)));
    assert_eq!(named.policy, Some(Policy { limit: 100.0, window: Duration::from_secs(60) }));
    assert_eq!(limits(&[("ratelimit-remaining", "7, 100;w=10")]).remaining, Some(7));
}

#[test]
fn the_slowest_of_several_policies_counts() {
    let policy = limits(&[("ratelimit-policy", "10;w=1, 1000;w=1000 ,50;w=10")]).policy;
    assert_eq!(policy, Some(Policy { limit: 1000.0, window: Duration::from_secs(1000) }));
}

#[test]
fn what_is_not_understood_is_not_there() {
    for value in ["", "soon", "-5", "NaN", "inf", "1e999", "12 seconds", ";;;", "=,=;=", "0x10"] {
        let names = ["retry-after", "ratelimit-remaining", "ratelimit-reset", "ratelimit", "ratelimit-policy"];
        let said = limits(&names.map(|name| (name, value)));
        assert!(said.is_silent(), "{value:?}: {said:?}");
    }
    for policy in ["100", "100;w=0", "0;w=10", "w=10", "100;w=x"] {
        assert_eq!(limits(&[("ratelimit-policy", policy)]).policy, None, "{policy}");
    }
    assert!(limits(&[("date", "Sun, 01 Mar 2026 12:00:00 GMT"), ("content-type", "text/html")]).is_silent());
}

proptest! {
    #[test]
    fn no_headers_panic(values in proptest::collection::vec("[ -~]{0,40}|[0-9]{1,30}|\"?[a-z]*\"?;[qrtw]=[0-9.e]{0,9}", 5)) {
        let names = ["retry-after", "ratelimit-remaining", "ratelimit-reset", "ratelimit", "ratelimit-policy"];
        let headers: Vec<_> = names.into_iter().zip(values.iter().map(String::as_str)).collect();
        let said = limits(&headers);
        if let Some(policy) = said.policy {
            prop_assert!(policy.per_second() > 0.0);
        }
    }
}
