//! `backfill demo`: the whole program against a simulated network, compared with the truth at the end.

mod consumer;
mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use consumer::{Difference, Ledger};
use serde::Serialize;
use show::Show;

use super::report::{count, say};
use super::{Answer, Failed, database, wrong_usage};
use crate::engine::{Backfiller, FollowOptions, Options, Progress};
use crate::error_chain::error_chain;
use crate::fetch::{HttpOptions, Pace, PaceOptions, Rate};
use crate::firehose::{ClientOptions, Upstream};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use crate::job::OpSet;
use crate::sim::{Fault, HostOptions, Network, NetworkOptions, RetryHint, Rule, Sizes, World, Writer, WriterOptions};
use crate::store::{SqliteStore, Store};

/// Requests per second to each host: slow enough to watch, fast enough for two minutes.
const HOST_RATE: f64 = 12.0;
/// How long a host thinks before it answers, so that writes fall into checkouts as they do on a real network.
const LATENCY: Duration = Duration::from_millis(120);
const HOSTS: usize = 4;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Repos on the simulated network.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    repos: u32,
    /// Records in all repos together, when they begin.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=5_000_000))]
    records: u64,
    /// Commits that are made per second while the checkouts go on.
    #[arg(long, default_value_t = 200.0, value_name = "PER_SECOND", value_parser = writes, allow_negative_numbers = true)]
    writes: f64,
    /// Decides the network and what is written to it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the store in this file, which must not exist, instead of a temporary one.
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Print the summary as one JSON object on standard output.
    #[arg(long)]
    json: bool,
}

fn writes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.1..=100_000.0).contains(&rate) => Ok(rate),
        Ok(_) => Err("must be from 0.1 to 100000".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What the demo found.
#[derive(Debug, Serialize)]
struct Summary {
    repos: u64,
    records: u64,
    buffered_ops: u64,
    flushed_ops: u64,
    missing: u64,
    extra: u64,
    out_of_order: u64,
    refused: u64,
    elapsed_ms: u64,
    equal: bool,
}

pub(super) async fn run(arguments: Arguments) -> Answer {
    let (path, _folder) = match &arguments.db {
        Some(url) if database::is_url(url) => wrong_usage(&"the demo wants a store of its own: a file"),
        Some(path) if path.exists() => wrong_usage(&format!("{} exists; the demo wants a store of its own", path.display())),
        Some(path) => (path.clone(), None),
        None => {
            let folder = tempfile::tempdir()?;
            (folder.path().join("demo.db"), Some(folder))
        }
    };
    let store = SqliteStore::open(&path).map_err(|error| error_chain(&error))?;
    let store: Arc<dyn Store> = Arc::new(store);
    say(format_args!("making a network of {} repos with {} records", count(arguments.repos.into()), count(arguments.records)));
    let world = World::builder()
        .seed(arguments.seed)
        .hosts(HOSTS)
        .repos(arguments.repos as usize)
        .sizes(Sizes::Total(arguments.records))
        .build()?;
    let host = HostOptions { latency: LATENCY, ..HostOptions::default() };
    let network = Network::start(&world, NetworkOptions { hosts: host, ..NetworkOptions::default() }).await?;
    // A host that is busy for a moment, to show what becomes of it.
    let busy = Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(2)));
    network.faults().inject(Rule::new(busy).host(0).after(10).times(1));

    let ledger = Arc::new(Ledger::default());
    let backfiller = backfiller(&network, &store, &ledger).await?;
    let began = Instant::now();
    backfiller.enqueue(&world.dids()).await?;
    let show = Show::start(&backfiller, arguments.repos.into());
    let options = WriterOptions { per_second: arguments.writes, seed: arguments.seed, ..WriterOptions::default() };
    backfiller.start().await?;
    let (writer, op_sets) = Writer::start(&world, options);
    // What is written comes over the firehose; of the writer only its pace is of interest here.
    let mut writing = tokio::spawn(drain(op_sets));
    let following = async {
        tokio::select! {
            all = checked_out(&backfiller, arguments.repos.into()) => all?,
            ended = &mut writing => {
                ended?;
                return Err("the network is written to no more".into());
            }
        }
        writer.stop().await;
        writing.await?;
        caught_up(&backfiller, network.relay_head()).await?;
        Ok::<_, Failed>(backfiller.idle().await?)
    };
    let progress = tokio::select! {
        progress = following => progress?,
        failed = store_trouble(&backfiller) => return Err(failed),
    };
    let elapsed = began.elapsed();
    backfiller.stop().await?;
    show.finish().await;

    let summary = summary(&world, &ledger, &progress, elapsed);
    network.shutdown().await;
    match print(&summary, arguments.json) {
        // Nobody reads on.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(summary.equal)
}

async fn backfiller(network: &Network, store: &Arc<dyn Store>, ledger: &Arc<Ledger>) -> Result<Backfiller, Failed> {
    let unhurried =
        PaceOptions { host_rate: Rate::per_second(HOST_RATE).unwrap_or(PaceOptions::default().host_rate), ..PaceOptions::default() };
    let at_once =
        PaceOptions { host_rate: Rate::MAX, global_rate: Rate::MAX, host_in_flight: std::num::NonZeroU32::MAX, ..PaceOptions::default() };
    let resolver = ResolverOptions { plc_url: network.plc_url().parse()?, development: true, pace: at_once, ..ResolverOptions::default() };
    let resolver = CachedResolver::new(HttpResolver::new(resolver)?, CacheOptions::default());
    let builder = Backfiller::builder("demo", Arc::clone(store), Arc::clone(ledger))
        .options(Options::default())
        .pace(Pace::new(unhurried))
        .http(HttpOptions { development: true, ..HttpOptions::default() })
        .resolver(Arc::new(resolver))
        .upstream(Upstream::relay(network.relay_firehose_url())?)
        .follow(FollowOptions { client: ClientOptions { development: true, ..ClientOptions::default() }, ..FollowOptions::default() });
    Ok(builder.build().await?)
}

async fn drain(mut op_sets: tokio::sync::mpsc::Receiver<OpSet>) {
    while op_sets.recv().await.is_some() {}
}

/// Waits until the store fails. Elsewhere that would be waited out; here there is nobody who mends it.
async fn store_trouble(backfiller: &Backfiller) -> Failed {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        match backfiller.progress().await {
            Ok(progress) if progress.counts.store_failures == 0 => {}
            Ok(_) => return "the store does not take what is recorded; see the log".into(),
            Err(error) => return error.into(),
        }
    }
}

/// Waits until everything that the relay has told up to this event is settled.
async fn caught_up(backfiller: &Backfiller, head: u64) -> Result<(), crate::engine::EngineError> {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
        let follow = backfiller.progress().await?.follow.unwrap_or_default();
        let settled = follow.upstreams.first().and_then(|upstream| upstream.settled);
        if settled.is_some_and(|settled| settled.seq.get() >= head) || backfiller.is_broken() {
            return Ok(());
        }
    }
}

/// Waits until every repo has been checked out at least once.
async fn checked_out(backfiller: &Backfiller, repos: u64) -> Result<(), crate::engine::EngineError> {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let progress = backfiller.progress().await?;
        if progress.totals.complete + progress.totals.unavailable == repos || backfiller.is_broken() {
            return Ok(());
        }
    }
}

fn summary(world: &World, ledger: &Ledger, progress: &Progress, elapsed: Duration) -> Summary {
    let Difference { missing, extra } = ledger.compare(world);
    let out_of_order = ledger.out_of_order();
    Summary {
        repos: progress.totals.complete,
        records: progress.totals.records,
        buffered_ops: progress.counts.ops_buffered,
        flushed_ops: progress.counts.ops_flushed,
        missing,
        extra,
        out_of_order,
        refused: progress.counts.refused,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        equal: missing + extra + out_of_order == 0 && progress.totals.complete as usize == world.dids().len(),
    }
}

fn print(summary: &Summary, json: bool) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", serde_json::to_string(summary)?)?;
        return Ok(());
    }
    let Summary { repos, records, buffered_ops, flushed_ops, missing, extra, out_of_order, refused, elapsed_ms, equal } = summary;
    writeln!(out, "repos complete    {:>12}", count(*repos))?;
    writeln!(out, "records held      {:>12}", count(*records))?;
    writeln!(out, "ops buffered      {:>12}", count(*buffered_ops))?;
    writeln!(out, "ops flushed       {:>12}   (the others were in a checkout already)", count(*flushed_ops))?;
    writeln!(out, "missing           {:>12}", count(*missing))?;
    writeln!(out, "extra             {:>12}", count(*extra))?;
    writeln!(out, "out of order      {:>12}", count(*out_of_order))?;
    writeln!(out, "refused by hosts  {:>12}", count(*refused))?;
    writeln!(out, "elapsed           {:>10.1} s", *elapsed_ms as f64 / 1000.0)?;
    writeln!(out, "{}", if *equal { "the consumer holds exactly what the network does" } else { "THE CONSUMER DIFFERS FROM THE NETWORK" })?;
    Ok(())
}
