use std::fmt;

use cid::Cid;
use multihash::Multihash;
use sha2::{Digest, Sha256};

use super::cid_text::link_text;

/// The content identifier of a commit, a tree node or a record: CIDv1, DAG-CBOR, SHA-256. Kept as the 32 bytes of its hash.
///
/// No other kind is allowed for these objects (atproto.com/specs/repository, "CID Formats").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link([u8; 32]);

impl Link {
    /// The four bytes before the hash in the binary form: version 1, codec dag-cbor, hash sha2-256, 32 bytes.
    pub const PREFIX: [u8; 4] = [0x01, 0x71, 0x12, 0x20];

    /// The link to a block.
    pub fn of(block: &[u8]) -> Self {
        Self(Sha256::digest(block).into())
    }

    /// A link from the hash of its block.
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The hash of the block.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads the 36-byte binary form, without multibase prefix. `None` for any other kind of CID.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let digest = bytes.strip_prefix(&Self::PREFIX)?;
        digest.try_into().ok().map(Self)
    }

    /// The 36-byte binary form.
    pub fn to_bytes(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..4].copy_from_slice(&Self::PREFIX);
        bytes[4..].copy_from_slice(&self.0);
        bytes
    }

    /// The link that a general CID is, or `None` for any other kind of CID.
    pub fn from_cid(cid: &Cid) -> Option<Self> {
        Self::from_bytes(&cid.to_bytes())
    }

    /// The same as a general CID.
    pub fn to_cid(&self) -> Cid {
        let hash = Multihash::wrap(0x12, &self.0).expect("32 bytes fit the 64 of a multihash");
        Cid::new_v1(0x71, hash)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Base32 is ASCII, so the fallback is never taken.
        f.pad(std::str::from_utf8(&link_text(self)).unwrap_or_default())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}

impl std::str::FromStr for Link {
    type Err = NotALink;
    fn from_str(text: &str) -> Result<Self, NotALink> {
        Cid::try_from(text).ok().and_then(|cid| Self::from_cid(&cid)).ok_or(NotALink)
    }
}

/// Text or bytes that are not a CIDv1 with codec dag-cbor and a SHA-256 hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a CIDv1 of DAG-CBOR and SHA-256")]
pub struct NotALink;
