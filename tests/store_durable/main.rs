//! What only a durable store has to do: survive a restart, a full disk, a locked or damaged database, a lost connection, and another process.
#![cfg(any(feature = "sqlite", feature = "postgres"))]

#[cfg(feature = "postgres")]
#[path = "../common/postgres.rs"]
mod database;
#[cfg(feature = "postgres")]
#[path = "../common/own_cluster.rs"]
mod own_cluster;

#[macro_use]
mod both;
mod check;
#[cfg(feature = "postgres")]
mod fleet;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod relay;
#[cfg(feature = "sqlite")]
mod sqlite;
mod support;
#[cfg(feature = "postgres")]
mod tls;
#[cfg(feature = "postgres")]
#[path = "../common/words.rs"]
mod words;
