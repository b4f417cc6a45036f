//! How fast events of the firehose are read and verified, on one thread.
//!
//! `cargo bench --bench firehose` prints for commits of one op, each on a repo of 5,000 records with nodes and proofs as the reference implementation sends
//! them: the signature check alone, which is the floor; the whole verification; and the steps of it. Each figure is the best of
//! several rounds. Then how fast commits go the whole way through the program, in processor time as well.
//!
//! `cargo bench --bench firehose -- --memory 10000000` prints instead how much memory is resident while so many frames pass.
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

#[path = "../common/mod.rs"]
mod common;
#[allow(unreachable_pub, reason = "the crate of the peers includes it too")]
mod input;
mod network;
mod pipeline;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::{Duration, Instant};

use atproto_backfill::firehose::Prepared;
use atproto_backfill::firehose::event::CommitEvent;
use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::job::Timestamp;
use atproto_backfill::repo::Curve;
use bytes::Bytes;
use input::Input;

/// Later than every commit.
const NOW: Timestamp = Timestamp(1_800_000_000_000);
const REPOS: u64 = 20;
const COMMITS: u64 = 50;
/// How many are timed together.
const GROUP: usize = 20;
const ROUNDS: u32 = 30;

fn main() -> Result<(), common::Failed> {
    if let Some(served) = network::serve() {
        return served;
    }
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--memory") {
        return pipeline::memory(arguments.get(at + 1).ok_or("--memory needs a number of frames")?.parse()?);
    }
    let signatures = [Curve::K256, Curve::P256].map(|curve| measure(&Input::new(curve, REPOS, COMMITS)));
    // Half of the repos of the simulated network have a key of each curve.
    pipeline::speed(signatures.iter().sum::<f64>() / 2.0)
}

/// Returns the seconds that a signature check takes.
fn measure(input: &Input) -> f64 {
    let Input { frames, key, .. } = input;
    println!("{}: {} commits of one op, {} bytes each on average", key.curve(), frames.len(), input.frame_len());
    let prepared: Vec<Prepared> = frames.iter().map(prepare).collect();
    let signature = best(&prepared, |commit| commit.signed_by(key).expect("it is signed"));
    let report = |name: &str, each: f64| {
        let factor = each / signature;
        println!("  {name:<40} {:>8.2} µs {:>8.0} a second {factor:>6.3} x the signature check", each * 1e6, 1.0 / each);
    };
    report("signature check alone", signature);
    let full = best(frames, |frame| {
        let commit = prepare(frame);
        commit.signed_by(key).expect("it is signed");
        black_box(commit.prove().expect("it is proven"));
    });
    report("whole verification", full);
    report("read, every block hashed, ops undone", best(frames, |frame| drop(black_box(prepare(frame).prove().expect("it is proven")))));
    report("read, every block hashed", best(frames, |frame| drop(black_box(prepare(frame)))));
    let state = RandomState::new();
    let tracked: HashSet<u64> = (0..1_000_000).map(|number| state.hash_one(format!("did:plc:{number:024}"))).collect();
    report("read, not tracked", best(frames, |frame| assert!(!tracked.contains(&state.hash_one(event(frame).repo)))));
    signature
}

fn event(frame: &Bytes) -> CommitEvent<'_> {
    match read(frame) {
        Ok(Frame::Commit(event)) => event,
        other => panic!("no commit: {other:?}"),
    }
}

fn prepare(frame: &Bytes) -> Prepared {
    Prepared::commit(frame, &event(frame), NOW).expect("it is sound")
}

/// Seconds that each takes: of every group of them the best of many rounds, because other programs on the machine only ever make one slower.
fn best<T>(all: &[T], mut each: impl FnMut(&T)) -> f64 {
    let mut timed = |group: &[T]| {
        let start = Instant::now();
        group.iter().for_each(&mut each);
        start.elapsed()
    };
    let total: Duration = all.chunks(GROUP).map(|group| (0..ROUNDS).map(|_| timed(group)).min().unwrap_or_default()).sum();
    total.as_secs_f64() / all.len() as f64
}
