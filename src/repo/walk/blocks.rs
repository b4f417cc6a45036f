use std::sync::Arc;

use crate::repo::checkout::read_block;
use crate::repo::{Checkout, CheckoutError, Extent, Link};

/// Finds the blocks of a checkout for a walk, and remembers which were used.
#[derive(Debug)]
pub(super) struct Blocks {
    checkout: Arc<Checkout>,
    /// One bit for each slot of the index.
    used: Vec<u64>,
    /// Bytes of the blocks used, CIDs included.
    used_bytes: u64,
}

impl Blocks {
    pub(super) fn new(checkout: Arc<Checkout>) -> Self {
        let used = vec![0; checkout.index.slots().div_ceil(64)];
        Self { checkout, used, used_bytes: 0 }
    }

    pub(super) fn checkout(&self) -> &Arc<Checkout> {
        &self.checkout
    }

    /// Reads a node with its CID before it.
    pub(super) fn node(&mut self, link: &Link, into: &mut Vec<u8>) -> Result<(), CheckoutError> {
        let missing = CheckoutError::MissingNode { link: *link };
        let Some(extent) = self.find(link) else { return Err(missing) };
        read_block(self.checkout.storage.as_ref(), link, extent, into)?.map(drop).ok_or(missing)
    }

    /// Where a record lies.
    pub(super) fn record(&mut self, key: &[u8], link: &Link) -> Result<Option<Extent>, CheckoutError> {
        let missing = || CheckoutError::MissingRecord { path: String::from_utf8_lossy(key).into_owned(), link: *link };
        self.find(link).map(Some).ok_or_else(missing)
    }

    fn find(&mut self, link: &Link) -> Option<Extent> {
        let (slot, extent) = self.checkout.index.find(self.checkout.key.tag(link))?;
        let (word, bit) = (self.used.get_mut(slot / 64)?, 1 << (slot % 64));
        if *word & bit == 0 {
            *word |= bit;
            self.used_bytes += u64::from(extent.len) + Extent::CID;
        }
        Some(extent)
    }

    /// The whole tree was seen: checks how much of the file does not belong to it.
    pub(super) fn check_unrelated(&self) -> Result<(), CheckoutError> {
        let bytes = self.checkout.total.saturating_sub(self.used_bytes);
        // What a host has failed to clean up grows with the repo.
        let limit = self.checkout.unrelated_limit.saturating_add(self.used_bytes);
        if bytes > limit { Err(CheckoutError::Unrelated { bytes, limit }) } else { Ok(()) }
    }
}
