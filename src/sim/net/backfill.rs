//! What joins a network and the program under test.
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::Network;
use crate::consumer::Handler;
use crate::engine::{Backfiller, Builder, EngineError, FollowOptions, Progress, UpstreamProgress};
use crate::fetch::{Backoff, ClientError, HttpOptions, Pace, PaceOptions, Rate};
use crate::firehose::{ClientOptions, SavePolicy, Upstream};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use crate::job::JobState;
use crate::store::Store;

/// How often it is looked whether something has come about that nobody announces.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Requests to one host at once.
const IN_FLIGHT: NonZeroU32 = NonZeroU32::new(8).unwrap();
/// Jobs that are read at once.
const PAGE: usize = 500;
const VALID: &str = "the network names its servers by valid URLs";

impl Network {
    /// A backfiller of this network that is in a hurry: hosts and directory are asked as fast as they answer; a host that says nothing for two
    /// seconds has failed; a connection that is lost is made again within a fifth of a second; identities are looked up whenever they are doubted.
    /// All of it may be set otherwise on what is returned.
    ///
    /// It follows nothing yet: add [`Self::relay_upstream`], or hand in what a [`crate::sim::Writer`] writes. How soon a *failed* repo is tried again
    /// is as ever, minutes: [`Self::caught_up`] does not wait for that.
    ///
    /// # Errors
    /// When an HTTP client cannot be made.
    pub fn backfiller(&self, name: &str, store: Arc<dyn Store>, handler: impl Handler) -> Result<Builder, ClientError> {
        let backoff = Backoff { first: Duration::from_millis(20), last: Duration::from_millis(200) };
        let pace = PaceOptions {
            host_rate: Rate::clamped(10_000.0),
            host_in_flight: IN_FLIGHT,
            global_rate: Rate::clamped(10_000.0),
            refused: backoff,
            outer_window: backoff.last,
            unreachable: backoff,
            ..PaceOptions::default()
        };
        let plc_url = self.plc_url().parse().expect(VALID);
        let directory = ResolverOptions { plc_url, development: true, pace, ..ResolverOptions::default() };
        let cache = CacheOptions { refresh: Duration::ZERO, ..CacheOptions::default() };
        let client = ClientOptions { development: true, backoff, ..ClientOptions::default() };
        let save = SavePolicy { every: Duration::from_millis(50), events: 50 };
        Ok(Backfiller::builder(name, store, handler)
            .pace(Pace::new(pace))
            .http(HttpOptions { development: true, idle_timeout: Duration::from_secs(2), ..HttpOptions::default() })
            .resolver(Arc::new(CachedResolver::new(HttpResolver::new(directory)?, cache)))
            .follow(FollowOptions { client, save, ..FollowOptions::default() }))
    }

    /// The firehose of the relay (the first, if there are several), to be followed.
    pub fn relay_upstream(&self) -> Upstream {
        Upstream::relay(self.relay_firehose_url()).expect(VALID)
    }

    /// The firehose of a host, to be followed.
    ///
    /// # Panics
    /// When there is no host of this number.
    pub fn host_upstream(&self, host: usize) -> Upstream {
        Upstream::host(self.host_firehose_url(host)).expect(VALID)
    }

    /// Waits until a backfiller has settled all that the firehoses of this network which it follows have told by now, from when it came to follow
    /// them: recorded it, or found that nothing is to be done. It may take for ever where something is amiss: give it a time limit.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn settled(&self, backfiller: &Backfiller) -> Result<(), EngineError> {
        let told: HashMap<String, _> =
            self.streams().map(|(url, stream)| (Upstream::relay(url).expect(VALID).name().to_owned(), (stream.head(), stream))).collect();
        let is_behind = |upstream: &UpstreamProgress| {
            told.get(&upstream.name).is_some_and(|(head, stream)| match upstream.settled {
                Some(settled) => settled.seq.get() < *head,
                // What was told before it came it will not be told.
                None => *head > 0 && !(upstream.connected && stream.begins_after(*head)),
            })
        };
        loop {
            let follow = backfiller.progress().await?.follow;
            if !follow.iter().flat_map(|follow| &follow.upstreams).any(is_behind) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until a backfiller has done all there is to do: all that was told by now is settled, all repos are complete or unavailable, all buffers
    /// are empty. Repos that failed are tried again at once, so that a test does not wait minutes for it. As long as a repo fails it does not end: give
    /// it a time limit.
    ///
    /// # Errors
    /// When the store fails, or the backfiller stops.
    pub async fn caught_up(&self, backfiller: &Backfiller) -> Result<Progress, EngineError> {
        loop {
            self.settled(backfiller).await?;
            let progress = backfiller.idle().await?;
            if progress.totals.failed == 0 {
                return Ok(progress);
            }
            retry_failed(backfiller).await?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Has every repo that failed checked out again now.
async fn retry_failed(backfiller: &Backfiller) -> Result<(), EngineError> {
    let mut after = None;
    loop {
        let jobs = backfiller.jobs(after, PAGE).await?;
        let Some(last) = jobs.last() else { return Ok(()) };
        after = Some(last.id);
        for job in jobs.iter().filter(|job| matches!(job.state, JobState::Failed { .. })) {
            match backfiller.backfill_repo(&job.did).await {
                // It was purged meanwhile.
                Ok(_) | Err(EngineError::Unknown { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
