use std::collections::VecDeque;

use super::chunk::Cursor;
use super::{Chunk, ManifestError};
use crate::repo::Link;
use crate::syntax::{RecordPath, RecordPathRef};

/// Compares a checkout with the manifest, incrementally: what the consumer must be told so that it holds exactly what the checkout holds.
///
/// Leaves come in order, one by one; chunks of the manifest are fed when a step says [`Step::Starved`], so memory is bounded by what is fed at once.
/// A path in doubt may or may not be as the manifest says: it is told again, or deleted, whatever the manifest says.
///
/// The manifest may be edited meanwhile by what this diff itself gave out: entries up to the last leaf or the last entry read are passed over when read again.
///
/// ```text
/// loop { match diff.leaf(path, cid, &mut deleted)? {
///     Step::Starved => diff.feed(store.manifest(job, diff.after(), 16).await?),
///     told => break told,
/// } }
/// …                                       // and when the leaves are at their end:
/// while !diff.finish(&mut deleted)? { diff.feed(store.manifest(job, diff.after(), 16).await?) }
/// ```
#[derive(Debug)]
pub struct Diff {
    in_doubt: std::iter::Peekable<std::vec::IntoIter<RecordPath>>,
    last_leaf: String,
    old: Old,
    same: u64,
}

/// What becomes of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The consumer does not have it: to be created.
    Create,
    /// The consumer has another one, or is in doubt: to be updated.
    Update,
    /// The consumer has it.
    Same,
    /// Not known yet: feed more of the manifest and give the leaf again.
    Starved,
}

impl Diff {
    /// Begins. `in_doubt` must be sorted, no path twice.
    pub fn new(in_doubt: Vec<RecordPath>) -> Self {
        debug_assert!(in_doubt.is_sorted_by(|a, b| a < b));
        Self { in_doubt: in_doubt.into_iter().peekable(), last_leaf: String::new(), old: Old::default(), same: 0 }
    }

    /// The place in the manifest behind which to read on; none for its beginning.
    pub fn after(&self) -> Option<RecordPath> {
        let bound = self.old.bound.as_str().max(&self.last_leaf);
        (!bound.is_empty()).then(|| RecordPathRef::assume_valid(bound).to_owned())
    }

    /// Takes a page of the manifest that begins at [`Diff::after`]. A page without a new entry tells that the manifest is at its end.
    pub fn feed(&mut self, page: Vec<Chunk>) {
        self.old.queue.extend(page);
        self.old.barren = true;
    }

    /// How many leaves the consumer had already.
    pub fn same(&self) -> u64 {
        self.same
    }

    /// Whether the manifest is at its end, and nothing is in doubt any more: all further leaves are creates.
    pub fn is_past(&mut self) -> bool {
        self.old.ended && self.in_doubt.peek().is_none()
    }

    /// Takes the next leaf. `deleted` is told, in order, the paths before it that are no more.
    ///
    /// # Errors
    /// When the leaf does not come after the one before it, or a chunk is corrupt.
    pub fn leaf(&mut self, path: RecordPathRef<'_>, cid: Link, deleted: &mut impl FnMut(RecordPathRef<'_>)) -> Result<Step, ManifestError> {
        if path.as_str() <= self.last_leaf.as_str() {
            return Err(ManifestError::OutOfOrder { path: path.as_str().to_owned() });
        }
        if !self.delete_until(Some(path), deleted)? {
            return Ok(Step::Starved);
        }
        self.last_leaf.clear();
        self.last_leaf.push_str(path.as_str());
        let doubted = self.in_doubt.next_if(|doubted| doubted.as_ref() == path).is_some();
        let held = self.old.next_if(path);
        Ok(match held {
            None => Step::Create,
            Some(held) if doubted || held != cid => Step::Update,
            Some(_) => {
                self.same += 1;
                Step::Same
            }
        })
    }

    /// Ends: `deleted` is told what remains. `false` when more of the manifest must be fed first, and this called again.
    ///
    /// # Errors
    /// When a chunk is corrupt.
    pub fn finish(&mut self, deleted: &mut impl FnMut(RecordPathRef<'_>)) -> Result<bool, ManifestError> {
        self.delete_until(None, deleted)
    }

    /// Tells every held or doubted path before `leaf` (all for none) as deleted. `false` when starved.
    fn delete_until(
        &mut self,
        leaf: Option<RecordPathRef<'_>>,
        deleted: &mut impl FnMut(RecordPathRef<'_>),
    ) -> Result<bool, ManifestError> {
        loop {
            let held = match self.old.peek(&self.last_leaf)? {
                Peek::Starved => return Ok(false),
                Peek::Entry(path) => Some(path),
                Peek::End => None,
            };
            let doubted = self.in_doubt.peek().map(RecordPath::as_ref);
            let Some(first) = [held, doubted].into_iter().flatten().min().filter(|&first| leaf.is_none_or(|leaf| first < leaf)) else {
                return Ok(true);
            };
            deleted(first);
            let (drop_held, drop_doubted) = (held == Some(first), doubted == Some(first));
            if drop_held {
                self.old.consume();
            }
            if drop_doubted {
                self.in_doubt.next();
            }
        }
    }
}

/// The entries of the manifest, in order, as far as it was fed.
#[derive(Debug, Default)]
struct Old {
    queue: VecDeque<Chunk>,
    open: Option<Chunk>,
    cursor: Cursor,
    /// The CID of the entry at the cursor, unless it is consumed.
    entry: Option<Link>,
    /// The greatest path in the chunks that were read to their end.
    bound: String,
    /// Entries of the open chunk up to this one were seen before it was fed.
    skip: Option<String>,
    /// Whether the last page is still without a new entry.
    barren: bool,
    ended: bool,
}

enum Peek<'a> {
    Entry(RecordPathRef<'a>),
    Starved,
    End,
}

impl Old {
    fn peek(&mut self, last_leaf: &str) -> Result<Peek<'_>, ManifestError> {
        while self.entry.is_none() {
            if self.open.is_none() {
                let Some(chunk) = self.queue.pop_front() else { return Ok(self.exhausted()) };
                self.cursor.restart(&chunk);
                self.open = Some(chunk);
                self.skip = Some(self.bound.as_str().max(last_leaf).to_owned());
            }
            let bytes = self.open.as_ref().map_or(&[][..], |chunk| &chunk.bytes);
            match self.cursor.step(bytes)? {
                None => self.close(),
                Some(_) if self.skip.as_deref().is_some_and(|skip| self.cursor.text() <= skip) => {}
                Some(link) => {
                    self.skip = None;
                    self.barren = false;
                    self.entry = Some(link);
                }
            }
        }
        Ok(Peek::Entry(self.cursor.path()))
    }

    /// Leaves the chunk that was read to its end, and remembers how far it went.
    fn close(&mut self) {
        self.open = None;
        if self.cursor.text() > self.bound.as_str() {
            self.bound.clear();
            self.bound.push_str(self.cursor.text());
        }
    }

    fn exhausted(&mut self) -> Peek<'static> {
        self.ended |= self.barren;
        if self.ended { Peek::End } else { Peek::Starved }
    }

    fn consume(&mut self) {
        self.entry = None;
    }

    /// Consumes the entry at the cursor if it is at `path`.
    fn next_if(&mut self, path: RecordPathRef<'_>) -> Option<Link> {
        self.entry.take_if(|_| self.cursor.path() == path)
    }
}
