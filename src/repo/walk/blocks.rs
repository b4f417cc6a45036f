use std::sync::Arc;

use super::Leaves;
use crate::repo::checkout::read_block;
use crate::repo::cursor::Cursor;
use crate::repo::{Checkout, CheckoutError, Extent, Link};

/// Finds the blocks of a checkout for a walk, and remembers which were used.
#[derive(Debug)]
pub(super) struct Blocks {
    checkout: Arc<Checkout>,
    /// Where the walk stands in a file that lies in its order.
    cursor: Cursor,
    /// Else one bit for each slot of the index.
    used: Vec<u64>,
    /// Bytes of the blocks used, CIDs included.
    used_bytes: u64,
    tags: Vec<u64>,
}

impl Blocks {
    pub(super) fn new(checkout: Arc<Checkout>) -> Self {
        let slots = checkout.index.as_ref().map_or(0, |(index, _)| index.slots());
        Self { checkout, cursor: Cursor::default(), used: vec![0; slots.div_ceil(64)], used_bytes: 0, tags: Vec::new() }
    }

    pub(super) fn checkout(&self) -> &Arc<Checkout> {
        &self.checkout
    }

    /// Gets ready for the root: in a file in order, the commit lies before it.
    pub(super) fn begin(&mut self) -> Result<(), CheckoutError> {
        let commit = self.checkout.commit().link();
        if self.checkout.is_streamable() && self.pass(&commit)?.is_none() {
            return Err(CheckoutError::MissingCommit { link: commit });
        }
        Ok(())
    }

    /// Reads a node with its CID before it.
    pub(super) fn node(&mut self, link: &Link, into: &mut Vec<u8>) -> Result<(), CheckoutError> {
        let missing = CheckoutError::MissingNode { link: *link };
        let extent = match &self.checkout.index {
            None => self.pass(link)?,
            Some((index, key)) => index.find(key.tag(link)).map(|(slot, extent)| {
                mark(&mut self.used, &mut self.used_bytes, slot, extent);
                extent
            }),
        };
        let Some(extent) = extent else { return Err(missing) };
        read_block(self.checkout.storage.as_ref(), link, extent, into)?.map(drop).ok_or(missing)
    }

    /// Where the record lies that the walk has come to, if that is known already; else [`Blocks::locate`] finds it.
    pub(super) fn record(&mut self, key: &[u8], link: &Link) -> Result<Option<Extent>, CheckoutError> {
        if !self.checkout.is_streamable() {
            return Ok(None);
        }
        let missing = || CheckoutError::MissingRecord { path: String::from_utf8_lossy(key).into_owned(), link: *link };
        self.pass(link)?.map(Some).ok_or_else(missing)
    }

    /// Finds out where the records of a batch lie. All look-ups at once: the processor waits for many of them at the same time.
    pub(super) fn locate(&mut self, leaves: &mut Leaves) -> Result<(), CheckoutError> {
        if let Some((index, key)) = &self.checkout.index {
            self.tags.clear();
            self.tags.extend(leaves.links().map(|link| key.tag(link)));
            index.warm(self.tags.iter().copied());
            for (position, tag) in self.tags.iter().enumerate() {
                let Some((slot, extent)) = index.find(*tag) else { return Err(leaves.missing(position)) };
                mark(&mut self.used, &mut self.used_bytes, slot, extent);
                leaves.set_extent(position, extent);
            }
        }
        leaves.drop_long();
        Ok(())
    }

    /// The whole tree was seen: checks how much of the file does not belong to it.
    pub(super) fn check_unrelated(&self) -> Result<(), CheckoutError> {
        if self.checkout.is_streamable() {
            return Ok(());
        }
        let bytes = self.checkout.total.saturating_sub(self.used_bytes);
        // What a host has failed to clean up grows with the repo.
        let limit = self.checkout.unrelated_limit.saturating_add(self.used_bytes);
        if bytes > limit { Err(CheckoutError::Unrelated { bytes, limit }) } else { Ok(()) }
    }

    /// Passes over the next block of a file in order, if it is the one with this CID.
    fn pass(&mut self, link: &Link) -> Result<Option<Extent>, CheckoutError> {
        let next = self.cursor.next(self.checkout.storage.as_ref())?;
        Ok(next.filter(|(found, _)| found == link).map(|(_, extent)| extent))
    }
}

fn mark(used: &mut [u64], used_bytes: &mut u64, slot: usize, extent: Extent) {
    if let Some(word) = used.get_mut(slot / 64)
        && *word & (1 << (slot % 64)) == 0
    {
        *word |= 1 << (slot % 64);
        *used_bytes += u64::from(extent.len) + Extent::CID;
    }
}
