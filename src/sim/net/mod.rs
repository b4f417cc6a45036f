//! The network over HTTP and WebSocket on loopback: a PLC directory, relays, the PDS hosts, each on a port of its own.
mod answer;
mod backfill;
mod body;
mod counters;
mod distort;
mod door;
mod limit;
mod network;
mod options;
mod pds;
mod plc;
mod records;
mod relay;
mod request;
mod server;
mod socket;
mod source;
mod subscribe;

pub use counters::Counters;
pub use network::Network;
pub use options::{Flavour, HostOptions, NetworkOptions, Order, RateLimit};
pub use request::{Endpoint, Request};
