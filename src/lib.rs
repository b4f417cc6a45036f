//! Keeps a copy of AT Protocol repositories complete and current.
#[cfg(feature = "cli")]
pub mod cli;
pub mod consumer;
pub mod engine;
pub mod fetch;
pub mod identity;
pub mod job;
pub mod manifest;
pub mod repo;
#[cfg(feature = "sim")]
pub mod sim;
pub mod store;
pub mod syntax;
