//! CAR framing: `varint(36 + n) cid block`. The simulator keeps blocks framed, so that an export is the concatenation of what it keeps.
use bytes::Bytes;

use crate::repo::Link;
use crate::repo::export::{car_block, car_header};

/// Length of the binary form of a CID.
pub(super) const CID_LEN: usize = 36;

/// The frame of a block.
pub(super) fn of(link: &Link, block: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(len(block.len()));
    car_block(&mut out, link, block);
    out.into()
}

/// Bytes that the frame of a block of this length takes.
pub(super) fn len(block: usize) -> usize {
    let body = CID_LEN + block;
    body + (usize::BITS - body.leading_zeros()).div_ceil(7) as usize
}

/// The header of a CAR with one root.
pub(super) fn header(root: &Link) -> Bytes {
    let mut out = Vec::with_capacity(59);
    car_header(&mut out, root);
    out.into()
}

/// One frame of frames that [`of`] wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Where the frame begins.
    pub(super) start: usize,
    /// Where its block begins; the CID is the [`CID_LEN`] bytes before.
    pub(super) block: usize,
    /// Where the frame ends.
    pub(super) end: usize,
}

/// The frames of a buffer that holds whole frames only, as [`of`] makes them.
pub(super) fn iter(bytes: &[u8]) -> impl Iterator<Item = Frame> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let (mut body, mut shift) = (0, 0);
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            body |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let frame = Frame { start, block: at + CID_LEN, end: at + body };
        at = frame.end;
        Some(frame)
    })
}

/// The CID of a frame.
pub(super) fn link(bytes: &[u8], frame: Frame) -> Link {
    Link::from_bytes(&bytes[frame.block - CID_LEN..frame.block]).expect("the simulator frames only blessed links")
}
