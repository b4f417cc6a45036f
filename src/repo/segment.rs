use super::car::{self, Framing};
use super::index::TagKey;
use super::storage::SEGMENT;
use super::{CheckoutError, Extent, Link, hash};

/// A piece of the file that holds whole sections, being filled.
#[derive(Debug)]
pub(crate) struct Segment {
    bytes: Vec<u8>,
    /// The address of its first byte.
    at: u64,
    /// The offset of its first byte in the file.
    offset: u64,
    /// How many bytes are whole sections.
    whole: usize,
    /// How many bytes it is to hold at most.
    room: usize,
    /// The blocks in it that may belong to the repo.
    blocks: Vec<Block>,
}

/// A block within its segment, with its CID before it.
#[derive(Debug, Clone, Copy)]
struct Block {
    at: u32,
    len: u32,
}

/// A block whose hash was found to be that of its CID.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verified {
    pub(super) tag: u64,
    pub(super) extent: Extent,
}

impl Segment {
    /// An empty segment at an address and an offset, with a buffer to use.
    pub(crate) fn new(at: u64, offset: u64, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { bytes: buffer, at, offset, whole: 0, room: SEGMENT, blocks: Vec::new() }
    }

    /// Takes as many bytes as there is room for; answers how many.
    pub(crate) fn fill(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Whether there is no room left.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() == self.room
    }

    /// Whether it holds no whole section.
    pub(crate) fn is_empty(&self) -> bool {
        self.whole == 0
    }

    /// The offset in the file of the bytes behind the last whole section, and how many there are.
    pub(crate) fn rest(&self) -> (u64, usize) {
        (self.offset + self.whole as u64, self.bytes.len() - self.whole)
    }

    pub(crate) fn address(&self) -> u64 {
        self.at
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Finds the next section that has become whole: its CID, its block and whether it may belong to the repo.
    pub(super) fn next_section(&mut self) -> Result<Option<(&[u8], bool)>, CheckoutError> {
        let start = self.whole;
        match car::section(&self.bytes[start..], self.offset + start as u64)? {
            Framing::Whole(section) => {
                self.whole += section.end;
                if section.related {
                    self.blocks.push(Block { at: (start + section.block) as u32, len: (section.end - section.block) as u32 });
                }
                Ok(Some((&self.bytes[start..self.whole], section.related)))
            }
            Framing::Unfinished(Some(size)) if start == 0 => {
                self.room = self.room.max(size);
                Ok(None)
            }
            Framing::Unfinished(_) => Ok(None),
        }
    }

    /// Cuts off what lies behind the last whole section and begins the next segment with it.
    pub(crate) fn split(&mut self, buffer: Vec<u8>) -> Self {
        let segments = self.whole.div_ceil(SEGMENT).max(1) as u64;
        let mut next = Self::new(self.at + segments * SEGMENT as u64, self.offset + self.whole as u64, buffer);
        if self.is_full() {
            // A repo that fills one segment is likely to fill another; the first grows as it must, for most repos are small.
            next.bytes.reserve_exact(SEGMENT);
        }
        next.bytes.extend_from_slice(&self.bytes[self.whole..]);
        self.bytes.truncate(self.whole);
        next
    }

    /// Hashes every block.
    ///
    /// # Errors
    /// On the first block that does not have the hash of its CID.
    pub(super) fn verify(&self, key: &TagKey) -> Result<Vec<Verified>, CheckoutError> {
        let nowhere = Verified { tag: 0, extent: Extent { at: 0, len: 0 } };
        let mut verified = vec![nowhere; self.blocks.len()];
        let mut broken = None;
        hash::digests(self.blocks.iter().map(|block| self.block(block)), |position, digest| {
            let (block, link) = (self.blocks[position], Link::from_digest(*digest));
            if self.bytes[..block.at as usize].ends_with(digest) {
                let extent = Extent { at: self.at + u64::from(block.at), len: block.len };
                verified[position] = Verified { tag: key.tag(&link), extent };
            } else {
                broken = Some(broken.map_or(position, |first: usize| first.min(position)));
            }
        });
        match broken {
            Some(position) => Err(self.hash_error(self.blocks[position])),
            None => Ok(verified),
        }
    }

    fn block(&self, block: &Block) -> &[u8] {
        &self.bytes[block.at as usize..(block.at + block.len) as usize]
    }

    fn hash_error(&self, block: Block) -> CheckoutError {
        let digest = self.bytes[..block.at as usize].last_chunk().copied().unwrap_or_default();
        CheckoutError::Hash { offset: self.offset + u64::from(block.at) - Extent::CID, link: Link::from_digest(digest) }
    }
}
