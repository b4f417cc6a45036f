//! A backfiller that follows a simulated network, in a hurry: these tests are about other things than how hosts are spared.

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::consumer::Handler;
use atproto_backfill::engine::{Backfiller, Builder, FollowOptions};
use atproto_backfill::fetch::{Backoff, HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::firehose::{ClientOptions, SavePolicy, Upstream};
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::store::Store;

/// Looks identities up at the directory `plc`, and follows the firehose of the relay.
pub(crate) fn following(name: &str, store: Arc<dyn Store>, handler: impl Handler, plc: &str, relay: &str) -> Builder {
    let resolver = ResolverOptions { plc_url: plc.parse().expect("a URL"), development: true, pace: fast(), ..ResolverOptions::default() };
    let resolver = HttpResolver::new(resolver).expect("a client");
    let resolver = CachedResolver::new(resolver, CacheOptions { refresh: Duration::ZERO, ..CacheOptions::default() });
    let backoff = Backoff { first: Duration::from_millis(20), last: Duration::from_millis(200) };
    let client = ClientOptions {
        development: true,
        backoff,
        ping_interval: Duration::from_secs(1),
        silence: Duration::from_secs(3),
        ..ClientOptions::default()
    };
    let save = SavePolicy { every: Duration::from_millis(50), events: 50 };
    Backfiller::builder(name, store, handler)
        .pace(Pace::new(fast()))
        .http(HttpOptions { development: true, idle_timeout: Duration::from_secs(2), ..HttpOptions::default() })
        .resolver(Arc::new(resolver))
        .follow(FollowOptions { client, save, ..FollowOptions::default() })
        .upstream(Upstream::relay(relay).expect("a URL"))
}

fn fast() -> PaceOptions {
    let rate = || Rate::per_second(10_000.0).expect("a rate");
    PaceOptions { host_rate: rate(), host_in_flight: 8.try_into().expect("8"), global_rate: rate(), ..PaceOptions::default() }
}
