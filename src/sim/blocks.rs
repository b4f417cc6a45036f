use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::frame;
use crate::repo::Link;
use crate::syntax::Rev;

/// The blocks of one repo in the order of the reference implementation's export: by the rev at which a block was first stored, falling,
/// then by CID, falling.
///
/// What the repo was made with is one buffer in that order already. What came later is newer than all of it, and so goes before it; what
/// was removed is left out. An untouched repo therefore costs its export and nothing else.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    base: Bytes,
    /// Where a block of the base begins → where it ends.
    removed: BTreeMap<usize, usize>,
    recent: BTreeMap<(Reverse<Rev>, Reverse<Link>), Bytes>,
    /// Where each block is, and how many times it is needed: one record may be at several paths. Made by the first change.
    index: Option<HashMap<Link, Held>>,
}

#[derive(Debug, Clone)]
struct Held {
    place: Place,
    uses: u32,
}

#[derive(Debug, Clone)]
enum Place {
    Base(usize, usize),
    Recent(Rev),
}

impl Blocks {
    /// The frames of a whole repo, in export order.
    pub(super) fn new(base: Bytes) -> Self {
        Self { base, removed: BTreeMap::new(), recent: BTreeMap::new(), index: None }
    }

    /// Prepares for changes. `records` are the links of all records, each as often as a path names it.
    pub(super) fn open(&mut self, records: impl Iterator<Item = Link>) {
        if self.index.is_some() {
            return;
        }
        let held = |f: frame::Frame| (frame::link(&self.base, f), Held { place: Place::Base(f.start, f.end), uses: 0 });
        let mut index: HashMap<Link, Held> = frame::iter(&self.base).map(held).collect();
        for link in records {
            index.entry(link).and_modify(|held| held.uses += 1);
        }
        // The commit and the nodes are needed once each, which nobody counted.
        for held in index.values_mut() {
            held.uses = held.uses.max(1);
        }
        self.index = Some(index);
    }

    /// Stores a block, unless it is there: then it keeps the rev at which it was first stored. Returns the framed block.
    pub(super) fn add(&mut self, rev: Rev, link: Link, block: &[u8]) -> Bytes {
        let index = self.index.get_or_insert_default();
        if let Some(held) = index.get_mut(&link) {
            held.uses += 1;
            return match held.place {
                Place::Base(start, end) => self.base.slice(start..end),
                Place::Recent(rev) => self.recent[&(Reverse(rev), Reverse(link))].clone(),
            };
        }
        let framed = frame::of(&link, block);
        index.insert(link, Held { place: Place::Recent(rev), uses: 1 });
        self.recent.insert((Reverse(rev), Reverse(link)), framed.clone());
        framed
    }

    /// Gives up one use of a block; the last one removes it.
    pub(super) fn remove(&mut self, link: Link) {
        let index = self.index.get_or_insert_default();
        let Some(held) = index.get_mut(&link) else { return };
        held.uses -= 1;
        if held.uses > 0 {
            return;
        }
        match index.remove(&link).map(|held| held.place) {
            Some(Place::Base(start, end)) => _ = self.removed.insert(start, end),
            Some(Place::Recent(rev)) => _ = self.recent.remove(&(Reverse(rev), Reverse(link))),
            None => {}
        }
    }

    /// Whether the repo holds a block now.
    pub(super) fn contains(&self, link: &Link) -> bool {
        self.index.as_ref().is_none_or(|index| index.contains_key(link))
    }

    /// The framed block of a link that the repo holds now.
    pub(super) fn framed(&self, link: &Link) -> Option<Bytes> {
        match &self.index {
            Some(index) => index.get(link).and_then(|held| match held.place {
                Place::Base(start, end) => Some(self.base.slice(start..end)),
                Place::Recent(rev) => self.recent.get(&(Reverse(rev), Reverse(*link))).cloned(),
            }),
            None => frame::iter(&self.base).find(|f| frame::link(&self.base, *f) == *link).map(|f| self.base.slice(f.start..f.end)),
        }
    }

    /// The export now, in pieces that hold whole frames, of at least `PIECE` bytes where frames had to be copied together.
    pub(super) fn pieces(&self) -> Vec<Bytes> {
        let mut pieces = Pieces::default();
        for framed in self.recent.values() {
            pieces.push(framed.clone());
        }
        let mut at = 0;
        for (&start, &end) in &self.removed {
            pieces.push(self.base.slice(at..start));
            at = end;
        }
        pieces.push(self.base.slice(at..));
        pieces.finish()
    }

    /// Only the blocks first stored after `since`, where it is known that all of those are recent.
    pub(super) fn pieces_since(&self, since: Rev) -> Vec<Bytes> {
        let mut pieces = Pieces::default();
        for ((Reverse(rev), _), framed) in &self.recent {
            if *rev > since {
                pieces.push(framed.clone());
            }
        }
        pieces.finish()
    }
}

/// Copies small pieces together, so that a repo of many small changes is not sent in as many small writes.
#[derive(Default)]
pub(super) struct Pieces {
    done: Vec<Bytes>,
    small: Vec<u8>,
}

impl Pieces {
    const PIECE: usize = 16 << 10;

    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() >= Self::PIECE {
            self.end_small();
            self.done.push(piece);
            return;
        }
        self.small.extend_from_slice(&piece);
        if self.small.len() >= Self::PIECE {
            self.end_small();
        }
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.done.push(std::mem::take(&mut self.small).into());
        }
    }

    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.end_small();
        self.done
    }
}
