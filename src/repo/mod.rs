//! The repository format: CAR files, the tree, commits, records. Pure: no I/O of its own, no async, no store.
mod emit;
#[cfg(feature = "sim")]
pub mod export;
mod link;
pub mod mst;
mod signature;
#[cfg(feature = "sim")]
mod signing;

pub use link::{Link, NotALink};
pub use signature::{Curve, KeyError, PublicKey, SignatureError};
#[cfg(feature = "sim")]
pub use signing::SigningKey;
