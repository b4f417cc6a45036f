//! The framing of a CAR v1 file (atproto.com/specs/repository, "CAR File Serialization").

use super::cbor::Reader;
use super::{CheckoutError, Link};

/// The longest header accepted, in bytes; one root takes 59. Room for some hundred roots, whose meaning is undefined.
const MAX_HEADER: u64 = 8192;

/// The longest block accepted, in bytes. No implementation reads DAG-CBOR of more than 5 MiB; records are capped far below.
pub(super) const MAX_BLOCK: u64 = 5 << 20;

/// The longest CID accepted, in bytes (the data model's limit).
const MAX_CID: u64 = 100;

/// A length as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Varint {
    /// The value, and the bytes it takes.
    Whole(u64, usize),
    /// It goes on beyond the bytes at hand.
    Unfinished,
    /// More than fits 63 bits.
    Huge,
}

/// Reads an unsigned LEB128 number.
pub(super) fn varint(bytes: &[u8]) -> Varint {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(9).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Varint::Whole(value, i + 1);
        }
    }
    if bytes.len() < 9 { Varint::Unfinished } else { Varint::Huge }
}

/// Reads the length at the start of `bytes`, which lies at `offset` of the file and may be at most `limit`. `None` when it goes on beyond `bytes`.
fn length(bytes: &[u8], offset: u64, limit: u64) -> Result<Option<(u64, usize)>, CheckoutError> {
    match varint(bytes) {
        Varint::Whole(length, size) if length <= limit => Ok(Some((length, size))),
        Varint::Whole(length, _) => Err(CheckoutError::Length { offset, length, limit }),
        Varint::Huge => Err(CheckoutError::Length { offset, length: u64::MAX, limit }),
        Varint::Unfinished => Ok(None),
    }
}

/// Reads the header at the start of a file: the root and the bytes it takes. `None` when it goes on beyond `bytes`.
pub(crate) fn header(bytes: &[u8]) -> Result<Option<(Link, usize)>, CheckoutError> {
    let Some((length, size)) = length(bytes, 0, MAX_HEADER).map_err(|_| not_a_car("its header is too long"))? else { return Ok(None) };
    let end = size + length as usize;
    if let Some(first) = bytes.get(size).filter(|first| length > 0 && **first < 0xa0) {
        // Told before the claimed header is whole, so that a short error page is called what it is and not a cut file.
        return Err(not_a_car(if first.is_ascii() { "it begins as text does" } else { "its header is no map" }));
    }
    match bytes.get(size..end) {
        Some(header) => root(header).map(|root| Some((root, end))),
        None => Ok(None),
    }
}

/// The first root of a header.
fn root(header: &[u8]) -> Result<Link, CheckoutError> {
    let malformed = || not_a_car("its header is not valid");
    let mut reader = Reader::new(header);
    let (mut root, mut version) = (None, None);
    for _ in 0..reader.map().ok_or_else(malformed)? {
        match reader.text().ok_or_else(malformed)? {
            "roots" => {
                let roots = reader.array().ok_or_else(malformed)?;
                if roots == 0 {
                    return Err(CheckoutError::NoRoot);
                }
                root = Some(reader.any_link().ok_or_else(malformed)?);
                (1..roots).try_for_each(|_| reader.skip()).ok_or_else(malformed)?;
            }
            "version" => version = Some(reader.unsigned().ok_or_else(malformed)?),
            _ => reader.skip().ok_or_else(malformed)?,
        }
    }
    if version != Some(1) {
        return Err(not_a_car("its version is not 1"));
    }
    let root = root.ok_or(CheckoutError::NoRoot)?;
    Link::from_bytes(root).ok_or_else(|| not_a_car("its root is not a CIDv1 of DAG-CBOR and SHA-256"))
}

fn not_a_car(reason: &'static str) -> CheckoutError {
    CheckoutError::NotACar { reason }
}

/// One block with what stands before it. Offsets count from where its length begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    /// Where the block begins.
    pub(crate) block: usize,
    /// Where the block ends, and the section.
    pub(crate) end: usize,
    /// Whether the CID is of the kind that commits, nodes and records have.
    pub(crate) related: bool,
}

/// What [`section`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A whole section.
    Whole(Section),
    /// A section that goes on beyond the bytes at hand; its whole size, once the length is known.
    Unfinished(Option<usize>),
}

/// Reads the framing of the section at the start of `bytes`, which lies at `offset` of the file.
pub(crate) fn section(bytes: &[u8], offset: u64) -> Result<Framing, CheckoutError> {
    let Some((length, size)) = length(bytes, offset, MAX_BLOCK + MAX_CID)? else { return Ok(Framing::Unfinished(None)) };
    let end = size + length as usize;
    let Some(body) = bytes.get(size..end) else { return Ok(Framing::Unfinished(Some(end))) };
    if body.starts_with(&Link::PREFIX) && body.len() >= 36 {
        return Ok(Framing::Whole(Section { block: size + 36, end, related: true }));
    }
    let cid = foreign_cid_len(body).ok_or(CheckoutError::Cid { offset: offset + size as u64 })?;
    Ok(Framing::Whole(Section { block: size + cid, end, related: false }))
}

/// The length of a CID of any other kind, as long as it is one.
fn foreign_cid_len(body: &[u8]) -> Option<usize> {
    if body.starts_with(&[0x12, 0x20]) {
        return (body.len() >= 34).then_some(34);
    }
    let mut at = 0;
    let mut next = || match varint(body.get(at..)?) {
        Varint::Whole(value, size) => {
            at += size;
            Some(value)
        }
        Varint::Unfinished | Varint::Huge => None,
    };
    let (version, _codec, _hash, digest) = (next()?, next()?, next()?, next()?);
    let len = at.checked_add(usize::try_from(digest).ok()?)?;
    (version == 1 && len <= MAX_CID as usize && len <= body.len()).then_some(len)
}
