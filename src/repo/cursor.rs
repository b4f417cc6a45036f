use super::car::{self, Framing};
use super::storage::{SEGMENT, Storage};
use super::{CheckoutError, Extent, Link};

/// Reads the sections of a file one after the other, as they lie.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    segment: usize,
    /// Bytes of the segment that are behind.
    passed: usize,
    /// The segment, where it does not lie in memory, and whether it was read.
    buffer: Vec<u8>,
    loaded: bool,
}

impl Cursor {
    /// Passes over the next block that may belong to the repo: its CID and where it lies. None at the end.
    pub(super) fn next(&mut self, storage: &dyn Storage) -> Result<Option<(Link, Extent)>, CheckoutError> {
        while let Some(used) = self.find_segment(storage) {
            let start = (self.segment * SEGMENT) as u64;
            let bytes = match storage.slice(start, used) {
                Some(bytes) => bytes,
                None => {
                    self.load(storage, start, used)?;
                    &self.buffer
                }
            };
            let rest = bytes.get(self.passed..).unwrap_or_default();
            let Framing::Whole(section) = car::section(rest, start)? else { return Ok(None) };
            let at = start + (self.passed + section.block) as u64;
            self.passed += section.end;
            if let Some(digest) = rest.get(..section.block).and_then(<[u8]>::last_chunk).filter(|_| section.related) {
                return Ok(Some((Link::from_digest(*digest), Extent { at, len: (section.end - section.block) as u32 })));
            }
        }
        Ok(None)
    }

    /// Goes on to the segment that the next section lies in; answers how many bytes of it are used.
    fn find_segment(&mut self, storage: &dyn Storage) -> Option<usize> {
        loop {
            let used = storage.used(self.segment)?;
            if self.passed < used {
                return Some(used);
            }
            (self.segment, self.passed, self.loaded) = (self.segment + 1, 0, false);
        }
    }

    fn load(&mut self, storage: &dyn Storage, start: u64, used: usize) -> Result<(), CheckoutError> {
        if !self.loaded {
            self.buffer.resize(used, 0);
            storage.read(start, &mut self.buffer).map_err(CheckoutError::local("read the spooled repo"))?;
            self.loaded = true;
        }
        Ok(())
    }
}
