//! The pace of hosts, under a clock that only moves when everybody waits.
mod learning;
mod rates;

use std::num::NonZeroU32;

use atproto_backfill::fetch::{HostPace, Pace, PaceOptions, Permit, Rate};
use futures::future::join_all;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Duration, Instant};

fn rate(requests: f64) -> Rate {
    Rate::per_second(requests).expect("a rate of the test")
}

fn options(host: f64, in_flight: u32, global: f64) -> PaceOptions {
    let host_in_flight = NonZeroU32::new(in_flight).expect("above zero");
    PaceOptions { host_rate: rate(host), host_in_flight, global_rate: rate(global), ..PaceOptions::default() }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))).collect()
}

fn known(pace: &Pace, host: &str) -> HostPace {
    pace.hosts().into_iter().find(|known| &*known.host == host).unwrap_or_else(|| panic!("{host} is not remembered"))
}

fn secs(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

/// How long until the pace lets the next request through.
async fn until_admitted(pace: &Pace, host: &str) -> (Duration, Permit) {
    let asked = Instant::now();
    let permit = pace.admit(host).await;
    (asked.elapsed(), permit)
}

/// The moments at which `n` requests are let through that want to go all at once, each ending at once.
async fn moments(pace: &Pace, host: &str, n: usize) -> Vec<Instant> {
    let mut moments = join_all((0..n).map(|_| async {
        drop(pace.admit(host).await);
        Instant::now()
    }))
    .await;
    moments.sort_unstable();
    moments
}
