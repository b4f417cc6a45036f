//! A program is stopped at every place at which it matters, on every store; the next one goes on, and in the end the consumer holds what the world does, in order.
//!
//! The process that is stopped is a real one, which aborts: this program again, with a trap in its store, its consumer, or the statements of its database. It
//! follows a simulated network that this one serves over loopback, and in which things go on. On the memory store, the tasks are dropped instead.
//!
//! `BACKFILL_FULL=1`: each place at several times. `BACKFILL_CRASH_SEED`: that of a failed run, which is printed.
#![allow(clippy::print_stderr, reason = "seeds and figures are printed")]

#[path = "../common/busy.rs"]
mod busy;
mod child;
mod consumer;
#[cfg(feature = "postgres")]
#[path = "../common/postgres.rs"]
mod database;
#[path = "../common/fold.rs"]
mod fold;
#[path = "../common/following.rs"]
mod following;
#[path = "../common/ground.rs"]
mod ground;
mod life;
mod opening;
mod points;
#[path = "../common/runner.rs"]
mod runner;
mod scene;
mod store;
mod trap;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::ExitCode;
use std::sync::Arc;

use ground::Ground;
use points::{OF_DATABASES, OF_ONE, OF_SEVERAL, Often, POINTS};
use runner::Case;
use scene::Scene;

const SEED: &str = "BACKFILL_CRASH_SEED";
const FULL: &str = "BACKFILL_FULL";
/// Points that are tried at once: a program that starts, stops, or waits leaves the machine idle.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    if child::obey() {
        return ExitCode::SUCCESS;
    }
    let seed = std::env::var(SEED).map_or_else(|_| RandomState::new().build_hasher().finish(), |seed| seed.parse().expect("a seed"));
    eprintln!("{SEED}={seed}");
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"));
    let mut cases = Vec::new();
    for (name, make) in stores() {
        let durable = name != "memory";
        let of_it = if name == "postgres" { OF_SEVERAL } else { OF_ONE };
        if durable {
            cases.push(Case::new(format!("{name}::opening"), move || opening::walk(make, if is_full() { 1 } else { 3 })));
        }
        for (number, &(point, often)) in POINTS.iter().chain(of_it).chain(OF_DATABASES.iter().filter(|_| durable)).enumerate() {
            let (runtime, seed) = (Arc::clone(&runtime), seed.wrapping_add(number as u64));
            let run = move || {
                let Some(ground) = make(point) else { return };
                runtime.block_on(async { Scene::new(ground, seed).await.play(point, &times(often, seed)).await });
            };
            cases.push(Case::new(format!("{name}::{}", point.replace(':', "::")), run));
        }
    }
    runner::run(cases, AT_ONCE)
}

fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

fn times(often: Often, seed: u64) -> Vec<u64> {
    let all = often.times(seed);
    if is_full() { all } else { vec![all[seed as usize % all.len()]] }
}

/// Makes an empty store; none where there is nowhere to make it.
type Make = fn(&str) -> Option<Ground>;

fn stores() -> Vec<(&'static str, Make)> {
    let stores: [(&str, Make); 2] = [("memory", |_| Some(Ground::memory())), ("sqlite", |_| Some(Ground::sqlite()))];
    #[cfg(feature = "postgres")]
    let stores = {
        let postgres: (&str, Make) = ("postgres", |point| Ground::postgres(&format!("crash postgres {point}")));
        [stores.as_slice(), &[postgres]].concat()
    };
    stores.to_vec()
}
