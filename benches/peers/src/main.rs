//! The checkout of this project beside other readers of repos, with the same files in one run.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml -- 100000` prints records per second for each reader and block order, and how many times as
//! fast ours is. All read from memory, each with as many of its own checks as it has; what each checks is said beside its name.
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

#[path = "../../checkout/input.rs"]
mod input;
mod peers;
#[path = "../../checkout/plain.rs"]
mod plain;

use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::Leaves;
use input::{Order, Repo};

fn main() {
    let records = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000);
    let repo = Repo::new(records);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    println!("{records} records; million records a second, and how many times as fast ours is");
    for order in Order::ALL {
        let car = repo.car(order);
        let budget = SpoolBudget::new(1 << 32);
        let readers: Vec<(&str, Box<dyn Fn() -> usize + '_>)> = vec![
            ("ours (every check)", Box::new(|| ours(&repo, &car, &budget))),
            ("plain walk (every check but prefixes)", Box::new(|| plain::walk(&plain::hash(&car), peers::data(&car).digest()))),
            ("shrike (hashes, layers, order)", Box::new(|| peers::shrike_walk(&car))),
            ("repo-stream, memory (hashes, layers, order)", Box::new(|| runtime.block_on(peers::repo_stream(&car)))),
            ("repo-stream, disk (the same)", Box::new(|| runtime.block_on(peers::repo_stream_disk(&car)))),
            ("atrium-repo (hashes)", Box::new(|| runtime.block_on(peers::atrium(&car)))),
            ("jacquard-repo (no hashes)", Box::new(|| runtime.block_on(peers::jacquard(&car)))),
        ];
        let times: Vec<Duration> = readers.iter().map(|(name, read)| best(name, records as usize, read.as_ref())).collect();
        println!("{order:?}");
        for ((name, _), time) in readers.iter().zip(&times) {
            let (speed, ratio) = (records as f64 / time.as_secs_f64() / 1e6, time.as_secs_f64() / times[0].as_secs_f64());
            println!("  {name:<46} {speed:>6.3} M/s {ratio:>7.2} x");
        }
    }
}

/// The best of twenty rounds, or of as many as have begun after three seconds.
fn best(name: &str, records: usize, read: &dyn Fn() -> usize) -> Duration {
    let (start, mut best) = (Instant::now(), Duration::MAX);
    for _ in 0..20 {
        if best < Duration::MAX && start.elapsed() > Duration::from_secs(3) {
            break;
        }
        let begin = Instant::now();
        assert_eq!(read(), records, "{name} reads another number of records");
        best = best.min(begin.elapsed());
    }
    best
}

fn ours(repo: &Repo, car: &[u8], budget: &SpoolBudget) -> usize {
    let mut options = SpoolOptions::default();
    options.memory_limit = 1 << 32;
    let mut spool = Spool::new(options, budget);
    car.chunks(1 << 16).for_each(|piece| spool.push(piece).expect("the file is sound"));
    let checkout = Arc::new(spool.finish().expect("the file is whole"));
    checkout.verify(&repo.did, repo.key.public()).expect("it is signed");
    let (mut walk, mut leaves) = (checkout.walk(), Leaves::new());
    while walk.next(&mut leaves, 1000).expect("the tree is sound") {}
    walk.counts().records as usize
}
