//! The engine against the simulated network: real bytes over real HTTP, the world's own state as the truth.
#![allow(clippy::print_stdout, reason = "seeds are printed")]

#[cfg(feature = "postgres")]
#[path = "../common/postgres.rs"]
mod database;

#[cfg(feature = "postgres")]
#[path = "../common/own_cluster.rs"]
mod own_cluster;

mod audit;
mod clocks;
mod difference;
mod faults;
mod follow;
mod follow_faults;
mod follow_identity;
mod follow_lies;
mod follow_return;
mod hours;
mod oracle;
mod restart;
mod rig;
mod steps;
mod store_faults;
mod whole;
#[path = "../common/words.rs"]
mod words;
