use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use super::blocks::Pieces;
use super::frame;
use super::repo::Leaf;
use crate::repo::Link;
use crate::repo::export::car_block;
use crate::repo::mst::{Tree, Visit};
use crate::syntax::RecordPath;

/// A CAR in pieces: the header, then whole frames. Sending it copies nothing.
#[derive(Debug, Clone)]
pub(super) struct Export {
    /// First the header, then pieces of whole frames.
    pub(super) pieces: Vec<Bytes>,
}

impl Export {
    pub(super) fn new(commit: Link, frames: Vec<Bytes>) -> Self {
        let mut pieces = vec![frame::header(&commit)];
        pieces.extend(frames);
        Self { pieces }
    }

    /// The same blocks in the order of a streamable CAR: the commit, then the tree, each node before what is in it.
    pub(super) fn streamable(commit: Link, plain: &Export, tree: &Tree, leaves: &BTreeMap<RecordPath, Leaf>) -> Self {
        let mut out = Vec::with_capacity(plain.len());
        if let Some(framed) = plain.frames().find(|(link, _)| *link == commit) {
            out.extend_from_slice(&framed.1);
        }
        let mut records = leaves.values();
        let mut seen = HashSet::new();
        tree.visit(|visit| match visit {
            Visit::Node(link, block) => car_block(&mut out, &link, block),
            Visit::Record(_, link) => {
                // The leaves are in key order, which is the order of the visit.
                if let (Some(leaf), true) = (records.next(), seen.insert(link)) {
                    car_block(&mut out, &link, &leaf.record());
                }
            }
        });
        Self::new(commit, vec![out.into()])
    }

    /// Bytes in all.
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// The blocks in order, framed.
    pub(super) fn frames(&self) -> impl Iterator<Item = (Link, Bytes)> + '_ {
        let in_piece = |piece: &'_ Bytes| {
            let piece = piece.clone();
            let found: Vec<frame::Frame> = frame::iter(&piece).collect();
            found.into_iter().map(move |at| (frame::link(&piece, at), piece.slice(at.start..at.end)))
        };
        self.pieces.iter().skip(1).flat_map(in_piece)
    }

    /// The blocks in pages of this many.
    pub(super) fn pages(&self, blocks: usize) -> Vec<Bytes> {
        let (mut pages, mut page) = (Vec::new(), Vec::new());
        for (count, (_, framed)) in self.frames().enumerate() {
            if count > 0 && count % blocks == 0 {
                pages.push(std::mem::take(&mut page).into());
            }
            page.extend_from_slice(&framed);
        }
        pages.push(page.into());
        pages
    }

    /// Only the blocks that pass.
    pub(super) fn retain(&self, mut keep: impl FnMut(&Link, &[u8]) -> bool) -> Self {
        let mut pieces = Pieces::default();
        for (link, framed) in self.frames() {
            if keep(&link, &framed) {
                pieces.push(framed);
            }
        }
        let mut all = vec![self.pieces[0].clone()];
        all.extend(pieces.finish());
        Self { pieces: all }
    }

    /// Another commit in place of the one there is, and as the root.
    pub(super) fn with_commit(&self, before: &Link, commit: Link, block: &[u8]) -> Self {
        let mut rest = self.retain(|link, _| link != before);
        rest.pieces[0] = frame::header(&commit);
        rest.pieces.insert(1, frame::of(&commit, block));
        rest
    }

    /// The whole CAR in one buffer.
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.len());
        self.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        out.into()
    }
}
