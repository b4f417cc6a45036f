//! The manifest: the sorted `path -> CID` map of what a consumer has acknowledged, in chunks of at most 256 entries. Pure.
//!
//! [`Builder`] makes chunks of a sorted stream, [`Entries`] reads one, [`Diff`] compares a checkout with them, [`apply`] edits them.
//! Paths outside the consumer's filter are not in a manifest.

mod apply;
mod chunk;
mod diff;
mod front;
mod paths;

pub use apply::{Applied, ChunkMap, apply, rewrite};
pub use chunk::{Builder, Entries};
pub use diff::{Diff, Step};
pub use paths::{decode_paths, encode_paths};

use crate::repo::Link;
use crate::syntax::RecordPath;

/// The most entries that a chunk holds.
pub const MAX_ENTRIES: u32 = 256;

/// Up to 256 consecutive entries of a manifest, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The first path; the key of the chunk.
    pub first: RecordPath,
    /// How many entries, 1 to 256.
    pub entries: u32,
    /// Prefix-compressed paths and raw digests.
    pub bytes: Vec<u8>,
}

/// One changed path: its new CID, or none when it ceases to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The record.
    pub path: RecordPath,
    /// The CID that the consumer now holds; none after a delete.
    pub cid: Option<Link>,
}

/// What a manifest can be wrong in. All but [`ManifestError::OutOfOrder`] mean that the store is corrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The bytes end within an entry.
    #[error("chunk cut within entry {entry}")]
    Cut {
        /// The entry, from 0.
        entry: u32,
    },
    /// Bytes follow the last entry.
    #[error("{bytes} bytes behind the last entry of a chunk")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A version byte that this program does not write.
    #[error("chunk of version {found}")]
    Version {
        /// What was found.
        found: u8,
    },
    /// A count of entries that no chunk has.
    #[error("chunk of {found} entries")]
    Count {
        /// What was found.
        found: u32,
    },
    /// An entry that is not what encoding writes: a path that breaks the syntax, does not rise, or is not compressed as far as it can be.
    #[error("broken path in entry {entry} of a chunk")]
    Path {
        /// The entry, from 0.
        entry: u32,
    },
    /// The caller gave paths that do not rise.
    #[error("path {path} does not come after the one before it")]
    OutOfOrder {
        /// The path.
        path: String,
    },
}
