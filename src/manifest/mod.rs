//! The manifest: the sorted `path -> CID` map of what a consumer has acknowledged, in chunks of at most 256 entries. Pure.

use crate::repo::Link;
use crate::syntax::RecordPath;

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
