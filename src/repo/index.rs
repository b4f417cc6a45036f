//! Where the blocks of a repo lie, by CID: 16 bytes a slot, at most four slots in five taken.

use std::hash::{BuildHasher, RandomState};

use super::Link;

/// Where a block lies in the spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The address of its first byte, below 2^40.
    pub(crate) at: u64,
    /// Its length in bytes, below 2^24.
    pub(crate) len: u32,
}

impl Extent {
    /// Bytes of CID that lie before every block in the spool.
    pub(crate) const CID: u64 = 36;

    /// The length of the block in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty block has a length like any other")]
    pub fn len(self) -> u32 {
        self.len
    }

    fn pack(self) -> u64 {
        self.at << 24 | u64::from(self.len)
    }

    fn unpack(packed: u64) -> Self {
        Self { at: packed >> 24, len: (packed & 0xff_ffff) as u32 }
    }
}

/// Turns a CID into 64 bits that nobody who does not know the key can aim at.
///
/// Whoever makes the repo chooses its blocks, and could choose them so that parts of their hashes are equal, to slow the index down or to
/// have one block taken for another. The key is new for every checkout. Two CIDs of a repo of a million blocks have the same tag
/// with a probability of 1 in 10 million; it is found when the block is read, and another checkout heals it.
#[derive(Clone, Copy)]
pub(super) struct TagKey([u64; 4]);

impl TagKey {
    pub(super) fn random() -> Self {
        let source = RandomState::new();
        Self([1, 2, 3, 4].map(|i: u64| source.hash_one(i)))
    }

    /// The tag of a CID; never 0.
    pub(super) fn tag(&self, link: &Link) -> u64 {
        let (words, _) = link.digest().as_chunks::<8>();
        let word = |i: usize| words.get(i).map_or(0, |word| u64::from_le_bytes(*word)) ^ self.0[i];
        (fold(word(0), word(1)) ^ fold(word(2), word(3))) | 1
    }
}

/// The product of two numbers, both halves mixed.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

impl std::fmt::Debug for TagKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TagKey(secret)")
    }
}

/// An open-addressed table from tags to extents. A slot's place follows from its tag's rank among all tags, so that growing reads and writes in order.
#[derive(Debug)]
pub(super) struct Index {
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// 0 in an empty slot.
    tag: u64,
    extent: u64,
}

impl Index {
    /// Slots after the first insertion.
    const FIRST: usize = 64;

    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }

    /// How many slots there are; every slot number is below.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Adds a block. A tag that is known already keeps its first extent; answers whether it was new.
    pub(super) fn insert(&mut self, tag: u64, extent: Extent) -> bool {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.grow();
        }
        let slot = Slot { tag, extent: extent.pack() };
        let new = place(&mut self.slots, slot);
        self.len += usize::from(new);
        new
    }

    /// The slot number and the extent of a block.
    pub(super) fn find(&self, tag: u64) -> Option<(usize, Extent)> {
        let mut at = home(tag, self.slots.len());
        loop {
            let slot = self.slots.get(at)?;
            if slot.tag == tag {
                return Some((at, Extent::unpack(slot.extent)));
            }
            if slot.tag == 0 {
                return None;
            }
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
    }

    /// Brings the slots where the search for these tags begins into the processor's cache. None depends on another, so they come together.
    pub(super) fn warm(&self, tags: impl Iterator<Item = u64>) {
        let touched = tags.map(|tag| self.slots.get(home(tag, self.slots.len())).map_or(0, |slot| slot.tag));
        std::hint::black_box(touched.fold(0, |all, tag| all ^ tag));
    }

    fn grow(&mut self) {
        let mut slots = vec![Slot::default(); (self.slots.len() * 7 / 4).max(Self::FIRST)];
        for slot in self.slots.iter().filter(|slot| slot.tag != 0) {
            place(&mut slots, *slot);
        }
        self.slots = slots;
    }
}

/// The slot where the search for a tag begins.
fn home(tag: u64, slots: usize) -> usize {
    ((u128::from(tag) * slots as u128) >> 64) as usize
}

/// Puts a slot into a table that has room; `false` when its tag is there already.
fn place(slots: &mut [Slot], new: Slot) -> bool {
    let len = slots.len();
    let mut at = home(new.tag, len);
    while let Some(slot) = slots.get_mut(at) {
        if slot.tag == 0 {
            *slot = new;
            return true;
        }
        if slot.tag == new.tag {
            return false;
        }
        at = if at + 1 == len { 0 } else { at + 1 };
    }
    false
}
