//! How fast a repo is read with every check: hashes, order, layers, completeness, the commit's signature.
//!
//! `cargo bench --bench checkout` prints records per second for repos of 8 to 100,000 records in three block orders (`-- 1000000` adds a million), beside the
//! floor (hash every block, no walk) and a plain walk in the same run, then the memory that a million records take. Each figure is the best of several rounds.
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

#[allow(unreachable_pub, reason = "the crate of the peers includes it too")]
mod input;
#[allow(unreachable_pub, reason = "the crate of the peers includes it too")]
mod plain;

use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::{Checkout, Leaves};
use input::{Order, Repo};

/// The child process that measures memory gets its file by this variable.
const MEMORY_FILE: &str = "BENCH_CHECKOUT_MEMORY_FILE";

fn main() {
    if let Ok(file) = std::env::var(MEMORY_FILE) {
        return measure_memory(&file);
    }
    let most = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(100_000);
    for records in [8, 1000, 10_000, 100_000, 1_000_000].into_iter().filter(|records| *records <= most) {
        let repo = Repo::new(records);
        Order::ALL.into_iter().for_each(|order| measure(&repo, records, order));
        if records == most {
            memory(&repo);
        }
    }
}

fn measure(repo: &Repo, records: u64, order: Order) {
    let car = repo.car(order);
    let rounds = (2_000_000 / records.max(200)).clamp(3, 500);
    let budget = SpoolBudget::new(1 << 32);
    let ours = best(rounds, || assert_eq!(count(&verified(repo, &car, &budget, 1 << 32)), records));
    let floor = best(rounds, || plain::floor(&car));
    let root = verified(repo, &car, &budget, 1 << 32).commit().data();
    let walk = best(rounds, || assert_eq!(plain::walk(&plain::hash(&car), root.digest()) as u64, records));
    let checkout = verified(repo, &car, &budget, 1 << 32);
    let signature = best(200, || checkout.verify(&repo.did, repo.key.public()).expect("it is signed"));
    println!(
        "{records:>8} records {:<10} {:>5.2} M/s, {:>5.2} x floor, {:>5.2} x plain walk, {:>6.2} x signature check",
        format!("{order:?}"),
        records as f64 / ours.as_secs_f64() / 1e6,
        floor.as_secs_f64() / ours.as_secs_f64(),
        walk.as_secs_f64() / ours.as_secs_f64(),
        ours.as_secs_f64() / signature.as_secs_f64(),
    );
}

fn best(rounds: u64, mut round: impl FnMut()) -> Duration {
    let mut timed = || {
        let start = Instant::now();
        round();
        start.elapsed()
    };
    (0..rounds).map(|_| timed()).min().unwrap_or_default()
}

/// Reads a file that arrives in pieces of 64 KiB, and checks its commit.
fn verified(repo: &Repo, car: &[u8], budget: &SpoolBudget, memory_limit: u64) -> Arc<Checkout> {
    let checkout = spooled(car.chunks(1 << 16), budget, memory_limit);
    checkout.verify(&repo.did, repo.key.public()).expect("it is signed");
    checkout
}

fn spooled<'a>(pieces: impl Iterator<Item = &'a [u8]>, budget: &SpoolBudget, memory_limit: u64) -> Arc<Checkout> {
    let options = SpoolOptions { memory_limit, ..SpoolOptions::default() };
    let mut spool = Spool::new(options, budget);
    pieces.for_each(|piece| spool.push(piece).expect("the file is sound"));
    Arc::new(spool.finish().expect("the file is whole"))
}

/// Walks over all records; answers how many.
fn count(checkout: &Arc<Checkout>) -> u64 {
    let (mut walk, mut leaves) = (checkout.walk(), Leaves::new());
    while walk.next(&mut leaves, 1000).expect("the tree is sound") {}
    walk.counts().records
}

/// Reads the repo in a process of its own, from a file and with 32 MiB of memory for the spool.
fn memory(repo: &Repo) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), repo.car(Order::Reference)).expect("the file is written");
    let program = std::env::current_exe().expect("this program has a path");
    let status = std::process::Command::new(program).env(MEMORY_FILE, file.path()).status().expect("it starts again");
    assert!(status.success(), "the child failed: {status}");
}

fn measure_memory(file: &str) {
    use std::io::Read;
    let mut file = std::fs::File::open(file).expect("the file is there");
    let size = file.metadata().expect("it has a size").len();
    let (budget, start) = (SpoolBudget::new(1 << 30), Instant::now());
    let mut spool = Spool::new(SpoolOptions::default(), &budget);
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece).expect("the file is read") {
            0 => break,
            len => spool.push(&piece[..len]).expect("the file is sound"),
        }
    }
    let on_disk = spool.is_on_disk();
    let records = count(&Arc::new(spool.finish().expect("the file is whole")));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim();
    println!(
        "memory: {records} records, {} MB, spool of 32 MiB{}: peak {peak}, {:.2} M/s",
        size / 1_000_000,
        if on_disk { " and a file" } else { "" },
        records as f64 / start.elapsed().as_secs_f64() / 1e6,
    );
}
