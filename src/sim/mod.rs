//! A simulated network to test against: accounts with real keys, repos with real signed commits and trees, a PLC directory, relays and PDS hosts
//! over real HTTP and WebSocket on loopback, writes while you read, and every fault that hosts are known for.
//!
//! | to | take |
//! |---|---|
//! | describe a world: seed, hosts, repos, sizes, collections | [`World::builder`] |
//! | know the truth | [`World::truth`], [`World::status`] |
//! | write, by hand or in the background | [`World::write`], [`RandomWrites`], [`Writer`] |
//! | delete, suspend, move accounts, rotate keys, restore a host from a backup | [`World::set_status`], [`World::migrate`], [`World::rotate_key`], [`World::restore`] |
//! | set the clock that dates commits | [`World::clock`] |
//! | have the clock of the machine under test jump | [`WallClock`] |
//! | serve it, and say how hosts behave when nothing goes wrong | [`Network::start`], [`NetworkOptions`], [`HostOptions`] |
//! | have answers, events, connections go wrong | [`Network::faults`], [`Rule`], with a [`Fault`], an [`EventFault`] or a [`StreamFault`] |
//! | have a server vanish and come back | [`Network::shut_host`], [`Network::shut_relay`] |
//! | have the consumer fail | [`FaultyHandler`] |
//! | have something happen in the midst of something else | [`Gate`] |
//! | join a backfiller and the network, and wait for it | [`Network::backfiller`], [`Network::caught_up`] |
//! | know what was asked for, how often, how fast | [`Network::host`], [`Counters`] |
//! | have a consumer that shows what yours is to end with | [`ConsumerCopy`] |
//!
//! A seed decides everything in a world; print it, and a test that failed can be repeated. Every rule counts how often it struck: assert that, since a fault that
//! never struck has tested nothing ([`Faults::unfired`]).
//!
//! # A test of a handler
//!
//! `examples/handler_test.rs` is a longer one: an index of posts, faults of every kind, a restart.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//! use atproto_backfill::consumer::{Handler, HandlerError, Record};
//! use atproto_backfill::job::Account;
//! use atproto_backfill::sim::{Ending, Fault, FaultyHandler, HandlerFault, Network, NetworkOptions, Position, RandomWrites, RetryHint, Rule, World};
//! use atproto_backfill::store::MemoryStore;
//! use atproto_backfill::syntax::{Did, RecordPathRef, Rev};
//!
//! /// The handler under test: the size of every record.
//! #[derive(Default)]
//! struct Index(Mutex<BTreeMap<String, usize>>);
//!
//! impl Handler for Index {
//!     async fn create(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
//!         self.0.lock().unwrap().insert(format!("{did}/{}", record.path), record.bytes.len());
//!         Ok(())
//!     }
//!     async fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
//!         self.create(did, rev, record).await
//!     }
//!     async fn delete(&self, did: &Did, _: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
//!         self.0.lock().unwrap().remove(&format!("{did}/{path}"));
//!         Ok(())
//!     }
//!     async fn account(&self, _: &Did, _: Account) -> Result<(), HandlerError> {
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let world = World::builder().seed(7).hosts(2).repos(8).build()?;
//! let network = Network::start(&world, NetworkOptions::default()).await?;
//! let cut = network.faults().inject(Rule::new(Fault::Cut(Position::Block(3), Ending::Clean)).host(0).times(1));
//! let busy = network.faults().inject(Rule::new(Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(1)))).host(1).times(1));
//!
//! let handler = Arc::new(FaultyHandler::new(Index::default()));
//! handler.inject(HandlerFault::Lose, 3);
//! let backfiller =
//!     network.backfiller("test", Arc::new(MemoryStore::new()), Arc::clone(&handler))?.upstream(network.relay_upstream()).build().await?;
//! backfiller.enqueue(&world.dids()).await?;
//! backfiller.start().await?;
//! let mut writes = RandomWrites::new(7);
//! (0..100).for_each(|_| _ = writes.write(&world));
//! tokio::time::timeout(Duration::from_secs(60), network.caught_up(&backfiller)).await??;
//!
//! let truth = |did: Did| {
//!     let records = world.truth(&did).into_iter().flat_map(|truth| truth.records);
//!     records.map(move |(path, (_, record))| (format!("{did}/{path}"), record.len()))
//! };
//! let expected: BTreeMap<String, usize> = world.dids().into_iter().flat_map(truth).collect();
//! assert_eq!(*handler.inner().0.lock().unwrap(), expected);
//! assert_eq!((network.faults().fired(cut), network.faults().fired(busy), handler.fired()), (1, 1, 3), "a fault that never struck has tested nothing");
//! backfiller.stop().await?;
//! network.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # A network by itself
//!
//! For a program under test that is not this library: point it at the URLs.
//!
//! ```
//! use atproto_backfill::sim::{EventFault, Network, NetworkOptions, Rule, Sizes, World, Writer, WriterOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let world = World::builder().seed(7).hosts(3).repos(20).sizes(Sizes::Total(500)).build()?;
//! let network = Network::start(&world, NetworkOptions::default()).await?;
//! let dropped = network.faults().inject(Rule::new(EventFault::Drop).after(3).times(1));
//! let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 200.0, limit: 10, ..Default::default() });
//!
//! println!("{world:?} {} {}", network.plc_url(), network.relay_firehose_url());
//! let op_set = op_sets.recv().await.expect("the writer writes");
//!
//! // Stop the writes, then compare what the program holds with the truth.
//! writer.finished().await;
//! let truth = world.truth(&op_set.did).expect("the account exists");
//! assert!(truth.rev >= op_set.rev);
//! assert_eq!((network.relay_head(), network.faults().fired(dropped)), (9, 1), "the relay never told one of ten commits");
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
mod copy;
mod export;
mod fault;
mod firehose;
mod frame;
mod handler;
mod history;
mod names;
mod net;
mod plan;
mod random;
mod repo;
mod seed;
mod wall_clock;
mod world;
mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use account::AccountStatus;
pub use builder::WorldBuilder;
pub use clock::SimClock;
pub use copy::{ConsumerCopy, RepoCopy};
pub use fault::{Ending, EventFault, Fault, Faults, FrameFn, Gate, Missing, Position, RetryHint, Rule, RuleId, StreamFault};
pub use firehose::{EventKind, EventTimes, FirehoseOptions, Recorder};
pub use handler::{FaultyHandler, HandlerFault};
pub use net::{Counters, Endpoint, Flavour, HostOptions, Network, NetworkOptions, Order, RateLimit, Request};
pub use plan::Sizes;
pub use random::RandomWrites;
pub use repo::{Change, WriteError};
pub use wall_clock::WallClock;
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
