//! Reading a tree, or the part of it that is there, from blocks.

use std::sync::Arc;

use super::node::{self, NodeFault};
use super::tree::{Child, Entry, Node, Tree};
use super::{common_prefix, key_height};
use crate::repo::{Link, TreeFault};

/// The highest root accepted: a key of this height has 64 zero bits at the start of its hash.
pub(crate) const MAX_HEIGHT: u32 = 32;
/// The longest key accepted, in bytes.
pub(crate) const MAX_KEY: usize = 1024;

/// Why blocks make no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The block of the root is not there.
    #[error("the root {0} is not there")]
    Root(Link),
    /// A node breaks a rule of its encoding.
    #[error("the tree node {link} is not valid")]
    Node {
        /// The node.
        link: Link,
        /// The rule.
        #[source]
        fault: NodeFault,
    },
    /// The tree breaks a rule of its structure.
    #[error("the tree is not valid at {link}")]
    Tree {
        /// The node.
        link: Link,
        /// The rule.
        #[source]
        fault: TreeFault,
    },
    /// A record's link is of another kind than an edited tree can hold.
    #[error("the tree node {0} links to a record by a kind of CID that is not allowed")]
    Value(Link),
}

impl Tree {
    /// The tree with a root, sealed. What `block` does not have, below the root, becomes a stub.
    ///
    /// `block` answers the block of a link; that it has the hash of the link must have been checked. Of the nodes that are there, every rule is
    /// checked that can be (atproto.com/specs/repository, "MST Structure").
    ///
    /// # Errors
    /// When the root is not there or any rule is broken.
    pub fn load<'b>(root: Link, block: impl Fn(&Link) -> Option<&'b [u8]>) -> Result<Self, LoadError> {
        let mut loader = Loader { block: &block, last: Vec::new() };
        let bytes = block(&root).ok_or(LoadError::Root(root))?;
        let decoded = decode(root, bytes)?;
        let height = match decoded.entries().first() {
            Some(first) => key_height(first.suffix(bytes)),
            None if decoded.left(bytes).is_some() => return Err(LoadError::Tree { link: root, fault: TreeFault::BareRoot }),
            None => 0,
        };
        if height > MAX_HEIGHT {
            return Err(LoadError::Tree { link: root, fault: TreeFault::Height(height as u8) });
        }
        let node = loader.node(root, bytes, &decoded, height)?;
        Ok(Self { root: Child::Node(Arc::new(node)), height, replaced: Vec::new() })
    }
}

fn decode(link: Link, block: &[u8]) -> Result<node::Node, LoadError> {
    let mut decoded = node::Node::default();
    decoded.decode(block).map_err(|fault| LoadError::Node { link, fault })?;
    Ok(decoded)
}

struct Loader<'l, F> {
    block: &'l F,
    /// The key read last. Keys are read in their order, so that comparing each with the one before it checks the whole tree,
    /// and that no node is read twice: at most `MAX_HEIGHT` nodes lie between two keys.
    last: Vec<u8>,
}

impl<'b, F: Fn(&Link) -> Option<&'b [u8]>> Loader<'_, F> {
    fn node(&mut self, link: Link, block: &[u8], decoded: &node::Node, height: u32) -> Result<Node, LoadError> {
        let broken = |fault| LoadError::Tree { link, fault };
        let left = self.child(link, decoded.left(block), height)?;
        let mut entries = Vec::with_capacity(decoded.entries().len());
        let mut key = Vec::new();
        for entry in decoded.entries() {
            self.key(&mut key, entry.prefix as usize, entry.suffix(block), height).map_err(broken)?;
            let value = entry.value(block).ok_or(LoadError::Value(link))?;
            let right = self.child(link, entry.tree(block), height)?;
            entries.push(Entry { key: key.as_slice().into(), value, right });
        }
        Ok(Node { link: Some(link), left, entries })
    }

    /// Turns the key before into the next one and checks it.
    fn key(&mut self, key: &mut Vec<u8>, prefix: usize, suffix: &[u8], height: u32) -> Result<(), TreeFault> {
        let shared = key.get(..prefix).ok_or(TreeFault::Prefix)?;
        let next = [shared, suffix].concat();
        if common_prefix(key, &next) != prefix {
            return Err(TreeFault::Prefix);
        }
        match next.len() {
            0 => return Err(TreeFault::EmptyKey),
            len if len > MAX_KEY => return Err(TreeFault::LongKey(len)),
            _ => {}
        }
        if next <= self.last {
            return Err(TreeFault::Order);
        }
        let layer = key_height(&next);
        if layer != height {
            return Err(TreeFault::Layer { key: layer as u8, node: height as u8 });
        }
        self.last.clone_from(&next);
        *key = next;
        Ok(())
    }

    fn child(&mut self, parent: Link, link: Option<Link>, height: u32) -> Result<Option<Child>, LoadError> {
        let Some(link) = link else { return Ok(None) };
        let Some(height) = height.checked_sub(1) else {
            return Err(LoadError::Tree { link: parent, fault: TreeFault::BelowZero });
        };
        let Some(block) = (self.block)(&link) else { return Ok(Some(Child::Stub(Box::new(link)))) };
        let decoded = decode(link, block)?;
        let node = self.node(link, block, &decoded, height)?;
        if node.is_empty() {
            return Err(LoadError::Tree { link, fault: TreeFault::EmptyNode });
        }
        Ok(Some(Child::Node(Arc::new(node))))
    }
}
