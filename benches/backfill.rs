//! The whole program end to end: a simulated network in a process of its own, SQLite, a handler that counts.
//!
//! ```text
//! cargo bench --bench backfill -- [--repos 2000] [--records 1000000] [--runs 3] [--memory]
//! ```
//!
//! Prints for each run: records per second, CPU time of this process and of the network, peak resident memory, bytes of store per record.
//! `--memory` runs on the memory store, which shows what SQLite costs. The pace is set so high that it never waits.
#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints")]

#[path = "common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read};
use std::num::NonZeroU32;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::engine::Backfiller;
use atproto_backfill::fetch::{HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::sim::{HostOptions, Network, NetworkOptions, Sizes, World};
use atproto_backfill::store::{MemoryStore, SqliteStore, Store};
use atproto_backfill::syntax::Did;
use common::{Counting, Failed, cpu_seconds, memory_bytes};

/// Set in the process that is the network: repos and records.
const NETWORK: &str = "BACKFILL_BENCH_NETWORK";

fn main() -> Result<(), Failed> {
    if let Ok(size) = std::env::var(NETWORK) {
        return network(&size);
    }
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| -> Result<u64, Failed> {
        let at = arguments.iter().position(|argument| argument == name);
        Ok(at.and_then(|at| arguments.get(at + 1)).map_or(Ok(default), |value| value.parse())?)
    };
    let (repos, records, runs) = (number("--repos", 2000)?, number("--records", 1_000_000)?, number("--runs", 3)?);
    let in_memory = arguments.iter().any(|argument| argument == "--memory");
    let mut network = Command::new(std::env::current_exe()?)
        .env(NETWORK, format!("{repos} {records}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let outcome = measure(&mut network, runs, in_memory);
    drop(network.stdin.take());
    network.wait()?;
    outcome
}

/// The process that is the network: prints its URL and its DIDs, serves until its standard input closes.
fn network(size: &str) -> Result<(), Failed> {
    let (repos, records) = size.split_once(' ').ok_or("no size")?;
    let world = World::builder().hosts(4).repos(repos.parse()?).sizes(Sizes::Total(records.parse()?)).build()?;
    world.make_all();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let hosts = HostOptions { gzip: false, ..HostOptions::default() };
        let network = Network::start(&world, NetworkOptions { hosts, ..NetworkOptions::default() }).await?;
        println!("{} {}", network.plc_url(), world.records());
        for did in world.dids() {
            println!("{did}");
        }
        println!();
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        Ok(())
    })
}

fn measure(network: &mut Child, runs: u64, in_memory: bool) -> Result<(), Failed> {
    let mut lines = BufReader::new(network.stdout.take().ok_or("no standard output")?).lines();
    let first = lines.next().ok_or("the network died")??;
    let (plc_url, records) = first.split_once(' ').ok_or("no URL")?;
    let records: u64 = records.parse()?;
    let mut dids = Vec::new();
    for line in lines {
        match line? {
            line if line.is_empty() => break,
            line => dids.push(Did::new(&line)?),
        }
    }
    println!("{} repos, {records} records, {} store", dids.len(), if in_memory { "memory" } else { "SQLite" });
    println!("{:>12} {:>10} {:>12} {:>14} {:>12} {:>16}", "records/s", "seconds", "CPU s", "network CPU s", "peak MB", "store B/record");
    for _ in 0..runs {
        let (cpu_before, network_before) = (cpu_seconds("self")?, cpu_seconds(&network.id().to_string())?);
        let run = tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(plc_url, &dids, records, in_memory))?;
        println!(
            "{:>12.0} {:>10.2} {:>12.2} {:>14.2} {:>12.1} {:>16.1}",
            records as f64 / run.seconds,
            run.seconds,
            cpu_seconds("self")? - cpu_before,
            cpu_seconds(&network.id().to_string())? - network_before,
            memory_bytes("VmHWM")? as f64 / 1e6,
            run.store_bytes as f64 / records as f64
        );
    }
    Ok(())
}

struct Run {
    seconds: f64,
    store_bytes: u64,
}

async fn run(plc_url: &str, dids: &[Did], records: u64, in_memory: bool) -> Result<Run, Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store.db");
    let store: Arc<dyn Store> = if in_memory { Arc::new(MemoryStore::new()) } else { Arc::new(SqliteStore::open(&path)?) };
    let count = Arc::new(Counting::default());
    let pace = PaceOptions { host_rate: Rate::MAX, global_rate: Rate::MAX, host_in_flight: NonZeroU32::MAX, ..PaceOptions::default() };
    let resolver = ResolverOptions { plc_url: plc_url.parse()?, development: true, pace, ..ResolverOptions::default() };
    let backfiller = Backfiller::builder("bench", Arc::clone(&store), Arc::clone(&count))
        .pace(Pace::new(pace))
        .http(HttpOptions { development: true, ..HttpOptions::default() })
        .resolver(Arc::new(CachedResolver::new(HttpResolver::new(resolver)?, CacheOptions::default())))
        .build()
        .await?;
    let began = Instant::now();
    backfiller.enqueue(dids).await?;
    backfiller.start().await?;
    let progress = tokio::time::timeout(Duration::from_secs(600), backfiller.idle()).await??;
    let seconds = began.elapsed().as_secs_f64();
    backfiller.stop().await?;
    let delivered = count.get();
    if delivered != records || progress.totals.records != records || progress.totals.complete != dids.len() as u64 {
        return Err(format!("delivered {delivered} of {records} records: {progress:?}").into());
    }
    drop((backfiller, store));
    let store_bytes = if in_memory { 0 } else { std::fs::metadata(&path)?.len() };
    Ok(Run { seconds, store_bytes })
}
