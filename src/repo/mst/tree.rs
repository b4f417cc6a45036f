use std::collections::HashMap;
use std::sync::Arc;

use super::key_height;
use crate::repo::Link;

/// A tree in memory, to be edited.
///
/// Nodes are shared between clones and copied when written to, so a clone costs nothing and is a snapshot. An edit touches the nodes between
/// the root and its key; [`seal`](Self::seal) hashes what was touched since the last time and tells what became of it. A part of the tree may be a stub,
/// of which only the link is known: edits beside it work, edits inside it fail.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(super) root: Child,
    /// The height of the root; 0 for an empty tree.
    pub(super) height: u32,
    /// Links of the sealed nodes that edits have changed or dissolved since the last seal.
    pub(super) replaced: Vec<Link>,
}

/// A subtree.
#[derive(Clone, Debug)]
pub(super) enum Child {
    Node(Arc<Node>),
    /// Boxed, so that a child takes two words: a repo of a million records has as many slots for children.
    Stub(Box<Link>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The link of the node's block, known while the node is unchanged since a seal.
    pub(super) link: Option<Link>,
    /// The subtree before the first entry.
    pub(super) left: Option<Child>,
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Box<[u8]>,
    pub(super) value: Link,
    /// The subtree between this entry and the next.
    pub(super) right: Option<Child>,
}

/// An edit or a look-up needs a part of the tree that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tree node {0} is not there")]
pub struct StubReached(pub Link);

/// What a seal found: the root, and how the set of node blocks changed since the seal before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The link of the root, a commit's `data`.
    pub root: Link,
    /// The new nodes and their blocks, each before its children.
    pub created: Vec<(Link, Vec<u8>)>,
    /// The nodes that are no longer in the tree.
    pub removed: Vec<Link>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree. Its first seal creates the empty node.
    pub fn new() -> Self {
        Self { root: Child::Node(Arc::default()), height: 0, replaced: Vec::new() }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the key would be inside a stub.
    pub fn get(&self, key: &[u8]) -> Result<Option<Link>, StubReached> {
        let mut child = Some(&self.root);
        while let Some(subtree) = child {
            let node = subtree.node()?;
            child = match node.search(key) {
                Ok(found) => return Ok(Some(node.entries[found].value)),
                Err(slot) => node.slot(slot),
            };
        }
        Ok(None)
    }

    /// Sets the value of a key and returns the value it had.
    ///
    /// # Errors
    /// When the edit needs the inside of a stub. The tree is then half changed and of no use: keep a clone to go on from.
    pub fn insert(&mut self, key: &[u8], value: Link) -> Result<Option<Link>, StubReached> {
        let height = key_height(key);
        self.grow_to(height);
        let Self { root, height: root_height, replaced } = self;
        root.insert(*root_height, height, key, value, replaced)
    }

    /// Removes a key and returns the value it had.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn remove(&mut self, key: &[u8]) -> Result<Option<Link>, StubReached> {
        if self.get(key)?.is_none() {
            return Ok(None);
        }
        let removed = self.root.remove(key, &mut self.replaced)?;
        self.trim();
        Ok(removed)
    }

    /// Hashes what changed since the last seal.
    pub fn seal(&mut self) -> Sealed {
        let mut created = Vec::new();
        let root = self.root.seal(&mut created);
        // Edits that undo each other leave nodes that were there before: neither new nor gone.
        let mut replaced: HashMap<Link, bool> = self.replaced.drain(..).map(|link| (link, true)).collect();
        created.retain(|(link, _)| match replaced.get_mut(link) {
            Some(gone) => {
                *gone = false;
                false
            }
            None => true,
        });
        let mut removed: Vec<Link> = replaced.into_iter().filter_map(|(link, gone)| gone.then_some(link)).collect();
        removed.sort_unstable();
        Sealed { root, created, removed }
    }
}

impl Child {
    /// The node, if it is there.
    pub(super) fn node(&self) -> Result<&Node, StubReached> {
        match self {
            Self::Node(node) => Ok(node),
            Self::Stub(link) => Err(StubReached(**link)),
        }
    }
}

impl Node {
    /// The entry with this key, or else the slot of the subtree that would hold it.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| (*entry.key).cmp(key))
    }

    /// The subtree in a slot: 0 is left of all entries, `n` right of the entry `n - 1`.
    pub(super) fn slot(&self, slot: usize) -> Option<&Child> {
        match slot.checked_sub(1) {
            None => self.left.as_ref(),
            Some(entry) => self.entries.get(entry).and_then(|entry| entry.right.as_ref()),
        }
    }

    /// The same, to be changed. There is a slot more than there are entries.
    pub(super) fn slot_mut(&mut self, slot: usize) -> &mut Option<Child> {
        match slot.checked_sub(1) {
            None => &mut self.left,
            Some(entry) => &mut self.entries[entry].right,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_none() && self.entries.is_empty()
    }
}
