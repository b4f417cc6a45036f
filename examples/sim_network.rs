//! A simulated network in a process of its own, for benchmarks and for programs in other languages.
//!
//! ```text
//! cargo run --release --example sim_network -- --repos 2000 --records 1000000 --truth truth.jsonl
//! ```
//!
//! Makes the whole world first, then prints one line of JSON with the URLs, and serves until its standard input closes; then it prints one
//! line with what the hosts saw. The truth file has a line for each repo: `{"did", "host", "rev", "data", "records"}`, as it is at the end.
#![allow(clippy::print_stdout, reason = "the lines are what the program is for")]

use std::error::Error;
use std::io::{BufWriter, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::sim::{Counters, HostOptions, Network, NetworkOptions, Sizes, World, Writer, WriterOptions};
use serde_json::json;

const USAGE: &str = "sim_network [--seed N] [--hosts N] [--repos N] [--records N] [--writes PER_SECOND] [--gzip] [--truth FILE]";

struct Arguments {
    seed: u64,
    hosts: usize,
    repos: usize,
    records: u64,
    writes: f64,
    gzip: bool,
    truth: Option<String>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut found = Arguments { seed: 1, hosts: 4, repos: 200, records: 20_000, writes: 0.0, gzip: false, truth: None };
    let mut rest = std::env::args().skip(1);
    while let Some(name) = rest.next() {
        if name == "--gzip" {
            found.gzip = true;
            continue;
        }
        let value = rest.next().ok_or(USAGE)?;
        match name.as_str() {
            "--seed" => found.seed = value.parse()?,
            "--hosts" => found.hosts = value.parse()?,
            "--repos" => found.repos = value.parse()?,
            "--records" => found.records = value.parse()?,
            "--writes" => found.writes = value.parse()?,
            "--truth" => found.truth = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let sizes = Sizes::Total(arguments.records);
    let world = World::builder().seed(arguments.seed).hosts(arguments.hosts).repos(arguments.repos).sizes(sizes).build()?;
    let began = Instant::now();
    world.make_all();
    let made = began.elapsed();
    // One thread serves: the others are for the program that is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&world, &arguments, made))?;
    // The thread that waits for standard input may be left behind.
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(())
}

async fn serve(world: &Arc<World>, arguments: &Arguments, made: Duration) -> Result<(), Box<dyn Error>> {
    let hosts = HostOptions { gzip: arguments.gzip, ..Default::default() };
    let network = Network::start(world, NetworkOptions { hosts, ..Default::default() }).await?;
    let writing = (arguments.writes > 0.0).then(|| write(world, arguments));
    let ready = json!({
        "plc": network.plc_url(),
        "relay": network.relay_url(),
        "firehose": network.relay_firehose_url(),
        "hosts": network.host_urls(),
        "seed": world.seed(),
        "repos": world.dids().len(),
        "records": world.records(),
        "made_ms": made.as_millis() as u64,
    });
    println!("{ready}");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    let commits = match writing {
        Some(writer) => writer.stop().await,
        None => 0,
    };
    if let Some(path) = &arguments.truth {
        write_truth(world, path)?;
    }
    let all = |count: fn(&Counters) -> u64| (0..world.hosts()).map(|host| count(network.host(host))).sum::<u64>();
    let seen = json!({
        "commits": commits,
        "plc_requests": network.plc().all_requests(),
        "host_requests": all(Counters::all_requests),
        "host_bytes": all(Counters::bytes),
        "aborted": all(Counters::aborted),
        "busiest_second": (0..world.hosts()).map(|host| network.host(host).busiest(Duration::from_secs(1))).max(),
        "in_flight_max": (0..world.hosts()).map(|host| network.host(host).in_flight_max()).max(),
    });
    println!("{seen}");
    network.shutdown().await;
    Ok(())
}

/// Writes in the background. Nobody is told of the commits: whoever follows this network has to ask its hosts.
fn write(world: &Arc<World>, arguments: &Arguments) -> Writer {
    let (writer, mut op_sets) =
        Writer::start(world, WriterOptions { per_second: arguments.writes, seed: arguments.seed, ..Default::default() });
    tokio::spawn(async move { while op_sets.recv().await.is_some() {} });
    writer
}

fn write_truth(world: &World, path: &str) -> Result<(), Box<dyn Error>> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for did in world.dids() {
        if let (Some((rev, data, records)), Some(host)) = (world.head(&did), world.host_of(&did)) {
            writeln!(file, "{}", json!({"did": did, "host": host, "rev": rev, "data": data.to_string(), "records": records}))?;
        }
    }
    Ok(file.flush()?)
}
