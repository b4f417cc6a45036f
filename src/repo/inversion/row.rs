use super::InversionError;
use crate::repo::mst::{LoadError, MAX_HEIGHT, MAX_KEY, Node, StubReached, key_height};
use crate::repo::{Link, TreeFault};

/// A tree as the row of its keys in their order, and in their places the subtrees that were not looked into.
pub(super) struct Row<'l, F> {
    block: &'l F,
    items: Vec<Item>,
    /// The bytes of all keys.
    keys: Vec<u8>,
    /// Room for reading nodes.
    node: Node,
    opened: Vec<Item>,
}

/// A key, or a subtree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Where the key lies; empty for a subtree, because no key is.
    start: u32,
    len: u32,
    /// The height of the node that has the key, or of the root of the subtree.
    pub(super) height: u8,
    /// The record, or the subtree.
    pub(super) link: Link,
}

impl Item {
    fn subtree(link: Link, height: u8) -> Self {
        Self { start: 0, len: 0, height, link }
    }

    pub(super) fn is_subtree(&self) -> bool {
        self.len == 0
    }

    pub(super) fn key<'k>(&self, keys: &'k [u8]) -> &'k [u8] {
        keys.get(self.start as usize..(self.start + self.len) as usize).unwrap_or_default()
    }
}

impl<'b, F: Fn(&Link) -> Option<&'b [u8]>> Row<'_, F> {
    /// The tree with a root, of which the root is looked into.
    pub(super) fn new(root: Link, block: &F) -> Result<Row<'_, F>, InversionError> {
        let mut row =
            Row { block, items: Vec::with_capacity(64), keys: Vec::with_capacity(2048), node: Node::default(), opened: Vec::new() };
        let bytes = block(&root).ok_or(StubReached(root))?;
        row.decode(root, bytes)?;
        let broken = |fault| Err(LoadError::Tree { link: root, fault }.into());
        let height = match row.node.entries().first() {
            Some(first) => key_height(first.suffix(bytes)),
            None if row.node.left(bytes).is_some() => return broken(TreeFault::BareRoot),
            None => return Ok(row),
        };
        if height > MAX_HEIGHT {
            return broken(TreeFault::Height(height as u8));
        }
        row.items.push(Item::subtree(root, height as u8));
        row.open(0)?;
        Ok(row)
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(super) fn keys(&self) -> &[u8] {
        &self.keys
    }

    /// The record of a key and the height of its node. Looks into every subtree in which the key would be.
    pub(super) fn find(&mut self, key: &[u8]) -> Result<Option<(Link, u8)>, InversionError> {
        loop {
            let at = self.place(key);
            if let Some(item) = self.items.get(at).filter(|item| item.key(&self.keys) == key) {
                return Ok(Some((item.link, item.height)));
            }
            match at.checked_sub(1).filter(|before| self.items.get(*before).is_some_and(Item::is_subtree)) {
                Some(subtree) => self.open(subtree)?,
                None => return Ok(None),
            }
        }
    }

    /// Where the first key is that is not less than this one. A subtree before it may hold such keys as well.
    fn place(&self, key: &[u8]) -> usize {
        let is_less = |at: usize| match self.items.get(..=at).and_then(|items| items.iter().rfind(|item| !item.is_subtree())) {
            Some(item) => item.key(&self.keys) < key,
            None => true,
        };
        let (mut low, mut high) = (0, self.items.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_less(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Gives a key that was found another record.
    pub(super) fn replace(&mut self, key: &[u8], record: Link) {
        let at = self.place(key);
        if let Some(item) = self.items.get_mut(at) {
            item.link = record;
        }
    }

    /// Puts a key that was not found into its place.
    pub(super) fn insert(&mut self, key: &[u8], record: Link) {
        let at = self.place(key);
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.items.insert(at, Item { start, len: key.len() as u32, height: key_height(key) as u8, link: record });
    }

    /// Takes out a key that was found.
    pub(super) fn remove(&mut self, key: &[u8]) {
        let at = self.place(key);
        if at < self.items.len() {
            self.items.remove(at);
        }
    }

    /// Looks into every subtree that is a subtree no more: in a tree, both neighbours of one are keys above it.
    pub(super) fn open_what_merges(&mut self) -> Result<(), InversionError> {
        let mut at = 0;
        while let Some(item) = self.items.get(at) {
            let neighbours = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|beside| self.items.get(beside));
            // Of two subtrees side by side, the lower one may remain.
            let merges = |beside: &Item| beside.height <= item.height;
            if item.is_subtree() && neighbours.into_iter().any(merges) {
                self.open(at)?;
                at = at.saturating_sub(1);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Looks into the subtree that alone is left, as long as it may have no keys of its own and so be no root.
    pub(super) fn open_what_is_left(&mut self) -> Result<(), InversionError> {
        while let [item] = self.items[..]
            && item.is_subtree()
        {
            match self.open(0) {
                Err(InversionError::Insufficient(StubReached(link))) => return Err(InversionError::Unseen(link)),
                opened => opened?,
            }
        }
        Ok(())
    }

    fn decode(&mut self, link: Link, block: &[u8]) -> Result<(), InversionError> {
        self.node.decode(block).map_err(|fault| LoadError::Node { link, fault }.into())
    }

    /// Puts what is in the root of a subtree in its place.
    fn open(&mut self, at: usize) -> Result<(), InversionError> {
        let Some(Item { link, height, .. }) = self.items.get(at).copied() else { return Ok(()) };
        let block = (self.block)(&link).ok_or(StubReached(link))?;
        self.decode(link, block)?;
        let broken = |fault| InversionError::from(LoadError::Tree { link, fault });
        let below = |child: Link| height.checked_sub(1).map(|height| Item::subtree(child, height)).ok_or(broken(TreeFault::BelowZero));
        self.opened.clear();
        if let Some(left) = self.node.left(block) {
            self.opened.push(below(left)?);
        }
        let mut before = 0..0;
        for entry in self.node.entries() {
            let start = self.keys.len();
            push_key(&mut self.keys, before, entry.prefix as usize, entry.suffix(block)).map_err(broken)?;
            before = start..self.keys.len();
            let value = entry.value(block).ok_or(LoadError::Value(link))?;
            self.opened.push(Item { start: start as u32, len: before.len() as u32, height, link: value });
            if let Some(right) = entry.tree(block) {
                self.opened.push(below(right)?);
            }
        }
        if self.opened.is_empty() {
            return Err(broken(TreeFault::EmptyNode));
        }
        self.check_place(at).map_err(broken)?;
        self.items.splice(at..=at, self.opened.drain(..));
        Ok(())
    }

    /// Checks that the keys of an opened node are between those beside its place.
    fn check_place(&self, at: usize) -> Result<(), TreeFault> {
        let beside = |place: Option<usize>| place.and_then(|place| self.items.get(place)).filter(|item| !item.is_subtree());
        let mut keys = self.opened.iter().filter(|item| !item.is_subtree());
        let Some(first) = keys.next() else { return Ok(()) };
        let last = keys.next_back().unwrap_or(first);
        let after = beside(at.checked_sub(1)).is_none_or(|before| before.key(&self.keys) < first.key(&self.keys));
        let before = beside(Some(at + 1)).is_none_or(|after| last.key(&self.keys) < after.key(&self.keys));
        if after && before { Ok(()) } else { Err(TreeFault::Order) }
    }
}

/// Appends the key that shares `prefix` bytes with the one before it in its node, which lies at `before`, and must come after it.
fn push_key(keys: &mut Vec<u8>, before: std::ops::Range<usize>, prefix: usize, suffix: &[u8]) -> Result<(), TreeFault> {
    if prefix > before.len() {
        return Err(TreeFault::Prefix);
    }
    match prefix + suffix.len() {
        0 => return Err(TreeFault::EmptyKey),
        len if len > MAX_KEY => return Err(TreeFault::LongKey(len)),
        _ => {}
    }
    // The first byte that is not shared tells whether the prefix is all that is, and which of the keys is the greater.
    let next = (prefix < before.len()).then(|| keys.get(before.start + prefix)).flatten();
    match (next, suffix.first()) {
        (Some(old), Some(new)) if old == new => return Err(TreeFault::Prefix),
        (Some(old), Some(new)) if old > new => return Err(TreeFault::Order),
        (_, None) => return Err(TreeFault::Order),
        (Some(_) | None, Some(_)) => {}
    }
    keys.extend_from_within(before.start..before.start + prefix);
    keys.extend_from_slice(suffix);
    Ok(())
}
