use std::sync::Arc;

use super::index::{Index, TagKey};
use super::storage::Storage;
use super::{CheckoutError, Commit, Extent, Link, PublicKey, Walk};
use crate::syntax::Did;

/// A whole repo as a CAR file held it: every block has the hash of its CID, and the commit is decoded. Nothing is said of the tree yet.
///
/// ```text
/// Spool::push .. finish -> Checkout -> verify the commit -> Walk::next (keys, CIDs) -> Walk::read (the records wanted)
/// ```
#[derive(Debug)]
pub struct Checkout {
    commit: Commit,
    pub(super) storage: Box<dyn Storage>,
    /// None when the blocks lie in the order of a walk.
    pub(super) index: Option<(Index, TagKey)>,
    /// Bytes of all sections.
    pub(super) total: u64,
    pub(super) unrelated_limit: u64,
}

impl Checkout {
    pub(super) fn new(commit: Commit, storage: Box<dyn Storage>, index: Option<(Index, TagKey)>, total: u64, unrelated_limit: u64) -> Self {
        Self { commit, storage, index, total, unrelated_limit }
    }

    /// The commit, decoded but not verified.
    pub fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Bytes of all blocks, with their CIDs and lengths.
    pub fn bytes(&self) -> u64 {
        self.total
    }

    /// Checks that the commit is of this account and signed with its key.
    ///
    /// # Errors
    /// [`CheckoutError::Account`] and [`CheckoutError::Signature`].
    pub fn verify(&self, did: &Did, key: &PublicKey) -> Result<(), CheckoutError> {
        let commit = &self.commit;
        if commit.did() != did {
            return Err(CheckoutError::Account { expected: did.clone(), found: commit.did().clone() });
        }
        key.verify(commit.unsigned(), commit.signature()).map_err(|fault| CheckoutError::Signature { link: commit.link(), fault })
    }

    /// Whether the blocks of the file came in the order of a walk, so that none had to be indexed.
    pub fn is_streamable(&self) -> bool {
        self.index.is_none()
    }

    /// Begins a walk over all records in key order. Walks are independent of one another.
    pub fn walk(self: &Arc<Self>) -> Walk {
        Walk::new(self.clone())
    }
}

/// Reads a block with the CID before it, and checks that it is the one asked for. Answers the block; `None` when it is another.
pub(super) fn read_block<'a>(
    storage: &dyn Storage,
    link: &Link,
    extent: Extent,
    into: &'a mut Vec<u8>,
) -> Result<Option<&'a [u8]>, CheckoutError> {
    let (at, len) = (extent.at - Extent::CID, extent.len as usize + Extent::CID as usize);
    into.clear();
    match storage.slice(at, len) {
        Some(slice) => into.extend_from_slice(slice),
        None => {
            into.resize(len, 0);
            storage.read(at, into).map_err(CheckoutError::local("read the spooled repo"))?;
        }
    }
    Ok(into.strip_prefix(&link.to_bytes()))
}
