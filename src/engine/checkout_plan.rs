//! Decides what a checkout brings: walks the verified repo, compares it with the manifest, and makes deliveries of the differences.
//! Blocking, because hashing and a spool on disk are; no async, no store of its own.

use std::sync::Arc;

use crate::consumer::{Change, CollectionFilter, Delivery, Origin, Record};
use crate::manifest::{Builder, Chunk, Diff, Edit, ManifestError, Step};
use crate::repo::{Checkout, CheckoutError, Leaves, Link, Records, Walk, record};
use crate::store::{ManifestChange, StoreError};
use crate::syntax::{Did, RecordPath, RecordPathRef, Rev};

/// One delivery of a checkout, and the change of the manifest that its acknowledgement makes.
#[derive(Debug)]
pub(super) struct CheckoutBatch {
    pub(super) delivery: Delivery,
    pub(super) manifest: ManifestChange,
    /// Records dropped alone on the way to this batch.
    pub(super) bad: usize,
}

/// Why a checkout cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    /// The repo is not what it must be.
    #[error(transparent)]
    Checkout(#[from] CheckoutError),
    /// The manifest is corrupt.
    #[error("the manifest is corrupt")]
    Manifest(#[from] ManifestError),
    /// The manifest could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a plan is made.
#[derive(Debug)]
pub(super) struct PlanRules {
    pub(super) filter: CollectionFilter,
    /// Leaves that are looked at for one delivery, and changes in one, at most.
    pub(super) max_changes: usize,
    /// See [`Delivery`].
    pub(super) parallel: usize,
}

/// A checkout on its way to the handler.
pub(super) struct CheckoutPlan {
    rules: PlanRules,
    did: Did,
    rev: Rev,
    walk: Walk,
    diff: Diff,
    leaves: Leaves,
    /// The next leaf of the batch to be compared.
    at: usize,
    records: Records,
    /// What was found, in path order.
    found: Vec<Found>,
    /// The positions of those found that have to be read.
    wanted: Vec<u32>,
    /// Whether all that is being found lies behind the end of the manifest.
    appends: bool,
    /// Records dropped by the walk, not reported yet.
    dropped: usize,
    walked: bool,
    done: bool,
}

/// Record bytes in one delivery, about: with a few deliveries of each checkout in flight, what bounds memory when records are large.
const MAX_BYTES: usize = 1 << 20;

/// Why a comparison pauses.
enum Pause {
    /// Nothing is left to compare.
    End,
    /// More of the manifest is needed.
    Starved,
    /// The delivery has enough bytes.
    Full,
}

enum Found {
    Create(u32),
    Update(u32),
    Delete(RecordPath),
}

impl CheckoutPlan {
    /// Begins; `in_doubt` sorted, no path twice.
    pub(super) fn new(rules: PlanRules, checkout: &Arc<Checkout>, in_doubt: Vec<RecordPath>) -> Self {
        Self {
            rules,
            did: checkout.commit().did().clone(),
            rev: checkout.commit().rev(),
            walk: checkout.walk(),
            diff: Diff::new(in_doubt),
            leaves: Leaves::new(),
            at: 0,
            records: Records::new(),
            found: Vec::new(),
            wanted: Vec::new(),
            appends: false,
            dropped: 0,
            walked: false,
            done: false,
        }
    }

    /// The next delivery; none once the whole tree and the whole manifest were seen. `page` reads the manifest on from a path.
    pub(super) fn next(
        &mut self,
        page: &mut impl FnMut(Option<RecordPath>) -> Result<Vec<Chunk>, StoreError>,
    ) -> Result<Option<CheckoutBatch>, PlanError> {
        while !self.done {
            if self.found.is_empty() {
                // Behind the end of the manifest there are only creates.
                self.appends = self.diff.is_past();
            }
            if self.at == self.leaves.len() && !self.walked {
                self.walked = !self.walk.next(&mut self.leaves, self.rules.max_changes)?;
                self.at = 0;
                self.report_dropped();
            }
            let pause = if self.walked { self.finish()? } else { self.compare()? };
            let full = self.found.len() >= self.rules.max_changes;
            match pause {
                Pause::Starved if !full => self.diff.feed(page(self.diff.after())?),
                Pause::Starved | Pause::Full | Pause::End => {
                    if !self.found.is_empty() || self.dropped > 0 {
                        return self.batch().map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    fn report_dropped(&mut self) {
        self.dropped += self.leaves.dropped().len();
        for leaf in self.leaves.dropped() {
            tracing::warn!(did = %self.did, rev = %self.rev, key = leaf.key, fault = %leaf.fault, "record dropped");
        }
    }

    /// Compares leaves until those of the walk's batch are at their end.
    fn compare(&mut self) -> Result<Pause, PlanError> {
        let mut bytes = 0;
        let mut collection = "";
        let mut taken = true;
        while let Some(leaf) = self.leaves.get(self.at) {
            if bytes >= MAX_BYTES {
                return Ok(Pause::Full);
            }
            if collection != leaf.path.collection() {
                collection = leaf.path.collection();
                taken = self.rules.filter.takes(collection);
            }
            if taken {
                let found = &mut self.found;
                let step =
                    self.diff.leaf(leaf.path, leaf.link, &mut |path: RecordPathRef<'_>| found.push(Found::Delete(path.to_owned())))?;
                match step {
                    Step::Create => self.found.push(Found::Create(self.at as u32)),
                    Step::Update => self.found.push(Found::Update(self.at as u32)),
                    Step::Same => {}
                    Step::Starved => return Ok(Pause::Starved),
                }
                if step != Step::Same {
                    bytes += leaf.len as usize;
                }
            }
            self.at += 1;
        }
        Ok(Pause::End)
    }

    /// Deletes what the manifest holds behind the last leaf.
    fn finish(&mut self) -> Result<Pause, PlanError> {
        let found = &mut self.found;
        self.done = self.diff.finish(&mut |path: RecordPathRef<'_>| found.push(Found::Delete(path.to_owned())))?;
        Ok(if self.done { Pause::End } else { Pause::Starved })
    }

    /// Makes a batch of what was found.
    fn batch(&mut self) -> Result<CheckoutBatch, PlanError> {
        self.wanted.clear();
        self.wanted.extend(self.found.iter().filter_map(|found| match found {
            Found::Create(at) | Found::Update(at) => Some(*at),
            Found::Delete(_) => None,
        }));
        self.walk.read(&self.leaves, &self.wanted, &mut self.records)?;
        let mut delivery = Delivery::new(self.did.clone(), self.rev, Origin::Checkout, self.rules.parallel);
        let mut manifest = if self.appends { Entries::Append(Builder::default(), Vec::new()) } else { Entries::Apply(Vec::new()) };
        let mut bad = std::mem::take(&mut self.dropped);
        let mut read = self.records.iter();
        for found in self.found.drain(..) {
            let (at, is_update) = match found {
                Found::Delete(path) => {
                    delivery.push(Change::Delete(path.as_ref()));
                    manifest.delete(path);
                    continue;
                }
                Found::Create(at) => (at, false),
                Found::Update(at) => (at, true),
            };
            let (Some(leaf), Some(bytes)) = (self.leaves.get(at as usize), read.next()) else { continue };
            let made = Record { path: leaf.path, cid: leaf.link, bytes };
            match record::check(bytes) {
                Ok(()) if is_update => delivery.push(Change::Update(made)),
                Ok(()) => delivery.push(Change::Create(made)),
                Err(fault) => {
                    tracing::warn!(did = %self.did, rev = %self.rev, path = %leaf.path, cid = %leaf.link, %fault, "record dropped");
                    bad += 1;
                    if is_update {
                        // The consumer must not keep a version that is no more.
                        delivery.push(Change::Delete(leaf.path));
                        manifest.delete(leaf.path.to_owned());
                    }
                    continue;
                }
            }
            manifest.put(leaf.path, leaf.link)?;
        }
        Ok(CheckoutBatch { delivery, manifest: manifest.finish(), bad })
    }
}

/// What a batch changes in the manifest, growing.
enum Entries {
    Append(Builder, Vec<Chunk>),
    Apply(Vec<Edit>),
}

impl Entries {
    fn put(&mut self, path: RecordPathRef<'_>, link: Link) -> Result<(), ManifestError> {
        match self {
            Self::Append(builder, chunks) => chunks.extend(builder.push(path, link)?),
            Self::Apply(edits) => edits.push(Edit { path: path.to_owned(), cid: Some(link) }),
        }
        Ok(())
    }

    fn delete(&mut self, path: RecordPath) {
        match self {
            // Behind the end of the manifest there is nothing to delete.
            Self::Append(..) => {}
            Self::Apply(edits) => edits.push(Edit { path, cid: None }),
        }
    }

    fn finish(self) -> ManifestChange {
        match self {
            Self::Append(mut builder, mut chunks) => {
                chunks.extend(builder.finish());
                ManifestChange::Append(chunks)
            }
            Self::Apply(edits) => ManifestChange::Apply(edits),
        }
    }
}
