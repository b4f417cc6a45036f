use std::sync::Arc;

use super::Leaves;
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
    tags: Vec<u64>,
}

impl Blocks {
    pub(super) fn new(checkout: Arc<Checkout>) -> Self {
        let used = vec![0; checkout.index.slots().div_ceil(64)];
        Self { checkout, used, used_bytes: 0, tags: Vec::new() }
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

    /// Finds out where the records of a batch lie. All look-ups at once: the processor waits for many of them at the same time.
    pub(super) fn locate(&mut self, leaves: &mut Leaves) -> Result<(), CheckoutError> {
        let checkout = self.checkout.clone();
        self.tags.clear();
        self.tags.extend(leaves.links().map(|link| checkout.key.tag(link)));
        checkout.index.warm(self.tags.iter().copied());
        for position in 0..leaves.len() {
            let found = self.tags.get(position).and_then(|tag| checkout.index.find(*tag));
            let Some((slot, extent)) = found else { return Err(leaves.missing(position)) };
            self.mark(slot, extent);
            leaves.set_extent(position, extent);
        }
        leaves.drop_long();
        Ok(())
    }

    fn find(&mut self, link: &Link) -> Option<Extent> {
        let (slot, extent) = self.checkout.index.find(self.checkout.key.tag(link))?;
        self.mark(slot, extent);
        Some(extent)
    }

    fn mark(&mut self, slot: usize, extent: Extent) {
        if let Some(word) = self.used.get_mut(slot / 64)
            && *word & (1 << (slot % 64)) == 0
        {
            *word |= 1 << (slot % 64);
            self.used_bytes += u64::from(extent.len) + Extent::CID;
        }
    }

    /// The whole tree was seen: checks how much of the file does not belong to it.
    pub(super) fn check_unrelated(&self) -> Result<(), CheckoutError> {
        let bytes = self.checkout.total.saturating_sub(self.used_bytes);
        // What a host has failed to clean up grows with the repo.
        let limit = self.checkout.unrelated_limit.saturating_add(self.used_bytes);
        if bytes > limit { Err(CheckoutError::Unrelated { bytes, limit }) } else { Ok(()) }
    }
}
