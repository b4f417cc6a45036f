//! Edits that keep the tree in its one canonical shape.

use std::sync::Arc;

use super::tree::{Child, Entry, Node, StubReached, Tree};
use crate::repo::Link;

impl Tree {
    /// Puts nodes on top until the root is as high as a key needs it.
    pub(super) fn grow_to(&mut self, height: u32) {
        if matches!(&self.root, Child::Node(root) if root.is_empty()) {
            self.height = height;
        }
        while self.height < height {
            let below = std::mem::replace(&mut self.root, Child::Node(Arc::default()));
            self.root = Child::new(Node { left: Some(below), ..Node::default() });
            self.height += 1;
        }
    }

    /// Takes nodes off the top that have a subtree but no entries.
    pub(super) fn trim(&mut self) {
        while let Child::Node(root) = &self.root
            && root.entries.is_empty()
        {
            let Some(below) = root.left.clone() else {
                self.height = 0;
                return;
            };
            self.replaced.extend(root.link);
            self.root = below;
            self.height -= 1;
        }
    }
}

impl Child {
    pub(super) fn new(node: Node) -> Self {
        Self::Node(Arc::new(node))
    }

    /// The node for changing it: copied if a clone of the tree shares it, and no longer sealed.
    fn touch(&mut self, replaced: &mut Vec<Link>) -> Result<&mut Node, StubReached> {
        match self {
            Self::Node(node) => {
                let node = Arc::make_mut(node);
                replaced.extend(node.link.take());
                Ok(node)
            }
            Self::Stub(link) => Err(StubReached(**link)),
        }
    }

    /// The node for taking it apart.
    fn take(self, replaced: &mut Vec<Link>) -> Result<Node, StubReached> {
        match self {
            Self::Node(node) => {
                let mut node = Arc::unwrap_or_clone(node);
                replaced.extend(node.link.take());
                Ok(node)
            }
            Self::Stub(link) => Err(StubReached(*link)),
        }
    }

    /// Sets a key of height `key_height` in this subtree, whose root has height `height`.
    pub(super) fn insert(
        &mut self,
        height: u32,
        key_height: u32,
        key: &[u8],
        value: Link,
        replaced: &mut Vec<Link>,
    ) -> Result<Option<Link>, StubReached> {
        let node = self.touch(replaced)?;
        let slot = match node.search(key) {
            Ok(found) => return Ok(Some(std::mem::replace(&mut node.entries[found].value, value))),
            Err(slot) => slot,
        };
        if height == key_height {
            let (before, after) = split(node.slot_mut(slot).take(), key, replaced)?;
            *node.slot_mut(slot) = before;
            node.entries.insert(slot, Entry { key: key.into(), value, right: after });
            return Ok(None);
        }
        match node.slot_mut(slot) {
            Some(below) => below.insert(height - 1, key_height, key, value, replaced),
            empty => {
                *empty = Some(Self::lone(height - 1, key_height, key, value));
                Ok(None)
            }
        }
    }

    /// A subtree of one key whose root has height `height`.
    fn lone(height: u32, key_height: u32, key: &[u8], value: Link) -> Self {
        let entry = Entry { key: key.into(), value, right: None };
        let mut subtree = Self::new(Node { entries: vec![entry], ..Node::default() });
        for _ in key_height..height {
            subtree = Self::new(Node { left: Some(subtree), ..Node::default() });
        }
        subtree
    }

    /// Removes a key from this subtree. The subtree may be left empty.
    pub(super) fn remove(&mut self, key: &[u8], replaced: &mut Vec<Link>) -> Result<Option<Link>, StubReached> {
        let node = self.touch(replaced)?;
        let slot = match node.search(key) {
            Ok(found) => {
                let Entry { value, right, .. } = node.entries.remove(found);
                let before = node.slot_mut(found).take();
                *node.slot_mut(found) = merge(before, right, replaced)?;
                return Ok(Some(value));
            }
            Err(slot) => node.slot_mut(slot),
        };
        let Some(below) = slot else { return Ok(None) };
        let removed = below.remove(key, replaced)?;
        if below.node()?.is_empty() {
            *slot = None;
        }
        Ok(removed)
    }
}

type Halves = (Option<Child>, Option<Child>);

/// Splits a subtree into what is before a key that it does not hold, and what is after.
fn split(subtree: Option<Child>, key: &[u8], replaced: &mut Vec<Link>) -> Result<Halves, StubReached> {
    let Some(subtree) = subtree else { return Ok((None, None)) };
    let mut before = subtree.take(replaced)?;
    let (Ok(slot) | Err(slot)) = before.search(key);
    let mut after = Node { entries: before.entries.split_off(slot), ..Node::default() };
    let (end, start) = split(before.slot_mut(slot).take(), key, replaced)?;
    *before.slot_mut(slot) = end;
    after.left = start;
    Ok((unless_empty(before), unless_empty(after)))
}

fn unless_empty(node: Node) -> Option<Child> {
    (!node.is_empty()).then(|| Child::new(node))
}

/// Joins two subtrees of one height, all keys of the first being before those of the second.
fn merge(before: Option<Child>, after: Option<Child>, replaced: &mut Vec<Link>) -> Result<Option<Child>, StubReached> {
    let (before, after) = match (before, after) {
        (Some(before), Some(after)) => (before, after),
        (one, other) => return Ok(one.or(other)),
    };
    let (mut joined, after) = (before.take(replaced)?, after.take(replaced)?);
    let last = joined.entries.len();
    let end = joined.slot_mut(last).take();
    *joined.slot_mut(last) = merge(end, after.left, replaced)?;
    joined.entries.extend(after.entries);
    Ok(Some(Child::new(joined)))
}
