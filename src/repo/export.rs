//! Writing what a host would serve: signed commits and CAR files.

use super::emit::{self, Major};
use super::{Link, SigningKey};
use crate::syntax::{Did, Rev};

/// A signed commit of format version 3 without predecessor: its link and its block (atproto.com/specs/repository, "Commit Objects").
pub fn signed_commit(did: &Did, rev: Rev, data: Link, key: &SigningKey) -> (Link, Vec<u8>) {
    let signature = key.sign(&commit_block(did, rev, data, None));
    let block = commit_block(did, rev, data, Some(&signature));
    (Link::of(&block), block)
}

/// The map of a commit, its keys in canonical order. Without a signature it is what gets signed.
fn commit_block(did: &Did, rev: Rev, data: Link, signature: Option<&[u8; 64]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    emit::head(&mut out, Major::Map, 5 + u64::from(signature.is_some()));
    emit::text(&mut out, "did");
    emit::text(&mut out, did.as_str());
    emit::text(&mut out, "rev");
    emit::text(&mut out, rev.as_str());
    if let Some(signature) = signature {
        emit::text(&mut out, "sig");
        emit::bytes(&mut out, signature);
    }
    emit::text(&mut out, "data");
    emit::link(&mut out, &data);
    emit::text(&mut out, "prev");
    emit::optional_link(&mut out, None);
    emit::text(&mut out, "version");
    emit::head(&mut out, Major::Unsigned, 3);
    out
}

/// Appends the header of a CAR version 1 with one root.
pub fn car_header(out: &mut Vec<u8>, root: &Link) {
    let mut header = Vec::with_capacity(58);
    emit::head(&mut header, Major::Map, 2);
    emit::text(&mut header, "roots");
    emit::head(&mut header, Major::Array, 1);
    emit::link(&mut header, root);
    emit::text(&mut header, "version");
    emit::head(&mut header, Major::Unsigned, 1);
    varint(out, header.len());
    out.extend_from_slice(&header);
}

/// Appends a block to a CAR.
pub fn car_block(out: &mut Vec<u8>, link: &Link, block: &[u8]) {
    let cid = link.to_bytes();
    varint(out, cid.len() + block.len());
    out.extend_from_slice(&cid);
    out.extend_from_slice(block);
}

/// An unsigned LEB128.
pub(super) fn varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
