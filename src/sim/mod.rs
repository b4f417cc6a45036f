//! A simulated network to test against: accounts with real keys, repos with real signed commits and trees, a PLC directory and PDS hosts
//! over real HTTP on loopback, writes while you read, and every fault that hosts are known for.
//!
//! A [`World`] holds all accounts and is the truth; it needs no network. A seed decides everything in it.
mod account;
mod blocks;
mod builder;
mod clock;
mod content;
mod export;
mod fault;
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
pub use fault::{Ending, Fault, Faults, Missing, Position, RetryHint, Rule, RuleId};
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
