//! The manifest of one job as rows.

use super::backend::Connection;
use diesel::prelude::*;

use super::endings::Endings as _;
use super::fault::{Act, Fault};
use super::schema::manifest_chunk;
use super::statements::{KeepChunk, PutChunk};
use crate::job::JobId;
use crate::manifest::{Chunk, ChunkMap, MAX_ENTRIES};
use crate::store::StoreError;
use crate::syntax::RecordPath;

pub(super) struct Chunks<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) job: JobId,
}

type ChunkRow = (String, i64, Vec<u8>);
const COLUMNS: (manifest_chunk::first, manifest_chunk::entries, manifest_chunk::bytes) =
    (manifest_chunk::first, manifest_chunk::entries, manifest_chunk::bytes);

fn chunk((first, entries, bytes): ChunkRow) -> Act<Chunk> {
    let at = || format!("manifest chunk {first:?}");
    let path = RecordPath::new(&first).map_err(|error| Fault::corrupt(at(), error))?;
    match u32::try_from(entries) {
        Ok(entries @ 1..=MAX_ENTRIES) => Ok(Chunk { first: path, entries, bytes }),
        _ => Err(Fault::corrupt(at(), format!("{entries} entries"))),
    }
}

impl Chunks<'_> {
    /// Chunks from the one that holds or would hold `after`.
    pub(super) fn page(&mut self, after: Option<&RecordPath>, limit: usize) -> Act<Vec<Chunk>> {
        use manifest_chunk::dsl;
        let from: Option<String> = match after {
            None => None,
            Some(after) => dsl::manifest_chunk
                .filter(dsl::job.eq(self.job.0).and(dsl::first.le(after.as_str())))
                .order(dsl::first.desc())
                .select(dsl::first)
                .one()
                .get_result(self.connection)
                .optional()?,
        };
        let rows: Vec<ChunkRow> = dsl::manifest_chunk
            .filter(dsl::job.eq(self.job.0).and(dsl::first.ge(from.unwrap_or_default())))
            .order(dsl::first)
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .select(COLUMNS)
            .load(self.connection)?;
        rows.into_iter().map(chunk).collect()
    }

    /// Puts chunks behind the last one; returns how many entries came.
    pub(super) fn append(&mut self, chunks: &[Chunk]) -> Act<i64> {
        use manifest_chunk::dsl;
        let mut last: Option<String> = dsl::manifest_chunk
            .filter(dsl::job.eq(self.job.0))
            .order(dsl::first.desc())
            .select(dsl::first)
            .one()
            .get_result(self.connection)
            .optional()?;
        let mut added = 0;
        for chunk in chunks {
            if last.as_deref().is_some_and(|last| last >= chunk.first.as_str()) {
                return Err(StoreError::OutOfOrder { path: chunk.first.to_string() }.into());
            }
            self.insert(chunk)?;
            added += i64::from(chunk.entries);
            last = Some(chunk.first.to_string());
        }
        Ok(added)
    }

    fn insert(&mut self, chunk: &Chunk) -> Act<()> {
        let (first, entries) = (chunk.first.as_str(), i64::from(chunk.entries));
        PutChunk { job: self.job.0, first, entries, bytes: &chunk.bytes }.execute(self.connection)?;
        Ok(())
    }
}

impl ChunkMap for Chunks<'_> {
    type Error = Fault;

    fn covering(&mut self, path: &RecordPath) -> Act<Option<Chunk>> {
        use manifest_chunk::dsl;
        let at_or_before: Option<ChunkRow> = dsl::manifest_chunk
            .filter(dsl::job.eq(self.job.0).and(dsl::first.le(path.as_str())))
            .order(dsl::first.desc())
            .select(COLUMNS)
            .one()
            .get_result(self.connection)
            .optional()?;
        if at_or_before.is_some() {
            return at_or_before.map(chunk).transpose();
        }
        let first: Option<ChunkRow> = dsl::manifest_chunk
            .filter(dsl::job.eq(self.job.0))
            .order(dsl::first)
            .select(COLUMNS)
            .one()
            .get_result(self.connection)
            .optional()?;
        first.map(chunk).transpose()
    }

    fn behind(&mut self, first: &RecordPath) -> Act<Option<Chunk>> {
        use manifest_chunk::dsl;
        let row: Option<ChunkRow> = dsl::manifest_chunk
            .filter(dsl::job.eq(self.job.0).and(dsl::first.gt(first.as_str())))
            .order(dsl::first)
            .select(COLUMNS)
            .one()
            .get_result(self.connection)
            .optional()?;
        row.map(chunk).transpose()
    }

    fn replace(&mut self, old: &[Chunk], new: &[Chunk]) -> Act<()> {
        use manifest_chunk::dsl;
        let job = self.job.0;
        let of = |chunk: &Chunk| dsl::manifest_chunk.filter(dsl::job.eq(job).and(dsl::first.eq(chunk.first.as_str().to_owned())));
        for chunk in old.iter().filter(|old| !new.iter().any(|new| new.first == old.first)) {
            diesel::delete(of(chunk)).execute(self.connection)?;
        }
        for chunk in new {
            if old.iter().any(|old| old.first == chunk.first) {
                let (first, entries) = (chunk.first.as_str(), i64::from(chunk.entries));
                KeepChunk { job, first, entries, bytes: &chunk.bytes }.execute(self.connection)?;
            } else {
                self.insert(chunk)?;
            }
        }
        Ok(())
    }
}
