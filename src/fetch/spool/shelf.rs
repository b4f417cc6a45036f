use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::budget::Share;
use crate::repo::{CheckoutError, SEGMENT, Storage};

/// Where finished segments are put: in memory as long as limit and budget allow, then all of them in a temporary file.
#[derive(Debug)]
pub(super) struct Shelf {
    place: Place,
    /// Bytes used of each segment; 0 for those that a long section takes up.
    used: Vec<u32>,
    share: Share,
    memory_limit: u64,
    directory: Option<PathBuf>,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<Vec<u8>>),
    /// Every byte at its address. The file has no name and vanishes when it is closed, however the process ends.
    File(File),
}

impl Shelf {
    pub(super) fn new(share: Share, memory_limit: u64, directory: Option<PathBuf>) -> Self {
        Self { place: Place::Memory(Vec::new()), used: Vec::new(), share, memory_limit, directory }
    }

    /// Whether the segments lie in a file.
    pub(super) fn is_on_disk(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    /// A buffer for the next segment.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.share.budget().buffer()
    }

    /// Puts a segment at its address; segments come in order.
    pub(super) fn put(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), CheckoutError> {
        let len = bytes.len();
        let fits = |share: &mut Share, limit| share.bytes() + len as u64 <= limit && share.grow(len as u64);
        if !self.is_on_disk() && !fits(&mut self.share, self.memory_limit) {
            self.spill()?;
        }
        let segment = (at / SEGMENT as u64) as usize;
        self.used.resize(segment, 0);
        self.used.push(len as u32);
        match &mut self.place {
            Place::Memory(segments) => {
                segments.resize(segment, Vec::new());
                segments.push(bytes);
            }
            Place::File(file) => {
                write_at(file, at, &bytes).map_err(CheckoutError::local("write to the spool file"))?;
                self.share.budget().recycle([bytes].into_iter());
            }
        }
        Ok(())
    }

    /// Moves everything to a file.
    fn spill(&mut self) -> Result<(), CheckoutError> {
        let file = match &self.directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        };
        let file = file.map_err(CheckoutError::local("create the spool file"))?;
        if let Place::Memory(segments) = &self.place {
            for (i, segment) in segments.iter().enumerate() {
                write_at(&file, (i * SEGMENT) as u64, segment).map_err(CheckoutError::local("write to the spool file"))?;
            }
        }
        self.recycle();
        self.place = Place::File(file);
        self.share.release();
        Ok(())
    }

    fn recycle(&mut self) {
        if let Place::Memory(segments) = &mut self.place {
            self.share.budget().recycle(segments.drain(..));
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.recycle();
    }
}

impl Storage for Shelf {
    fn slice(&self, at: u64, len: usize) -> Option<&[u8]> {
        let Place::Memory(segments) = &self.place else { return None };
        let start = at as usize % SEGMENT;
        segments.get(at as usize / SEGMENT)?.get(start..start + len)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        match (&self.place, self.slice(at, into.len())) {
            (Place::File(file), _) => read_at(file, at, into),
            (Place::Memory(_), Some(slice)) => {
                into.copy_from_slice(slice);
                Ok(())
            }
            (Place::Memory(_), None) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn used(&self, segment: usize) -> Option<usize> {
        self.used.get(segment).map(|used| *used as usize)
    }
}

#[cfg(unix)]
fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(unix)]
fn read_at(file: &File, at: u64, into: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(windows)]
fn write_at(mut file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}

#[cfg(windows)]
fn read_at(file: &File, mut at: u64, mut into: &mut [u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !into.is_empty() {
        match file.seek_read(into, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => (at, into) = (at + read as u64, &mut into[read..]),
        }
    }
    Ok(())
}
