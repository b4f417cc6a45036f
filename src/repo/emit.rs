//! The pieces that canonical DAG-CBOR is written with.

use super::Link;

/// The major types of CBOR that the data model uses.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Major {
    Unsigned = 0,
    Negative = 1,
    Bytes = 2,
    Text = 3,
    Array = 4,
    Map = 5,
    Tag = 6,
}

pub(crate) const FALSE: u8 = 0xf4;
pub(crate) const TRUE: u8 = 0xf5;
pub(crate) const NULL: u8 = 0xf6;

/// Writes the head of a value in its shortest form: the type and a number, which is the value itself, a length or a tag.
pub(crate) fn head(out: &mut Vec<u8>, major: Major, number: u64) {
    let major = (major as u8) << 5;
    match number {
        0..24 => out.push(major | number as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

pub(crate) fn text(out: &mut Vec<u8>, value: &str) {
    head(out, Major::Text, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

pub(crate) fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    head(out, Major::Bytes, value.len() as u64);
    out.extend_from_slice(value);
}

/// A link to any CID, given in binary: tag 42 and the CID behind a zero byte.
pub(crate) fn cid(out: &mut Vec<u8>, cid: &[u8]) {
    head(out, Major::Tag, 42);
    head(out, Major::Bytes, cid.len() as u64 + 1);
    out.push(0);
    out.extend_from_slice(cid);
}

/// A link as [`cid`] writes it. Most of a tree node is links, so it is written at once.
#[inline]
pub(crate) fn link(out: &mut Vec<u8>, link: &Link) {
    let mut bytes = [0; 41];
    bytes[..5].copy_from_slice(&[0xd8, 0x2a, 0x58, 0x25, 0x00]);
    bytes[5..].copy_from_slice(&link.to_bytes());
    out.extend_from_slice(&bytes);
}

pub(crate) fn optional_link(out: &mut Vec<u8>, value: Option<&Link>) {
    match value {
        Some(value) => link(out, value),
        None => out.push(NULL),
    }
}
