//! Building a whole tree at once.

use super::key_height;
use super::tree::{Child, Entry, Node, Tree};
use crate::repo::Link;

impl<K: Into<Box<[u8]>>> FromIterator<(K, Link)> for Tree {
    /// The tree of these records, given in any order; of a key given twice, the last value counts. Linear in time when the keys are sorted.
    fn from_iter<I: IntoIterator<Item = (K, Link)>>(records: I) -> Self {
        let mut records: Vec<(Box<[u8]>, Link)> = records.into_iter().map(|(key, value)| (key.into(), value)).collect();
        if !records.is_sorted_by(|one, next| one.0 < next.0) {
            records.sort_by(|one, other| one.0.cmp(&other.0));
            // The sort is stable, so the last of equal keys is the last given; `dedup_by` keeps the first, hence the swap.
            records.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    kept.1 = later.1;
                }
                same
            });
        }
        let mut spine = Spine::default();
        for (key, value) in records {
            spine.push(key, value);
        }
        spine.finish()
    }
}

/// The right edge of a tree under construction: at each height the node whose last slot is still open.
#[derive(Default)]
struct Spine {
    open: Vec<Node>,
}

impl Spine {
    /// Adds a key that is greater than all before.
    fn push(&mut self, key: Box<[u8]>, value: Link) {
        let height = key_height(&key) as usize;
        if self.open.len() <= height {
            self.open.resize_with(height + 1, Node::default);
        }
        self.close_below(height);
        self.open[height].entries.push(Entry { key, value, right: None });
    }

    /// Closes the nodes below a height and hangs the last of them into the open slot there.
    fn close_below(&mut self, height: usize) {
        for level in 0..height {
            let closed = std::mem::take(&mut self.open[level]);
            if !closed.is_empty() {
                let above = &mut self.open[level + 1];
                let last = above.entries.len();
                // That slot is free: it is filled only here, and everything below it was closed at that time.
                *above.slot_mut(last) = Some(Child::new(closed));
            }
        }
    }

    fn finish(mut self) -> Tree {
        let Some(top) = self.open.len().checked_sub(1) else { return Tree::new() };
        self.close_below(top);
        let root = self.open.pop().unwrap_or_default();
        Tree { root: Child::new(root), height: top as u32, replaced: Vec::new() }
    }
}
