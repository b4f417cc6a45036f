//! A simulated network to test against: accounts with real keys, repos with real signed commits and trees, a PLC directory and PDS hosts
//! over real HTTP on loopback, writes while you read, and every fault that hosts are known for.
//!
//! A [`World`] holds all accounts and is the truth; it needs no network. A seed decides everything in it. A [`Network`] serves a world and
//! takes [`Fault`]s; a [`Writer`] writes to it in the background and hands over what a firehose would tell.
//!
//! ```
//! use std::time::Duration;
//! use atproto_backfill::sim::{Fault, Network, NetworkOptions, RetryHint, Rule, Sizes, World, Writer, WriterOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let world = World::builder().seed(7).hosts(3).repos(20).sizes(Sizes::Total(500)).build()?;
//! let network = Network::start(&world, NetworkOptions::default()).await?;
//! let refusals = network.faults().inject(Rule::new(Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(1)))).host(0).times(2));
//! let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 200.0, ..Default::default() });
//!
//! // Point the program under test at `network.plc_url()`, and hand it each op set as it comes …
//! println!("{world:?} {}", network.plc_url());
//! let op_set = op_sets.recv().await.expect("the writer writes");
//!
//! // … then stop the writes and compare what it holds with the truth.
//! writer.stop().await;
//! let truth = world.truth(&op_set.did).expect("the account exists");
//! assert!(truth.rev >= op_set.rev);
//! assert_eq!(network.faults().fired(refusals), 0, "nothing was asked for here, so that this test would prove nothing");
//! network.shutdown().await;
//! # Ok(())
//! # }
//! ```
mod account;
mod acts;
mod blocks;
mod builder;
mod clock;
mod content;
mod export;
mod fault;
mod firehose;
mod frame;
mod history;
mod names;
mod net;
mod plan;
mod random;
mod repo;
mod seed;
mod world;
mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use account::AccountStatus;
pub use builder::WorldBuilder;
pub use clock::SimClock;
pub use fault::{Ending, Fault, Faults, Gate, Missing, Position, RetryHint, Rule, RuleId};
pub use firehose::{EventKind, EventTimes, FirehoseOptions};
pub use net::{Counters, Endpoint, Flavour, HostOptions, Network, NetworkOptions, Order, RateLimit, Request};
pub use plan::Sizes;
pub use random::RandomWrites;
pub use repo::{Change, WriteError};
pub use world::{Snapshot, Truth, World};
pub use writer::{Writer, WriterOptions};

/// Locks. A panic elsewhere ends its test; what it held is whole enough for the others to end in their own way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
