//! The repository format: CAR files, the tree, commits, records. Pure: no I/O of its own, no async, no store.
mod link;

pub use link::{Link, NotALink};
