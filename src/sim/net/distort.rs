//! Faults in how a body is sent, whatever is in it.
use std::time::Duration;

use bytes::Bytes;

use super::body::Step;
use crate::sim::fault::{Ending, Fault, Position};
use crate::sim::frame;

/// What a fault makes of a body. Faults of another kind leave it alone.
pub(super) fn distort(body: Vec<Step>, fault: &Fault) -> Vec<Step> {
    match fault {
        Fault::Stall(at, pause) => split(body, *at, |rest| std::iter::once(Step::Wait(*pause)).chain(rest).collect()),
        Fault::Hold(at, gate) => split(body, *at, |rest| std::iter::once(Step::Hold(gate.clone())).chain(rest).collect()),
        Fault::Cut(at, ending) => split(body, *at, |_| match ending {
            Ending::Clean => Vec::new(),
            Ending::Close => vec![Step::Close],
            Ending::Reset => vec![Step::Reset],
        }),
        Fault::Trickle(bytes, pause) => trickle(body, (*bytes).max(1), *pause),
        Fault::FlipByte(at) => flip(body, *at),
        Fault::TrailingBytes(bytes) => body.into_iter().chain([Step::Send(bytes.clone().into())]).collect(),
        _ => body,
    }
}

fn bytes(step: &Step) -> Option<&Bytes> {
    match step {
        Step::Send(bytes) | Step::SendLive(bytes, _) => Some(bytes),
        Step::Wait(_) | Step::Hold(_) | Step::Close | Step::Reset => None,
    }
}

fn len(body: &[Step]) -> u64 {
    body.iter().filter_map(bytes).map(|bytes| bytes.len() as u64).sum()
}

/// Puts what `then` makes of the rest behind what is before a position.
fn split(body: Vec<Step>, at: Position, then: impl FnOnce(Vec<Step>) -> Vec<Step>) -> Vec<Step> {
    let mut left = match at {
        Position::Byte(byte) => byte,
        Position::Block(block) => offset_of_block(&body, block),
        Position::BeforeEnd(bytes) => len(&body).saturating_sub(bytes),
    };
    let (mut before, mut rest) = (Vec::new(), Vec::new());
    for step in body {
        let Some(all) = bytes(&step) else {
            if left > 0 {
                before.push(step)
            } else {
                rest.push(step)
            }
            continue;
        };
        let cut = usize::try_from(left).unwrap_or(usize::MAX).min(all.len());
        left -= cut as u64;
        before.push(Step::Send(all.slice(..cut)));
        rest.push(Step::Send(all.slice(cut..)));
    }
    before.extend(then(rest));
    before
}

/// Where the block of this number begins in a CAR whose first step is its header.
fn offset_of_block(body: &[Step], block: u64) -> u64 {
    let mut pieces = body.iter().filter_map(bytes);
    let header = pieces.next().map_or(0, |header| header.len() as u64);
    let mut left = block;
    let mut offset = header;
    for piece in pieces {
        for at in frame::iter(piece) {
            if left == 0 {
                return offset + at.start as u64;
            }
            left -= 1;
        }
        offset += piece.len() as u64;
    }
    offset
}

fn trickle(body: Vec<Step>, size: usize, pause: Duration) -> Vec<Step> {
    let mut out = Vec::new();
    for step in body {
        let Some(mut rest) = bytes(&step).cloned() else {
            out.push(step);
            continue;
        };
        while !rest.is_empty() {
            out.push(Step::Send(rest.split_to(size.min(rest.len()))));
            out.push(Step::Wait(pause));
        }
    }
    out
}

fn flip(mut body: Vec<Step>, at: u64) -> Vec<Step> {
    let total = len(&body);
    let Some(mut at) = at.checked_rem(total) else { return body };
    for step in &mut body {
        let Some(all) = bytes(step) else { continue };
        if at < all.len() as u64 {
            let mut changed = all.to_vec();
            changed[at as usize] ^= 1;
            *step = Step::Send(changed.into());
            return body;
        }
        at -= all.len() as u64;
    }
    body
}
