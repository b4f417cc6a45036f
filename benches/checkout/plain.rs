//! A plain walk, written by hand without any art, that checks the same: every hash, order, layers, completeness. The measure of what art is worth.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

type Blocks<'a> = HashMap<&'a [u8], &'a [u8]>;

/// Hashes every block of a CAR file that was checked before to be one.
pub(crate) fn hash(car: &[u8]) -> Blocks<'_> {
    let mut blocks = HashMap::new();
    let mut rest = skip(car);
    while !rest.is_empty() {
        let (section, after) = section(rest);
        let (cid, block) = section.split_at(36);
        assert_eq!(Sha256::digest(block)[..], cid[4..]);
        blocks.insert(&cid[4..], block);
        rest = after;
    }
    blocks
}

/// Only hashes: the floor under every reader that checks its blocks.
pub(crate) fn floor(car: &[u8]) {
    let mut rest = skip(car);
    while !rest.is_empty() {
        let (section, after) = section(rest);
        assert_eq!(Sha256::digest(&section[36..])[..], section[4..36]);
        rest = after;
    }
}

/// Walks a tree; answers how many records it has.
pub(crate) fn walk(blocks: &Blocks<'_>, root: &[u8]) -> usize {
    let (mut last, mut count) = (Vec::new(), 0);
    node(blocks, root, None, &mut last, &mut count);
    count
}

fn node(blocks: &Blocks<'_>, link: &[u8], layer: Option<u32>, last: &mut Vec<u8>, count: &mut usize) {
    let mut at = Cursor(blocks[link]);
    at.literal(b"\xa2\x61e");
    let (mut key, entries, mut layer) = (Vec::new(), at.head(), layer);
    // The left subtree comes last in the encoding and first in the tree, so the entries are kept.
    let entries: Vec<_> = (0..entries).map(|_| at.entry()).collect();
    at.literal(b"\x61l");
    let left = at.link();
    if let Some((_, suffix, ..)) = entries.first() {
        layer = layer.or(Some(height(suffix)));
    }
    let below = layer.unwrap_or(0).checked_sub(1);
    if let Some(left) = left {
        node(blocks, left, Some(below.expect("layer")), last, count);
    }
    for (prefix, suffix, value, tree) in entries {
        key.truncate(prefix);
        key.extend_from_slice(suffix);
        assert!(key.as_slice() > last.as_slice(), "order");
        assert_eq!(Some(height(&key)), layer, "layer");
        assert!(blocks.contains_key(value), "completeness");
        last.clone_from(&key);
        *count += 1;
        if let Some(tree) = tree {
            node(blocks, tree, Some(below.expect("layer")), last, count);
        }
    }
}

fn height(key: &[u8]) -> u32 {
    let hash = Sha256::digest(key);
    u64::from_be_bytes(hash[..8].try_into().expect("8 bytes")).leading_zeros() / 2
}

fn section(rest: &[u8]) -> (&[u8], &[u8]) {
    let (mut len, mut size) = (0, 0);
    loop {
        len |= usize::from(rest[size] & 0x7f) << (7 * size);
        size += 1;
        if rest[size - 1] < 0x80 {
            return rest[size..].split_at(len);
        }
    }
}

fn skip(car: &[u8]) -> &[u8] {
    section(car).1
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn literal(&mut self, bytes: &[u8]) {
        self.0 = self.0.strip_prefix(bytes).expect("a node");
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn head(&mut self) -> usize {
        match self.take(1)[0] & 0x1f {
            24 => usize::from(self.take(1)[0]),
            25 => usize::from(u16::from_be_bytes(self.take(2).try_into().expect("2 bytes"))),
            small => usize::from(small),
        }
    }

    fn link(&mut self) -> Option<&'a [u8]> {
        if self.0[0] == 0xf6 {
            self.take(1);
            return None;
        }
        Some(&self.take(41)[9..])
    }

    fn entry(&mut self) -> (usize, &'a [u8], &'a [u8], Option<&'a [u8]>) {
        self.literal(b"\xa4\x61k");
        let len = self.head();
        let suffix = self.take(len);
        self.literal(b"\x61p");
        let prefix = self.head();
        self.literal(b"\x61t");
        let tree = self.link();
        self.literal(b"\x61v");
        (prefix, suffix, self.link().expect("a link"), tree)
    }
}
