use super::car::Framing;
use super::checkout::read_block;
use super::cursor::Cursor;
use super::index::{Index, TagKey};
use super::preorder::Preorder;
use super::segment::{Segment, Verified};
use super::storage::Storage;
use super::{Checkout, CheckoutError, Commit, Link, car};

/// What is accepted of one CAR file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Blocks in the file.
    pub(crate) blocks: u64,
    /// Bytes of sections that do not belong to the repo.
    pub(crate) unrelated: u64,
}

/// Reads a CAR file as it is laid down in segments: header, framing, hashes, index.
#[derive(Debug)]
pub(crate) struct Intake {
    limits: Limits,
    root: Option<Link>,
    /// While the blocks come in the order of a walk; the index is empty then.
    order: Option<Preorder>,
    key: TagKey,
    index: Index,
    /// Sections seen, of whatever kind.
    sections: u64,
    /// Bytes of sections whose CID is of no kind that the repo could use.
    foreign: u64,
    /// Bytes of all sections.
    total: u64,
}

impl Intake {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, root: None, order: None, key: TagKey::random(), index: Index::new(), sections: 0, foreign: 0, total: 0 }
    }

    /// Reads the header at the start of the file; answers how many bytes it takes, none when it goes on beyond `bytes`.
    pub(crate) fn header(&mut self, bytes: &[u8]) -> Result<Option<usize>, CheckoutError> {
        let Some((root, len)) = car::header(bytes)? else { return Ok(None) };
        self.root = Some(root);
        self.order = Some(Preorder::new(root));
        Ok(Some(len))
    }

    /// Reads the framing of the sections that have become whole. `shelf` holds the segments before this one.
    pub(crate) fn scan(&mut self, segment: &mut Segment, shelf: &dyn Storage) -> Result<(), CheckoutError> {
        while let Some((section, related)) = segment.next_section()? {
            if !self.order.as_mut().is_none_or(|order| follows(order, section, related)) {
                self.order = None;
                self.catch_up(shelf)?;
            }
            self.sections += 1;
            self.total += section.len() as u64;
            if self.sections > self.limits.blocks {
                return Err(CheckoutError::TooManyBlocks { limit: self.limits.blocks });
            }
            if !related {
                self.foreign += section.len() as u64;
                if self.foreign > self.limits.unrelated {
                    return Err(CheckoutError::Unrelated { bytes: self.foreign, limit: self.limits.unrelated });
                }
            }
        }
        Ok(())
    }

    /// What hashes the blocks of segments, on whatever thread. [`Intake::absorb`] takes what it answers, segment by segment in their order.
    pub(crate) fn verifier(&self) -> Verifier {
        Verifier { key: self.key }
    }

    /// Puts verified blocks into the index, unless they came in order.
    pub(crate) fn absorb(&mut self, verified: &[Verified]) {
        if self.order.is_some() {
            return;
        }
        self.index.warm(verified.iter().map(|block| block.tag));
        for block in verified {
            self.index.insert(block.tag, block.extent);
        }
    }

    /// The blocks no longer come in order: puts those of the earlier segments, all verified, into the index.
    fn catch_up(&mut self, shelf: &dyn Storage) -> Result<(), CheckoutError> {
        let mut cursor = Cursor::default();
        while let Some((link, extent)) = cursor.next(shelf)? {
            self.index.insert(self.key.tag(&link), extent);
        }
        Ok(())
    }

    /// The file is whole: decodes the commit.
    ///
    /// # Errors
    /// When it is not there or not valid.
    pub(crate) fn finish(mut self, storage: Box<dyn Storage>) -> Result<Checkout, CheckoutError> {
        let link = self.root.ok_or(CheckoutError::Empty)?;
        if let Some(order) = self.order.take() {
            match order.finish() {
                Some(commit) => return Ok(Checkout::new(commit, storage, None, self.total, self.limits.unrelated)),
                // It ends before the walk does. The index will show what is missing.
                None => self.catch_up(storage.as_ref())?,
            }
        }
        let (_, extent) = self.index.find(self.key.tag(&link)).ok_or(CheckoutError::MissingCommit { link })?;
        let mut buffer = Vec::new();
        let block = read_block(storage.as_ref(), &link, extent, &mut buffer)?.ok_or(CheckoutError::MissingCommit { link })?;
        let commit = Commit::decode(block).map_err(|fault| CheckoutError::Commit { link, fault })?;
        Ok(Checkout::new(commit, storage, Some((self.index, self.key)), self.total, self.limits.unrelated))
    }
}

/// Hashes the blocks of segments: most of the work of reading a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verifier {
    key: TagKey,
}

impl Verifier {
    /// Hashes every block of a segment.
    ///
    /// # Errors
    /// On the first block that does not have the hash of its CID.
    pub(crate) fn verify(&self, segment: &Segment) -> Result<Vec<Verified>, CheckoutError> {
        segment.verify(&self.key)
    }
}

/// Whether a section of the file is the one that a walk would ask for next.
fn follows(order: &mut Preorder, section: &[u8], related: bool) -> bool {
    let Ok(Framing::Whole(framing)) = car::section(section, 0) else { return false };
    let (before, block) = section.split_at(framing.block);
    related && before.last_chunk().is_some_and(|digest| order.follow(&Link::from_digest(*digest), block))
}
