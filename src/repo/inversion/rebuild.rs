use super::InversionError;
use super::row::{Item, Row};
use crate::repo::emit::{self, Major};
use crate::repo::mst::{LoadError, common_prefix, key_height};
use crate::repo::{Link, TreeFault};

impl<'b, F: Fn(&Link) -> Option<&'b [u8]>> Row<'_, F> {
    /// The root of the one tree that the row makes. `data` is what a fault is told of.
    pub(super) fn rebuild(&self, data: Link) -> Result<Link, InversionError> {
        let mut builder = Builder { keys: self.keys(), data, out: Vec::with_capacity(4096) };
        let keys = self.items().iter().filter(|item| !item.is_subtree());
        // The first of the highest keys.
        let Some(top) = keys.reduce(|one, other| if other.height > one.height { other } else { one }) else {
            // A subtree that alone is left is the tree, and nothing at all is the tree of one empty node.
            return self.items().first().map_or_else(|| builder.node(&[], 0), |root| Ok(root.link));
        };
        // The layer of every node counts from the root's, and so do the layers that created keys were found on.
        let layer = key_height(top.key(self.keys()));
        if layer != u32::from(top.height) {
            return Err(builder.broken(TreeFault::Layer { key: layer as u8, node: top.height }));
        }
        builder.node(self.items(), top.height)
    }
}

struct Builder<'k> {
    keys: &'k [u8],
    data: Link,
    /// Blocks under way, each behind that of its parent.
    out: Vec<u8>,
}

impl Builder<'_> {
    fn broken(&self, fault: TreeFault) -> InversionError {
        LoadError::Tree { link: self.data, fault }.into()
    }

    /// The link of the node of a height that a stretch of the row makes.
    fn node(&mut self, items: &[Item], height: u8) -> Result<Link, InversionError> {
        let is_entry = |item: &&Item| item.height == height && !item.is_subtree();
        let start = self.out.len();
        emit::head(&mut self.out, Major::Map, 2);
        emit::text(&mut self.out, "e");
        emit::head(&mut self.out, Major::Array, items.iter().filter(is_entry).count() as u64);
        let mut stretches = items.split(|item| is_entry(&item));
        let left = self.child(stretches.next().unwrap_or_default(), height)?;
        let mut before: &[u8] = &[];
        for (entry, stretch) in items.iter().filter(is_entry).zip(stretches) {
            let right = self.child(stretch, height)?;
            let key = entry.key(self.keys);
            self.entry(before, key, &entry.link, right);
            before = key;
        }
        emit::text(&mut self.out, "l");
        emit::optional_link(&mut self.out, left.as_ref());
        let link = Link::of(self.out.get(start..).unwrap_or_default());
        self.out.truncate(start);
        Ok(link)
    }

    fn entry(&mut self, before: &[u8], key: &[u8], record: &Link, right: Option<Link>) {
        let shared = common_prefix(before, key);
        self.out.extend_from_slice(b"\xa4\x61k");
        emit::bytes(&mut self.out, key.get(shared..).unwrap_or_default());
        self.out.extend_from_slice(b"\x61p");
        emit::head(&mut self.out, Major::Unsigned, shared as u64);
        self.out.extend_from_slice(b"\x61t");
        emit::optional_link(&mut self.out, right.as_ref());
        self.out.extend_from_slice(b"\x61v");
        emit::link(&mut self.out, record);
    }

    /// The subtree that a stretch of the row makes below a node of a height.
    fn child(&mut self, items: &[Item], height: u8) -> Result<Option<Link>, InversionError> {
        match (items, height.checked_sub(1)) {
            ([], _) => Ok(None),
            ([subtree], Some(below)) if subtree.is_subtree() && subtree.height == below => Ok(Some(subtree.link)),
            (_, Some(below)) => self.node(items, below).map(Some),
            (_, None) => Err(self.broken(TreeFault::BelowZero)),
        }
    }
}
