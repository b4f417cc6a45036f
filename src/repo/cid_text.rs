//! The text of CIDs.

use super::Link;

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Appends the text of a binary CID: multibase base32 in lower case, or the bare base58btc of version 0.
pub(super) fn write_cid(cid: &[u8], out: &mut Vec<u8>) {
    // Version 0 is a bare SHA-256 multihash; version 1 begins with a 1.
    if cid.first() == Some(&0x12) {
        out.extend_from_slice(bs58::encode(cid).into_string().as_bytes());
        return;
    }
    let start = out.len();
    out.resize(start + base32_len(cid.len()), 0);
    base32(cid, &mut out[start..]);
}

/// The text of a binary CID.
pub(super) fn cid_text(cid: &[u8]) -> String {
    let mut out = Vec::with_capacity(base32_len(cid.len()));
    write_cid(cid, &mut out);
    // Both alphabets are ASCII.
    String::from_utf8(out).unwrap_or_default()
}

/// The 59 characters of a link.
pub(super) fn link_text(link: &Link) -> [u8; 59] {
    let mut text = [0; 59];
    base32(&link.to_bytes(), &mut text);
    text
}

const fn base32_len(bytes: usize) -> usize {
    1 + (bytes * 8).div_ceil(5)
}

/// `b` and the digits, 5 bits each; the last one is filled up with zeros.
fn base32(bytes: &[u8], text: &mut [u8]) {
    let Some((prefix, digits)) = text.split_first_mut() else { return };
    *prefix = b'b';
    for (group, digits) in bytes.chunks(5).zip(digits.chunks_mut(8)) {
        let bits = group.iter().enumerate().fold(0u64, |bits, (at, &byte)| bits | u64::from(byte) << (32 - 8 * at));
        for (at, digit) in digits.iter_mut().enumerate() {
            *digit = BASE32[(bits >> (35 - 5 * at)) as usize & 31];
        }
    }
}
