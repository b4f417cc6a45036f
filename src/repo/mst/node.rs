use std::ops::Range;

use crate::repo::Link;

/// A node of the tree, decoded in place: every part is an offset into the block it was decoded from.
///
/// The canonical encoding leaves no choice of key order, lengths or nulls, so the bytes are matched rather than parsed
/// (atproto.com/specs/repository, "MST Structure").
#[derive(Debug, Default)]
pub(crate) struct Node {
    entries: Vec<Entry>,
    /// Where the link of the left-most subtree lies; 0 for none.
    left: u32,
}

/// One entry of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Bytes shared with the key of the entry before.
    pub(crate) prefix: u32,
    suffix_at: u32,
    suffix_len: u32,
    /// Where the digest of the record's link lies; 0 when the link is of another kind than allowed.
    value: u32,
    /// Where the digest of the subtree's link lies; 0 for none.
    tree: u32,
}

/// The rule of its encoding that a node breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NodeFault {
    /// Not exactly the fields `e` and `l`, each entry exactly `k`, `p`, `t` and `v`, in strict DAG-CBOR.
    #[error("it is not encoded as a node")]
    Encoding,
    /// A link to a subtree that is not a CIDv1 of DAG-CBOR and SHA-256.
    #[error("it links to a subtree by a kind of CID that is not allowed")]
    Link,
    /// More entries than chance could ever make.
    #[error("it has {0} entries")]
    Entries(u64),
    /// A block that is longer than a node may be.
    #[error("it has {0} bytes")]
    Length(usize),
}

/// What a link looks like up to its digest: tag 42, 37 bytes, the zero byte, and the prefix of the only kind of CID allowed.
const LINK_HEAD: [u8; 9] = [0xd8, 0x2a, 0x58, 0x25, 0x00, 0x01, 0x71, 0x12, 0x20];
const NULL: u8 = 0xf6;

impl Node {
    /// The most entries of a node. A run of more than n keys between two keys of a higher layer has the probability (3/4)^n, so 1,000 never happen by chance.
    pub(crate) const MAX_ENTRIES: u64 = 1000;
    /// The longest block of a node, in bytes.
    pub(crate) const MAX_LEN: usize = 1 << 20;

    /// Decodes a block into this node, whatever it held before.
    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<(), NodeFault> {
        self.entries.clear();
        if block.len() > Self::MAX_LEN {
            return Err(NodeFault::Length(block.len()));
        }
        let mut cursor = Cursor { block, at: 0 };
        cursor.literal(b"\xa2\x61e")?;
        let len = cursor.argument(0x80)?;
        if len > Self::MAX_ENTRIES {
            return Err(NodeFault::Entries(len));
        }
        for _ in 0..len {
            self.entries.push(cursor.entry()?);
        }
        cursor.literal(b"\x61l")?;
        self.left = cursor.subtree()?;
        if cursor.at == block.len() { Ok(()) } else { Err(NodeFault::Encoding) }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The link of the left-most subtree.
    pub(crate) fn left(&self, block: &[u8]) -> Option<Link> {
        link_at(block, self.left)
    }
}

impl Entry {
    /// What the key has beyond its prefix.
    pub(crate) fn suffix<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        let start = self.suffix_at as usize;
        block.get(start..start + self.suffix_len as usize).unwrap_or_default()
    }

    /// The link of the record; none when it is of a kind that is not allowed.
    pub(crate) fn value(&self, block: &[u8]) -> Option<Link> {
        link_at(block, self.value)
    }

    /// The link of the subtree behind this entry.
    pub(crate) fn tree(&self, block: &[u8]) -> Option<Link> {
        link_at(block, self.tree)
    }
}

fn link_at(block: &[u8], at: u32) -> Option<Link> {
    let digest = block.get(at as usize..)?.first_chunk()?;
    (at != 0).then(|| Link::from_digest(*digest))
}

struct Cursor<'a> {
    block: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Of a length known to the compiler, so that a few instructions compare it.
    #[inline]
    fn literal<const N: usize>(&mut self, expected: &[u8; N]) -> Result<(), NodeFault> {
        if self.rest().first_chunk() != Some(expected) {
            return Err(NodeFault::Encoding);
        }
        self.at += N;
        Ok(())
    }

    fn rest(&self) -> &[u8] {
        self.block.get(self.at..).unwrap_or_default()
    }

    /// The argument of a head whose major type, in the upper three bits, is `major`.
    fn argument(&mut self, major: u8) -> Result<u64, NodeFault> {
        let (value, len) = match *self.rest() {
            [first, ..] if first & 0xe0 == major && first & 0x1f < 24 => (u64::from(first & 0x1f), 1),
            [first, value, ..] if first == major | 24 && value >= 24 => (u64::from(value), 2),
            [first, high, low, ..] if first == major | 25 && high > 0 => (u64::from(high) << 8 | u64::from(low), 3),
            [first, a, b, c, d, ..] if first == major | 26 && (a, b) != (0, 0) => (u64::from(u32::from_be_bytes([a, b, c, d])), 5),
            _ => return Err(NodeFault::Encoding),
        };
        self.at += len;
        Ok(value)
    }

    fn bytes(&mut self) -> Result<Range<usize>, NodeFault> {
        let len = self.argument(0x40)?;
        let end = self.at + len as usize;
        if end > self.block.len() {
            return Err(NodeFault::Encoding);
        }
        Ok(std::mem::replace(&mut self.at, end)..end)
    }

    fn entry(&mut self) -> Result<Entry, NodeFault> {
        self.literal(b"\xa4\x61k")?;
        let suffix = self.bytes()?;
        self.literal(b"\x61p")?;
        let prefix = self.argument(0)? as u32;
        self.literal(b"\x61t")?;
        let tree = self.subtree()?;
        self.literal(b"\x61v")?;
        let value = self.value()?;
        Ok(Entry { prefix, suffix_at: suffix.start as u32, suffix_len: suffix.len() as u32, value, tree })
    }

    /// A link of the allowed kind or a null.
    fn subtree(&mut self) -> Result<u32, NodeFault> {
        if self.rest().first() == Some(&NULL) {
            self.at += 1;
            return Ok(0);
        }
        match self.value()? {
            0 => Err(NodeFault::Link),
            at => Ok(at),
        }
    }

    /// A link of any kind: where its digest lies, or 0 when it is not of the allowed kind.
    fn value(&mut self) -> Result<u32, NodeFault> {
        if let Some((link, _)) = self.rest().split_first_chunk::<{ LINK_HEAD.len() + 32 }>()
            && link.first_chunk() == Some(&LINK_HEAD)
        {
            let digest = self.at + LINK_HEAD.len();
            self.at = digest + 32;
            return Ok(digest as u32);
        }
        self.literal(&[0xd8, 0x2a])?;
        let cid = self.bytes()?;
        match self.block.get(cid) {
            Some([0, _, ..]) => Ok(0),
            _ => Err(NodeFault::Encoding),
        }
    }
}
