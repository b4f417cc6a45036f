use crate::repo::mst::key_height;
use crate::repo::{CheckoutError, Extent, Link, TreeFault};
use crate::syntax::{RecordKey, RecordPathRef};

/// A batch of records in key order: paths and CIDs, no bytes. Made to be used again for batch after batch, so that a record costs no allocation.
#[derive(Debug, Default)]
pub struct Leaves {
    paths: String,
    entries: Vec<Entry>,
    dropped: Vec<DroppedLeaf>,
}

#[derive(Debug)]
struct Entry {
    path_end: usize,
    link: Link,
    /// None until the block was looked up.
    extent: Option<Extent>,
    layer: u8,
}

/// A record of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Where.
    pub path: RecordPathRef<'a>,
    /// The CID of its bytes.
    pub link: Link,
    /// How many bytes it has.
    pub len: u32,
}

/// A record that is left out, alone, because it cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedLeaf {
    /// Its key in the tree, lossily as text.
    pub key: String,
    /// Why.
    pub fault: LeafFault,
}

/// Why a record of the tree is left out. None of it fails the repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum LeafFault {
    /// The key is not a collection, one slash and a record key.
    #[error("its key is not a record path")]
    Path,
    /// The link is not a CIDv1 of DAG-CBOR and SHA-256, so its bytes cannot be proven.
    #[error("its link is a kind of CID that is not allowed")]
    Link,
    /// The record is longer than any record may be.
    #[error("it has {0} bytes")]
    Length(u32),
}

impl Leaves {
    /// The longest record handed out, in bytes: what the data model asks parsers to accept at least.
    pub const MAX_RECORD: u32 = 1 << 20;

    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The records left out of this batch.
    pub fn dropped(&self) -> &[DroppedLeaf] {
        &self.dropped
    }

    /// One record by its position.
    pub fn get(&self, position: usize) -> Option<Leaf<'_>> {
        let entry = self.entries.get(position)?;
        let start = position.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(0, |before| before.path_end);
        Some(Leaf {
            path: RecordPathRef::assume_valid(&self.paths[start..entry.path_end]),
            link: entry.link,
            len: entry.extent.map_or(0, Extent::len),
        })
    }

    /// The records in key order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Leaf<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let path = RecordPathRef::assume_valid(&self.paths[start..entry.path_end]);
            start = entry.path_end;
            Leaf { path, link: entry.link, len: entry.extent.map_or(0, Extent::len) }
        })
    }

    /// How many keys of the tree the batch covers.
    pub(super) fn seen(&self) -> usize {
        self.entries.len() + self.dropped.len()
    }

    pub(super) fn clear(&mut self) {
        self.paths.clear();
        self.entries.clear();
        self.dropped.clear();
    }

    /// Takes the next key of the tree, its record's link (none when it is of a kind that is not allowed), the layer of its node, and where the
    /// record lies, if that is known.
    pub(super) fn push(&mut self, key: &[u8], link: Option<Link>, layer: u8, extent: Option<Extent>) -> Result<(), CheckoutError> {
        let fault = match (self.path(key), link) {
            (Some(path), Some(link)) => {
                self.paths.push_str(path);
                self.entries.push(Entry { path_end: self.paths.len(), link, extent, layer });
                return Ok(());
            }
            (Some(_), None) => LeafFault::Link,
            (None, _) => LeafFault::Path,
        };
        let belongs = key_height(key) as u8;
        if belongs != layer {
            let link = link.unwrap_or(Link::from_digest([0; 32]));
            return Err(CheckoutError::tree(link, key, TreeFault::Layer { key: belongs, node: layer }));
        }
        self.dropped.push(DroppedLeaf { key: String::from_utf8_lossy(key).into_owned(), fault });
        Ok(())
    }

    /// The key as a path, if it is one. Most keys are of the same collection as the one before, which then needs no second look.
    fn path<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        let before = self.entries.len().checked_sub(2).and_then(|last| self.entries.get(last)).map_or(0, |entry| entry.path_end);
        let collection = self.paths[before..].split_inclusive('/').next().unwrap_or_default();
        match key.strip_prefix(collection.as_bytes()) {
            Some(record_key) if !collection.is_empty() && RecordKey::is_valid(record_key) => std::str::from_utf8(key).ok(),
            _ => RecordPathRef::new(key).ok().map(RecordPathRef::as_str),
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = &Link> {
        self.entries.iter().map(|entry| &entry.link)
    }

    pub(super) fn set_extent(&mut self, position: usize, extent: Extent) {
        if let Some(entry) = self.entries.get_mut(position) {
            entry.extent = Some(extent);
        }
    }

    /// The error that says that a record is not there.
    pub(super) fn missing(&self, position: usize) -> CheckoutError {
        let path = self.keys().nth(position).unwrap_or_default();
        let link = self.entries.get(position).map_or(Link::from_digest([0; 32]), |entry| entry.link);
        CheckoutError::MissingRecord { path: String::from_utf8_lossy(path).into_owned(), link }
    }

    /// Leaves out the records that are longer than any may be.
    pub(super) fn drop_long(&mut self) {
        let is_long = |entry: &Entry| entry.extent.is_some_and(|extent| extent.len > Self::MAX_RECORD);
        if !self.entries.iter().any(is_long) {
            return;
        }
        let (paths, entries) = (std::mem::take(&mut self.paths), std::mem::take(&mut self.entries));
        let mut start = 0;
        for entry in entries {
            let path = &paths[start..entry.path_end];
            start = entry.path_end;
            if is_long(&entry) {
                let fault = LeafFault::Length(entry.extent.map_or(0, Extent::len));
                self.dropped.push(DroppedLeaf { key: path.to_owned(), fault });
            } else {
                self.paths.push_str(path);
                self.entries.push(Entry { path_end: self.paths.len(), ..entry });
            }
        }
    }

    /// The keys in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let key = &self.paths.as_bytes()[start..entry.path_end];
            start = entry.path_end;
            key
        })
    }

    /// The layer of the node that a key lies in.
    pub(super) fn layer(&self, position: usize) -> u8 {
        self.entries[position].layer
    }

    /// The CID and the extent of a record.
    pub(super) fn block(&self, position: u32) -> Option<(Link, Extent)> {
        let entry = self.entries.get(position as usize)?;
        Some((entry.link, entry.extent?))
    }
}
