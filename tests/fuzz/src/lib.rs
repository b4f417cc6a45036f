//! What the targets share: CAR files and repos made of bytes that a fuzzer chose, with hashes that are right, so that it gets past them.

pub mod plain;
pub mod walked;

use std::collections::HashMap;
use std::ops::Range;

use atproto_backfill::repo::Link;

/// How a CID of the repository format begins: version 1, DAG-CBOR, SHA-256 of 32 bytes.
pub const CID: [u8; 4] = [0x01, 0x71, 0x12, 0x20];
/// In a block, a CID whose digest is so many of these bytes, and then the number of a block before it, stands for that block.
const REFERENCE: [u8; 31] = [0xee; 31];

/// A block and its link.
pub type Block = (Link, Vec<u8>);

/// Splits an input into blocks, each behind its length in two bytes, and puts the CIDs of blocks in the place of references to them.
pub fn blocks(mut input: &[u8]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    while let Some((head, rest)) = input.split_at_checked(2) {
        let length = usize::from(u16::from_be_bytes([head[0], head[1]])).min(rest.len());
        let (block, rest) = rest.split_at(length);
        input = rest;
        let mut block = block.to_vec();
        each_digest(&mut block, |digest| {
            if digest.starts_with(&REFERENCE)
                && let Some((link, _)) = blocks.get(usize::from(digest[31]))
            {
                *digest = *link.digest();
            }
        });
        blocks.push((Link::of(&block), block));
    }
    blocks
}

/// The reverse: an input of which [`blocks`] makes these, in an order in which a block comes behind those it links to.
pub fn input(blocks: &[Block]) -> Vec<u8> {
    let numbers: HashMap<&[u8], u8> =
        blocks.iter().enumerate().filter_map(|(n, (link, _))| Some((&link.digest()[..], u8::try_from(n).ok()?))).collect();
    let mut input = Vec::new();
    for (_, block) in blocks {
        let mut block = block.clone();
        each_digest(&mut block, |digest| {
            if let Some(&number) = numbers.get(&digest[..]) {
                digest[..31].copy_from_slice(&REFERENCE);
                digest[31] = number;
            }
        });
        input.extend_from_slice(&u16::try_from(block.len()).expect("a block of less than 64 KiB").to_be_bytes());
        input.extend_from_slice(&block);
    }
    input
}

/// Shows the digest of whatever looks like a CID.
fn each_digest(bytes: &mut [u8], mut digest: impl FnMut(&mut [u8; 32])) {
    for at in 0..bytes.len().saturating_sub(35) {
        if bytes[at..].starts_with(&CID) {
            digest((&mut bytes[at + 4..at + 36]).try_into().expect("32 bytes"));
        }
    }
}

/// A CAR of a commit for this tree, and of blocks.
pub fn car<'b>(root: Link, blocks: impl IntoIterator<Item = &'b Block>) -> Vec<u8> {
    let commit = commit(root);
    let link = Link::of(&commit);
    // {"roots": [link], "version": 1}
    let mut header = b"\xa2\x65roots\x81\xd8\x2a\x58\x25\x00".to_vec();
    header.extend_from_slice(&link.to_bytes());
    header.extend_from_slice(b"\x67version\x01");
    let mut car = Vec::new();
    section(&mut car, &[&header]);
    section(&mut car, &[&link.to_bytes(), &commit]);
    for (link, block) in blocks {
        section(&mut car, &[&link.to_bytes(), block]);
    }
    car
}

/// A commit for a tree, with a signature that is none.
fn commit(root: Link) -> Vec<u8> {
    let mut commit = b"\xa6\x63did\x78\x20did:plc:aaaaaaaaaaaaaaaaaaaaaaaa\x63rev\x6d3aaaaaaaaaa22\x63sig\x58\x40".to_vec();
    commit.extend_from_slice(&[1; 64]);
    commit.extend_from_slice(b"\x64data\xd8\x2a\x58\x25\x00");
    commit.extend_from_slice(&root.to_bytes());
    commit.extend_from_slice(b"\x64prev\xf6\x67version\x03");
    commit
}

fn section(car: &mut Vec<u8>, parts: &[&[u8]]) {
    let mut length = parts.iter().map(|part| part.len()).sum::<usize>();
    while length >= 0x80 {
        car.push(length as u8 | 0x80);
        length >>= 7;
    }
    car.push(length as u8);
    parts.iter().for_each(|part| car.extend_from_slice(part));
}

/// Where the sections of a CAR lie, the header first, by a reader that knows nothing but the framing; those before the first that is not whole.
pub fn sections(car: &[u8]) -> Vec<Range<usize>> {
    let (mut sections, mut at) = (Vec::new(), 0);
    while let Some((length, size)) = varint(&car[at..]) {
        let start = at + size;
        let Some(end) = start.checked_add(length).filter(|end| *end <= car.len()) else { break };
        sections.push(start..end);
        at = end;
    }
    sections
}

fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let size = 1 + bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let value = bytes[..size].iter().rev().fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f));
    Some((value, size))
}

/// Gives each block of a CAR the hash that it has, and puts that into all that comes before it and links to it: of a file whose blocks come behind
/// those that link to them, as exports have them, every hash is right then. Answers the digests that became others.
pub fn repair(car: &mut [u8]) -> HashMap<[u8; 32], [u8; 32]> {
    let mut changed = HashMap::new();
    for section in sections(car).into_iter().rev() {
        let section = &mut car[section];
        match section.split_first_chunk_mut::<36>() {
            Some((cid, block)) if cid.starts_with(&CID) => {
                rename(block, &changed);
                let (old, new): ([u8; 32], _) = (cid[4..].try_into().expect("32 bytes"), *Link::of(block).digest());
                cid[4..].copy_from_slice(&new);
                if old != new {
                    changed.insert(old, new);
                }
            }
            _ => rename(section, &changed),
        }
    }
    changed
}

/// Puts other digests in the place of some.
pub fn rename(bytes: &mut [u8], names: &HashMap<[u8; 32], [u8; 32]>) {
    if !names.is_empty() {
        each_digest(bytes, |digest| *digest = names.get(digest).copied().unwrap_or(*digest));
    }
}
