use super::{Builder, Chunk, Edit, MAX_ENTRIES, ManifestError};
use crate::syntax::RecordPath;

/// A chunk that deletes have made smaller than this is merged with the one behind it, if both together stay well below the limit.
const SMALL: u32 = 64;
const MERGED: u32 = 192;

/// A run of chunks after edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The chunks that take the place of the run, in order; none when no entry is left.
    pub chunks: Vec<Chunk>,
    /// Entries after, minus entries before.
    pub added: i64,
}

/// Applies edits, in path order and no path twice, to a run of consecutive chunks, and packs the result into as few chunks as hold it, evenly filled.
///
/// # Errors
/// When a chunk is corrupt, or edits or chunks are not in order.
pub fn apply(run: &[Chunk], edits: &[Edit]) -> Result<Applied, ManifestError> {
    let before: u32 = run.iter().map(|chunk| chunk.entries).sum();
    let mut out = Packer::for_entries(before as usize + edits.iter().filter(|edit| edit.cid.is_some()).count());
    let mut edits = Ordered { rest: edits, last: None };
    for chunk in run {
        let mut entries = chunk.read();
        while let Some((path, cid)) = entries.entry()? {
            while let Some(edit) = edits.next_if(|edit| edit.path.as_ref() < path)? {
                out.put(edit)?;
            }
            match edits.next_if(|edit| edit.path.as_ref() == path)? {
                Some(edit) => out.put(edit)?,
                None => out.push(path, cid)?,
            }
        }
    }
    while let Some(edit) = edits.next_if(|_| true)? {
        out.put(edit)?;
    }
    let chunks = out.finish();
    let after: u32 = chunks.iter().map(|chunk| chunk.entries).sum();
    Ok(Applied { chunks, added: i64::from(after) - i64::from(before) })
}

struct Packer {
    builder: Builder,
    chunks: Vec<Chunk>,
}

impl Packer {
    fn for_entries(most: usize) -> Self {
        let pieces = most.div_ceil(MAX_ENTRIES as usize).max(1);
        let limit = u32::try_from(most.div_ceil(pieces)).unwrap_or(MAX_ENTRIES);
        Self { builder: Builder::with_limit(limit), chunks: Vec::with_capacity(pieces) }
    }

    fn push(&mut self, path: crate::syntax::RecordPathRef<'_>, cid: crate::repo::Link) -> Result<(), ManifestError> {
        self.chunks.extend(self.builder.push(path, cid)?);
        Ok(())
    }

    fn put(&mut self, edit: &Edit) -> Result<(), ManifestError> {
        match edit.cid {
            Some(cid) => self.push(edit.path.as_ref(), cid),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Vec<Chunk> {
        self.chunks.extend(self.builder.finish());
        self.chunks
    }
}

/// Edits that are checked to be in order as they are taken.
struct Ordered<'a> {
    rest: &'a [Edit],
    last: Option<&'a RecordPath>,
}

impl<'a> Ordered<'a> {
    fn next_if(&mut self, wanted: impl Fn(&Edit) -> bool) -> Result<Option<&'a Edit>, ManifestError> {
        let Some((edit, rest)) = self.rest.split_first().filter(|(edit, _)| wanted(edit)) else { return Ok(None) };
        if self.last.is_some_and(|last| *last >= edit.path) {
            return Err(ManifestError::OutOfOrder { path: edit.path.to_string() });
        }
        self.last = Some(&edit.path);
        self.rest = rest;
        Ok(Some(edit))
    }
}

/// The chunks of one manifest, wherever they are kept.
pub trait ChunkMap {
    /// What keeping them can fail of.
    type Error: From<ManifestError>;

    /// The last chunk whose first path is not greater than `path`; the first of all when there is none; none when there are no chunks.
    ///
    /// # Errors
    /// When the chunks cannot be read.
    fn covering(&mut self, path: &RecordPath) -> Result<Option<Chunk>, Self::Error>;

    /// The chunk behind the one that begins with `first`.
    ///
    /// # Errors
    /// When the chunks cannot be read.
    fn behind(&mut self, first: &RecordPath) -> Result<Option<Chunk>, Self::Error>;

    /// Puts `new` in the place of `old`, which are consecutive chunks.
    ///
    /// # Errors
    /// When the chunks cannot be written.
    fn replace(&mut self, old: &[Chunk], new: &[Chunk]) -> Result<(), Self::Error>;
}

/// Applies edits, in path order and no path twice, to a manifest: reads and writes only the chunks that they fall into, and merges those that
/// deletes have made small. Returns entries after, minus entries before.
///
/// # Errors
/// As [`apply`], and when the chunks cannot be read or written.
pub fn rewrite<M: ChunkMap>(chunks: &mut M, mut edits: &[Edit]) -> Result<i64, M::Error> {
    if let Some([_, edit]) = edits.windows(2).find(|pair| matches!(pair, [before, edit] if before.path >= edit.path)) {
        return Err(ManifestError::OutOfOrder { path: edit.path.to_string() }.into());
    }
    let mut added = 0;
    while let Some(edit) = edits.first() {
        let covering = chunks.covering(&edit.path)?;
        let Some(chunk) = covering else {
            let applied = apply(&[], edits)?;
            chunks.replace(&[], &applied.chunks)?;
            return Ok(added + applied.added);
        };
        let mut behind = if edits.len() > 1 { chunks.behind(&chunk.first)? } else { None };
        let within = match &behind {
            Some(behind) => edits.partition_point(|edit| edit.path < behind.first).max(1),
            None => edits.len(),
        };
        let (here, rest) = edits.split_at_checked(within).unwrap_or((edits, &[]));
        let applied = apply(std::slice::from_ref(&chunk), here)?;
        added += applied.added;
        let left = applied.chunks.first().map_or(0, |chunk| chunk.entries);
        if applied.added < 0 && behind.is_none() {
            behind = chunks.behind(&chunk.first)?;
        }
        match behind {
            Some(behind) if (1..SMALL).contains(&left) && applied.added < 0 && left + behind.entries <= MERGED => {
                let mut run = applied.chunks;
                run.push(behind.clone());
                chunks.replace(&[chunk, behind], &apply(&run, &[])?.chunks)?;
            }
            Some(_) | None => chunks.replace(&[chunk], &applied.chunks)?,
        }
        edits = rest;
    }
    Ok(added)
}
