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

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors have no equality, but say all of themselves.
    fn assert_is<T: std::fmt::Debug>(found: Result<T, CheckoutError>, expected: Result<T, CheckoutError>, of: &[u8]) {
        assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{of:?}");
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut section = Vec::new();
        let mut length = body.len();
        while length >= 0x80 {
            section.push(length as u8 | 0x80);
            length >>= 7;
        }
        section.push(length as u8);
        section.extend_from_slice(body);
        section
    }

    /// A CID of version 1 with a digest of so many bytes, and its block.
    fn with_digest(codec: u8, digest: u8) -> Vec<u8> {
        [&[1, codec, 0x12, digest][..], &vec![7; usize::from(digest)], b"block"].concat()
    }

    #[test]
    fn a_section_is_its_cid_of_whatever_kind_and_its_block() {
        let sha2_of_a_repo = with_digest(0x71, 32);
        let version_0 = [&[0x12, 0x20][..], &[7; 32], b"block"].concat();
        let long_codec = [&[1, 0x81, 0x02, 0x12, 4][..], &[7; 4], b"block"].concat();
        for (body, cid, related) in [
            (sha2_of_a_repo, 36, true),
            (with_digest(0x55, 32), 36, false),
            (with_digest(0x71, 20), 24, false),
            (with_digest(0x71, 0), 4, false),
            (with_digest(0x71, 96), 100, false),
            (version_0, 34, false),
            (long_codec, 9, false),
        ] {
            let section = framed(&body);
            let head = section.len() - body.len();
            let expected = Section { block: head + cid, end: section.len(), related };
            assert_is(super::section(&[&section[..], b"next"].concat(), 0), Ok(Framing::Whole(expected)), &body);
            assert_is(super::section(&section[..section.len() - 1], 0), Ok(Framing::Unfinished(Some(section.len()))), &body);
        }
        let long = framed(&[&with_digest(0x71, 32)[..], &[0; 300]].concat());
        assert_is(super::section(&long, 0), Ok(Framing::Whole(Section { block: 38, end: long.len(), related: true })), &long);
    }

    #[test]
    fn what_is_no_cid_is_told_with_its_place() {
        let cut = |body: &[u8], at: usize| framed(&body[..at]);
        for section in [
            framed(b""),
            framed(&[2, 0x71, 0x12, 2, 7, 7]),
            framed(&[1, 0x71, 0x12]),
            framed(&[1, 0x71, 0x12, 0x80]),
            framed(&[0xff; 20]),
            cut(&with_digest(0x71, 32), 35),
            cut(&[&[0x12, 0x20][..], &[7; 32]].concat(), 33),
            framed(&with_digest(0x71, 97)),
        ] {
            let head = section.iter().position(|byte| byte & 0x80 == 0).unwrap_or_default() as u64 + 1;
            assert_is(super::section(&section, 1000), Err(CheckoutError::Cid { offset: 1000 + head }), &section);
        }
    }

    #[test]
    fn a_length_is_judged_before_what_it_counts_is_there() {
        let limit = MAX_BLOCK + MAX_CID;
        let too_long = |length| Err(CheckoutError::Length { offset: 7, length, limit });
        // 5 MiB and 100 bytes are 0x500064.
        for (bytes, framing) in [
            (&[0xe4, 0x80, 0xc0, 0x02][..], Ok(Framing::Unfinished(Some(limit as usize + 4)))),
            (&[0xe5, 0x80, 0xc0, 0x02], too_long(limit + 1)),
            (&[0xff; 9], too_long(u64::MAX)),
            (&[0xff; 8], Ok(Framing::Unfinished(None))),
        ] {
            assert_is(super::section(bytes, 7), framing, bytes);
        }
        // 8,192 bytes are a header, though none that is there.
        assert_is(header(&[0x80, 0x40, 0xa2]), Ok(None), &[]);
        assert_is(header(&[0x81, 0x40, 0xa2]), Err(not_a_car("its header is too long")), &[]);
        for (first, reason) in [(0x9f, Some("its header is no map")), (b'<', Some("it begins as text does")), (0xa0, None), (0xa3, None)] {
            assert_is(header(&[20, first]), reason.map(not_a_car).map_or(Ok(None), Err), &[first]);
        }
    }
}
