//! A chunk's bytes: a version; the digest of the first path, which is the chunk's key; then for each further entry its front-coded path and digest.

use super::front::{Broken, Reader, Writer};
use super::{Chunk, MAX_ENTRIES, ManifestError};
use crate::repo::Link;
use crate::syntax::{RecordPath, RecordPathRef};

const VERSION: u8 = 1;
/// Room for a full chunk of paths with TIDs, so that building one seldom grows its bytes.
const USUAL_BYTES: usize = 12 * 1024;

/// Makes chunks of rising paths. Allocates once for each chunk, not for each entry.
#[derive(Debug)]
pub struct Builder {
    limit: u32,
    first: Option<RecordPath>,
    entries: u32,
    bytes: Vec<u8>,
    paths: Writer,
}

impl Default for Builder {
    fn default() -> Self {
        Self::with_limit(MAX_ENTRIES)
    }
}

impl Builder {
    /// Makes chunks of `limit` entries, 1 to 256 (others are taken as the nearest of these).
    pub fn with_limit(limit: u32) -> Self {
        Self { limit: limit.clamp(1, MAX_ENTRIES), first: None, entries: 0, bytes: Vec::new(), paths: Writer::default() }
    }

    /// Adds an entry; gives the chunk that is full with it.
    ///
    /// # Errors
    /// [`ManifestError::OutOfOrder`] when the path does not come after the one before it; the entry is not added.
    pub fn push(&mut self, path: RecordPathRef<'_>, cid: Link) -> Result<Option<Chunk>, ManifestError> {
        let text = path.as_str();
        if text <= self.paths.before() {
            return Err(ManifestError::OutOfOrder { path: text.to_owned() });
        }
        if self.first.is_none() {
            self.first = Some(path.to_owned());
            self.bytes = Vec::with_capacity(USUAL_BYTES.min(self.limit as usize * 64));
            self.bytes.push(VERSION);
            self.paths.restart(text);
        } else {
            self.paths.put(&mut self.bytes, text);
        }
        self.bytes.extend_from_slice(cid.digest());
        self.entries += 1;
        Ok(if self.entries == self.limit { self.finish() } else { None })
    }

    /// The chunk of what was added since the last one, if anything. The next path must still come after the last.
    pub fn finish(&mut self) -> Option<Chunk> {
        let first = self.first.take()?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.shrink_to_fit();
        Some(Chunk { first, entries: std::mem::take(&mut self.entries), bytes })
    }
}

/// Reads the entries of one chunk in order.
#[derive(Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    cursor: Cursor,
}

impl Chunk {
    /// Its entries.
    pub fn read(&self) -> Entries<'_> {
        Entries { bytes: &self.bytes, cursor: Cursor::at(self) }
    }
}

impl Entries<'_> {
    /// The next entry, or none behind the last one. The path is lent until the next call.
    ///
    /// # Errors
    /// When the chunk is not what [`Builder`] writes.
    pub fn entry(&mut self) -> Result<Option<(RecordPathRef<'_>, Link)>, ManifestError> {
        let link = self.cursor.step(self.bytes)?;
        Ok(link.map(|link| (self.cursor.path(), link)))
    }
}

/// A place within a chunk; reads on from the bytes it is given, which are always those of that chunk.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    at: usize,
    read: u32,
    entries: u32,
    paths: Reader,
}

impl Cursor {
    pub(super) fn at(chunk: &Chunk) -> Self {
        let mut cursor = Self::default();
        cursor.restart(chunk);
        cursor
    }

    pub(super) fn restart(&mut self, chunk: &Chunk) {
        (self.at, self.read, self.entries) = (0, 0, chunk.entries);
        self.paths.restart(chunk.first.as_ref());
    }

    /// The path of the entry read last.
    pub(super) fn path(&self) -> RecordPathRef<'_> {
        self.paths.path()
    }

    /// The same as text; empty when none was read ever.
    pub(super) fn text(&self) -> &str {
        self.paths.text()
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Option<Link>, ManifestError> {
        let mut rest = bytes.get(self.at..).unwrap_or_default();
        if self.read == self.entries {
            return if rest.is_empty() { Ok(None) } else { Err(ManifestError::Trailing { bytes: rest.len() }) };
        }
        let cut = ManifestError::Cut { entry: self.read };
        if self.read == 0 {
            self.check_head(&mut rest)?;
        } else {
            self.paths.take(&mut rest).map_err(|broken| match broken {
                Broken::Cut => cut.clone(),
                Broken::Path => ManifestError::Path { entry: self.read },
            })?;
        }
        let (digest, rest) = rest.split_first_chunk::<32>().ok_or(cut)?;
        self.at = bytes.len() - rest.len();
        self.read += 1;
        Ok(Some(Link::from_digest(*digest)))
    }

    fn check_head(&self, rest: &mut &[u8]) -> Result<(), ManifestError> {
        if self.entries > MAX_ENTRIES {
            return Err(ManifestError::Count { found: self.entries });
        }
        let (&version, tail) = rest.split_first().ok_or(ManifestError::Cut { entry: 0 })?;
        *rest = tail;
        if version == VERSION { Ok(()) } else { Err(ManifestError::Version { found: version }) }
    }
}
