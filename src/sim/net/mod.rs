//! The network over HTTP on loopback: a PLC directory, a relay, the PDS hosts, each on a port of its own.
mod answer;
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
mod source;

pub use counters::Counters;
pub use network::Network;
pub use options::{Flavour, HostOptions, NetworkOptions, Order, RateLimit};
pub use request::{Endpoint, Request};
