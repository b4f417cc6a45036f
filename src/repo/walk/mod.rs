//! The verified walk: all records of a repo in key order, every rule of the tree checked on the way.

mod blocks;
mod check;
mod frame;
mod leaves;
mod records;

use std::sync::Arc;

use blocks::Blocks;
use frame::{Frame, Turn};
pub use leaves::{DroppedLeaf, Leaf, LeafFault, Leaves};
pub use records::Records;

use super::{Checkout, CheckoutError, Link, TreeFault};

/// A walk over a [`Checkout`]. Blocking: it hashes keys and may read a file.
///
/// ```text
/// while walk.next(&mut leaves, 1000)? {      // paths and CIDs, proven by the tree; every record is known to be there
///     walk.read(&leaves, &wanted, &mut records)?;  // the bytes of those wanted, proven by their hash
/// }
/// ```
///
/// The repo is complete only once [`Walk::next`] has answered `false`.
#[derive(Debug)]
pub struct Walk {
    blocks: Blocks,
    root: Link,
    /// One for each layer from the root down; those from `depth` on are kept for their buffers.
    frames: Vec<Frame>,
    depth: usize,
    /// The key before.
    last: Vec<u8>,
    state: State,
    counts: WalkCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fresh,
    Walking,
    Over,
    Failed,
}

/// What a walk has seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WalkCounts {
    /// Records handed out.
    pub records: u64,
    /// Nodes of the tree.
    pub nodes: u64,
    /// Records dropped, each alone.
    pub dropped: u64,
}

/// The layer of the highest root accepted. A key of layer 32 needs a hash that begins with 64 zero bits.
const MAX_LAYER: u8 = 32;

/// The longest key that is still read, in bytes: what hosts accept into a tree. A path may be 830.
const MAX_KEY: usize = 1024;

impl Walk {
    pub(super) fn new(checkout: Arc<Checkout>) -> Self {
        let root = checkout.commit().data();
        Self {
            blocks: Blocks::new(checkout),
            root,
            frames: Vec::new(),
            depth: 0,
            last: Vec::new(),
            state: State::Fresh,
            counts: WalkCounts::default(),
        }
    }

    /// The repo that is walked.
    pub fn checkout(&self) -> &Arc<Checkout> {
        self.blocks.checkout()
    }

    /// What has been seen so far.
    pub fn counts(&self) -> WalkCounts {
        self.counts
    }

    /// Replaces `leaves` with the next at most `max` records in key order. `false` once the whole tree has been seen; then there are none.
    ///
    /// Records that cannot be used (see [`LeafFault`]) are left out and listed in [`Leaves::dropped`]; so a batch may be empty before the end.
    ///
    /// # Errors
    /// On the first rule that the tree breaks, and when a node or a record is not there. Nothing of the batch counts then, and the walk is over.
    pub fn next(&mut self, leaves: &mut Leaves, max: usize) -> Result<bool, CheckoutError> {
        leaves.clear();
        let outcome = match self.state {
            State::Fresh => self.enter_root().and_then(|()| self.batch(leaves, max.max(1))),
            State::Walking => self.batch(leaves, max.max(1)),
            State::Over => Ok(()),
            State::Failed => Err(CheckoutError::WalkFailed),
        };
        if let Err(error) = outcome {
            leaves.clear();
            self.state = State::Failed;
            return Err(error);
        }
        self.counts.records += leaves.len() as u64;
        self.counts.dropped += leaves.dropped().len() as u64;
        Ok(self.state == State::Walking || !leaves.is_empty() || !leaves.dropped().is_empty())
    }

    /// Loads the bytes of some of `leaves`, which must be those of the last batch; `wanted` are positions among them.
    /// [`Records::get`] then counts as `wanted` does.
    ///
    /// # Errors
    /// When the local disk fails, or a block is not the one asked for.
    pub fn read(&mut self, leaves: &Leaves, wanted: &[u32], records: &mut Records) -> Result<(), CheckoutError> {
        records.load(self.checkout().storage.as_ref(), leaves, wanted)
    }

    fn batch(&mut self, leaves: &mut Leaves, max: usize) -> Result<(), CheckoutError> {
        while leaves.seen() < max && self.state == State::Walking {
            self.step(leaves)?;
        }
        check::layers(leaves, &self.root)?;
        self.blocks.locate(leaves)?;
        if self.state == State::Over { self.blocks.check_unrelated() } else { Ok(()) }
    }

    fn enter_root(&mut self) -> Result<(), CheckoutError> {
        self.blocks.begin()?;
        self.enter(self.root, None)?;
        self.state = State::Walking;
        Ok(())
    }

    /// Goes down into a node of a layer; the root's follows from its first key.
    fn enter(&mut self, link: Link, layer: Option<u8>) -> Result<(), CheckoutError> {
        if self.depth == self.frames.len() {
            self.frames.push(Frame::default());
        }
        let Some(frame) = self.frames.get_mut(self.depth) else { return Ok(()) };
        self.blocks.node(&link, &mut frame.bytes)?;
        frame.enter(link, layer)?;
        self.depth += 1;
        self.counts.nodes += 1;
        Ok(())
    }

    /// Goes one step further: down into a subtree, over one entry, or up.
    fn step(&mut self, leaves: &mut Leaves) -> Result<(), CheckoutError> {
        let Some(frame) = self.depth.checked_sub(1).and_then(|top| self.frames.get_mut(top)) else {
            self.state = State::Over;
            return Ok(());
        };
        match frame.turn() {
            Turn::Subtree(link) => {
                let layer = frame.layer.checked_sub(1).ok_or_else(|| frame.broken(TreeFault::BelowZero))?;
                self.enter(link, Some(layer))
            }
            Turn::Entry(entry) => {
                frame.read_key(&entry, &mut self.last)?;
                let value = entry.value(frame.block());
                let extent = match &value {
                    Some(link) => self.blocks.record(&self.last, link)?,
                    None => None,
                };
                leaves.push(&self.last, value, frame.layer, extent)
            }
            Turn::Done => {
                self.depth -= 1;
                Ok(())
            }
        }
    }
}
