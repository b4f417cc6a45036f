//! A simulated network to test against: accounts with real keys, repos with real signed commits and trees, a PLC directory and PDS hosts
//! over real HTTP and WebSocket on loopback, writes while you read, and every fault that hosts are known for.
//!
//! A [`World`] holds all accounts and is the truth; it needs no network. A seed decides everything in it. A [`Network`] serves a world, tells
//! what happens in it over the firehoses of its relays and hosts, and takes faults: [`Fault`]s of answers, [`EventFault`]s of events,
//! [`StreamFault`]s of connections. A [`Writer`] writes in the background.
//!
//! ```
//! use std::time::Duration;
//! use atproto_backfill::sim::{EventFault, Fault, Network, NetworkOptions, RetryHint, Rule, Sizes, World, Writer, WriterOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let world = World::builder().seed(7).hosts(3).repos(20).sizes(Sizes::Total(500)).build()?;
//! let network = Network::start(&world, NetworkOptions::default()).await?;
//! let refusals = network.faults().inject(Rule::new(Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(1)))).host(0).times(2));
//! let dropped = network.faults().inject(Rule::new(EventFault::Drop).after(3).times(1));
//! let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 200.0, limit: 10, ..Default::default() });
//!
//! // Point the program under test at `network.plc_url()` and `network.relay_firehose_url()` …
//! println!("{world:?} {} {}", network.plc_url(), network.relay_firehose_url());
//! let op_set = op_sets.recv().await.expect("the writer writes");
//!
//! // … then stop the writes and compare what it holds with the truth.
//! writer.finished().await;
//! let truth = world.truth(&op_set.did).expect("the account exists");
//! assert!(truth.rev >= op_set.rev);
//! assert_eq!((network.relay_head(), network.faults().fired(dropped)), (9, 1), "the relay never told one of ten commits");
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
pub use fault::{Ending, EventFault, Fault, Faults, FrameFn, Gate, Missing, Position, RetryHint, Rule, RuleId, StreamFault};
pub use firehose::{EventKind, EventTimes, FirehoseOptions, Recorder};
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
