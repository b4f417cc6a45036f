//! Keeps a consumer's copy of AT Protocol repositories complete and current: every record that exists now, then every change, in order,
//! with nothing missing.
//!
//! Begin with [`engine::Backfiller`], your [`consumer::Handler`] and a [`store::Store`]. README.md tells what is guaranteed,
//! ARCHITECTURE.md how.
//!
//! ```text
//!  op sets handed in ──► engine ──► store: buffer                                PDS hosts
//!                          │          │                                              │ CAR bytes
//!        enqueue ──► dispatcher ──► worker ──► identity ──► fetch (pace) ──► spool ──┘
//!                                     │                                       │
//!                                     │      repo: verified walk, in key order ◄──────┘
//!                                     │                    │ diff
//!                                     │              manifest (what the consumer has acknowledged)
//!                                     ▼                    ▼
//!                                   flush ─────────► consumer: Handler ──ack──► store (rev, manifest, buffer: one transaction)
//! ```

#[cfg(feature = "cli")]
pub mod cli;
pub mod consumer;
pub mod engine;
mod error_chain;
pub mod fetch;
pub mod firehose;
pub mod identity;
pub mod job;
pub mod manifest;
pub mod repo;
#[cfg(feature = "sim")]
pub mod sim;
pub mod store;
pub mod syntax;

/// Compiles what README.md shows.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
