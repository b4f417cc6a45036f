use bytes::Bytes;

use crate::repo::car::{self, Framing};
use crate::repo::{CheckoutError, Link, hash};

/// The blocks that an event brings: a part of a repo. Every block has the hash of its CID.
///
/// Blocks of other kinds than a repo has are passed over, and not hashed.
#[derive(Debug)]
pub(super) struct Slice {
    root: Link,
    bytes: Bytes,
    /// The blocks in the order of their tags.
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    link: Link,
    /// The beginning of the link, which tells most of them apart.
    tag: u64,
    start: u32,
    end: u32,
}

impl Slice {
    /// Reads a CAR, which may have at most 4 GiB, and hashes its blocks.
    ///
    /// # Errors
    /// When the CAR is not whole or not valid, or a block does not have the hash of its CID.
    pub(super) fn read(bytes: Bytes) -> Result<Self, CheckoutError> {
        let (root, mut at) = car::header(&bytes)?.ok_or(CheckoutError::Cut { offset: 0 })?;
        let mut blocks = Vec::with_capacity(16);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let offset = at as u64;
            let Framing::Whole(section) = car::section(rest, offset)? else { return Err(CheckoutError::Cut { offset }) };
            if let Some(digest) = rest.get(..section.block).and_then(<[u8]>::last_chunk).filter(|_| section.related) {
                let link = Link::from_digest(*digest);
                blocks.push(Block { link, tag: tag(&link), start: (at + section.block) as u32, end: (at + section.end) as u32 });
            }
            at += section.end;
        }
        check(&bytes, &blocks)?;
        blocks.sort_unstable_by_key(|block| block.tag);
        Ok(Self { root, bytes, blocks })
    }

    /// The first root that the header names.
    pub(super) fn root(&self) -> Link {
        self.root
    }

    /// The block of a link.
    pub(super) fn get(&self, link: &Link) -> Option<&[u8]> {
        self.find(link).and_then(|block| self.bytes.get(block.start as usize..block.end as usize))
    }

    /// The block of a link, sharing the bytes of the event.
    pub(super) fn share(&self, link: &Link) -> Option<Bytes> {
        self.find(link).map(|block| self.bytes.slice(block.start as usize..block.end as usize))
    }

    fn find(&self, link: &Link) -> Option<&Block> {
        let tag = tag(link);
        let first = self.blocks.partition_point(|block| block.tag < tag);
        self.blocks.get(first..)?.iter().take_while(|block| block.tag == tag).find(|block| block.link == *link)
    }
}

fn tag(link: &Link) -> u64 {
    link.digest().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

fn check(bytes: &[u8], blocks: &[Block]) -> Result<(), CheckoutError> {
    let mut broken = None;
    let contents = blocks.iter().map(|block| bytes.get(block.start as usize..block.end as usize).unwrap_or_default());
    hash::digests(contents, |position, digest| {
        if blocks.get(position).is_none_or(|block| block.link.digest() != digest) {
            broken = Some(position);
        }
    });
    match broken.and_then(|position| blocks.get(position)) {
        Some(block) => Err(CheckoutError::Hash { offset: u64::from(block.start).saturating_sub(36), link: block.link }),
        None => Ok(()),
    }
}
