use super::Leaves;
use crate::repo::storage::Storage;
use crate::repo::{CheckoutError, Extent, Link};

/// The bytes of records, one behind the other. Made to be used again.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    /// Where each record begins and ends.
    ranges: Vec<(usize, usize)>,
    order: Vec<Wanted>,
    run: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Wanted {
    extent: Extent,
    link: Link,
    place: u32,
}

/// Unwanted bytes between two records that are rather read along than skipped with another read.
const GAP: u64 = 16 << 10;

/// The most that is read at once, in bytes.
const RUN: u64 = 1 << 20;

impl Records {
    /// No records.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The DAG-CBOR of a record, whose hash is that of its CID.
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        let (start, end) = *self.ranges.get(position)?;
        self.bytes.get(start..end)
    }

    /// The records in the order in which they were asked for.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ranges.iter().map(|(start, end)| &self.bytes[*start..*end])
    }

    pub(super) fn load(&mut self, storage: &dyn Storage, leaves: &Leaves, wanted: &[u32]) -> Result<(), CheckoutError> {
        self.bytes.clear();
        self.ranges.clear();
        self.order.clear();
        for (place, position) in wanted.iter().enumerate() {
            let Some((link, extent)) = leaves.block(*position) else { continue };
            self.ranges.push((0, 0));
            let (at, len) = (extent.at - Extent::CID, (Extent::CID + u64::from(extent.len)) as usize);
            match storage.slice(at, len) {
                Some(section) => self.put(place, &link, section)?,
                None => self.order.push(Wanted { extent, link, place: place as u32 }),
            }
        }
        self.load_runs(storage)
    }

    /// Reads what does not lie in memory, in the order of the file, neighbours together.
    fn load_runs(&mut self, storage: &dyn Storage) -> Result<(), CheckoutError> {
        let mut order = std::mem::take(&mut self.order);
        let mut run = std::mem::take(&mut self.run);
        order.sort_unstable_by_key(|wanted| wanted.extent);
        let mut rest = order.as_slice();
        while let Some(first) = rest.first() {
            let start = first.extent.at - Extent::CID;
            let mut end = start;
            let joins = |wanted: &&Wanted, end: u64| {
                let to = wanted.extent.at + u64::from(wanted.extent.len);
                end == start || (wanted.extent.at <= end + GAP && to <= start + RUN)
            };
            let mut count = 0;
            while let Some(next) = rest.get(count).filter(|next| joins(next, end)) {
                end = next.extent.at + u64::from(next.extent.len);
                count += 1;
            }
            run.resize((end - start) as usize, 0);
            storage.read(start, &mut run).map_err(CheckoutError::local("read the spooled repo"))?;
            for wanted in &rest[..count] {
                let from = (wanted.extent.at - Extent::CID - start) as usize;
                let to = from + Extent::CID as usize + wanted.extent.len as usize;
                self.put(wanted.place as usize, &wanted.link, &run[from..to])?;
            }
            rest = &rest[count..];
        }
        (self.order, self.run) = (order, run);
        Ok(())
    }

    /// Puts a record into its place; `section` is its CID and its bytes.
    fn put(&mut self, place: usize, link: &Link, section: &[u8]) -> Result<(), CheckoutError> {
        let record = section.strip_prefix(&link.to_bytes()).ok_or(CheckoutError::MissingNode { link: *link })?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record);
        if let Some(range) = self.ranges.get_mut(place) {
            *range = (start, self.bytes.len());
        }
        Ok(())
    }
}
