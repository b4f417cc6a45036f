//! The whole way of a commit: read from the socket, verified, routed, kept in a store, and acknowledged by a handler that counts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use atproto_backfill::engine::{Backfiller, Builder};
use atproto_backfill::fetch::{HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::firehose::Upstream;
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::store::{MemoryStore, SqliteStore, Store};

use super::common::{Counting, Failed, cpu_seconds, memory_bytes};
use super::network::Remote;

const COMMITS: u64 = 100_000;
/// How often the counts are looked at.
const LOOK: Duration = Duration::from_millis(20);
const MILLION: u64 = 1_000_000;

/// How fast commits of one op go the whole way, once with each store. One thread does everything but what SQLite does.
pub(super) fn speed(signature: f64) -> Result<(), Failed> {
    println!("the whole way: {COMMITS} commits of one op on 1,000 repos over a WebSocket, to a handler that counts");
    let mut remote = Remote::start()?;
    let folder = tempfile::tempdir()?;
    let stores: [(&str, Arc<dyn Store>); 2] =
        [("memory store", Arc::new(MemoryStore::new())), ("SQLite", Arc::new(SqliteStore::open(folder.path().join("store.db"))?))];
    for (name, store) in stores {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let counted = Arc::new(Counting::default());
            let backfiller = builder(&remote, &store, &counted)?.build().await?;
            backfiller.enqueue(&remote.dids).await?;
            backfiller.start().await?;
            tokio::time::timeout(Duration::from_secs(600), backfiller.idle()).await??;
            // An event, so that there is a cursor to go on from.
            let before = counted.get();
            remote.write(1)?;
            while counted.get() == before {
                tokio::time::sleep(LOOK).await;
            }
            backfiller.stop().await?;
            remote.write(COMMITS)?;

            let checked_out = counted.get();
            let backfiller = builder(&remote, &store, &counted)?.build().await?;
            let (began, cpu) = (Instant::now(), cpu_seconds("self")?);
            backfiller.start().await?;
            while counted.get() < checked_out + COMMITS {
                tokio::time::sleep(LOOK).await;
            }
            let (wall, cpu) = (began.elapsed().as_secs_f64() / COMMITS as f64, (cpu_seconds("self")? - cpu) / COMMITS as f64);
            let progress = backfiller.progress().await?.follow.ok_or("it follows")?;
            if counted.get() != checked_out + COMMITS || !progress.gaps.is_empty() || !progress.dropped.is_empty() {
                return Err(format!("{} of {COMMITS} commits: {progress:?}", counted.get() - checked_out).into());
            }
            println!(
                "  {name:<40} {:>8.2} µs {:>8.0} a second {:>8.2} µs of CPU, {:>6.3} x the signature check",
                wall * 1e6,
                1.0 / wall,
                cpu * 1e6,
                cpu / signature
            );
            backfiller.stop().await?;
            Ok::<_, Failed>(())
        })?;
    }
    Ok(())
}

/// What memory the program has while millions of frames pass, most of them of repos that it does not follow.
pub(super) fn memory(frames: u64) -> Result<(), Failed> {
    let mut remote = Remote::start()?;
    let counted = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let backfiller = builder(&remote, &store, &counted)?.upstream(Upstream::relay(&remote.untracked)?).build().await?;
        backfiller.enqueue(&remote.dids).await?;
        backfiller.start().await?;
        let writing = thread::spawn(move || remote.write(COMMITS).map(|()| remote));
        println!("memory: {frames} frames, and {COMMITS} commits of 1,000 repos that are followed beside them");
        let began = Instant::now();
        let mut next = 0;
        while next <= frames {
            tokio::time::sleep(LOOK).await;
            let upstreams = backfiller.progress().await?.follow.ok_or("it follows")?.upstreams;
            let last = |at: usize| upstreams.get(at).and_then(|upstream| upstream.last).map_or(0, |last| last.seq.get());
            let seen = last(1).saturating_sub(super::input::FIRST_SEQ);
            if seen >= next {
                println!(
                    "  {:>10} frames, {:>7} changes delivered {:>8.1} MB resident {:>8.0} frames a second",
                    seen,
                    counted.get(),
                    memory_bytes("VmRSS")? as f64 / 1e6,
                    seen as f64 / began.elapsed().as_secs_f64()
                );
                next = (seen / MILLION + 1) * MILLION;
            }
        }
        backfiller.stop().await?;
        drop(writing.join().map_err(|_| "the writer panicked")??);
        Ok(())
    })
}

fn builder(remote: &Remote, store: &Arc<dyn Store>, counted: &Arc<Counting>) -> Result<Builder, Failed> {
    let pace = PaceOptions { host_rate: Rate::MAX, global_rate: Rate::MAX, host_in_flight: NonZeroU32::MAX, ..PaceOptions::default() };
    let resolver = ResolverOptions { plc_url: remote.plc_url.parse()?, development: true, pace, ..ResolverOptions::default() };
    let mut follow = atproto_backfill::engine::FollowOptions::default();
    follow.client.development = true;
    Ok(Backfiller::builder("bench", Arc::clone(store), Arc::clone(counted))
        .pace(Pace::new(pace))
        .http(HttpOptions { development: true, ..HttpOptions::default() })
        .resolver(Arc::new(CachedResolver::new(HttpResolver::new(resolver)?, CacheOptions::default())))
        .upstream(Upstream::relay(&remote.relay)?)
        .follow(follow))
}
