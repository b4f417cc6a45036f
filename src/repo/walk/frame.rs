use super::{MAX_KEY, MAX_LAYER};
use crate::repo::mst::{Entry, Node, key_height};
use crate::repo::{CheckoutError, Link, TreeFault};

/// A node that the walk is in.
#[derive(Debug)]
pub(super) struct Frame {
    link: Link,
    /// The CID and the block.
    pub(super) bytes: Vec<u8>,
    node: Node,
    pub(super) layer: u8,
    /// The last key of this node so far; the next one builds upon it.
    key: Vec<u8>,
    /// How many parts of the node are behind the walk: the left subtree, then entry and subtree in turn.
    passed: usize,
}

/// What comes next in a node.
pub(super) enum Turn {
    Subtree(Link),
    Entry(Entry),
    Done,
}

impl Default for Frame {
    fn default() -> Self {
        let link = Link::from_digest([0; 32]);
        Self { link, bytes: Vec::new(), node: Node::default(), layer: 0, key: Vec::new(), passed: 0 }
    }
}

impl Frame {
    /// Decodes the node whose bytes were just read, and checks what can be checked of it alone. `layer` is none for the root.
    pub(super) fn enter(&mut self, link: Link, layer: Option<u8>) -> Result<(), CheckoutError> {
        self.link = link;
        self.passed = 0;
        self.key.clear();
        let block = self.bytes.get(36..).unwrap_or_default();
        self.node.decode(block).map_err(|fault| CheckoutError::Node { link, fault })?;
        match self.node.entries().first() {
            Some(first) => {
                self.layer = layer.unwrap_or_else(|| key_height(first.suffix(block)) as u8);
                if self.layer > MAX_LAYER { Err(self.broken(TreeFault::Height(self.layer))) } else { Ok(()) }
            }
            None => self.enter_bare(layer),
        }
    }

    /// A node without entries: the root of an empty repo, or an intermediate node on the way to a lower layer.
    fn enter_bare(&mut self, layer: Option<u8>) -> Result<(), CheckoutError> {
        self.layer = layer.unwrap_or(0);
        match (layer, self.node.left(self.block())) {
            (None, None) | (Some(_), Some(_)) => Ok(()),
            (None, Some(_)) => Err(self.broken(TreeFault::BareRoot)),
            (Some(_), None) => Err(self.broken(TreeFault::EmptyNode)),
        }
    }

    pub(super) fn block(&self) -> &[u8] {
        self.bytes.get(36..).unwrap_or_default()
    }

    /// Passes over the next part of the node that is there.
    pub(super) fn turn(&mut self) -> Turn {
        loop {
            let part = self.passed;
            self.passed += 1;
            let link = match part.checked_sub(1).map(|part| (self.node.entries().get(part / 2), part % 2 == 0)) {
                None => self.node.left(self.block()),
                Some((Some(entry), true)) => return Turn::Entry(*entry),
                Some((Some(entry), false)) => entry.tree(self.block()),
                Some((None, _)) => return Turn::Done,
            };
            if let Some(link) = link {
                return Turn::Subtree(link);
            }
        }
    }

    /// Builds the key of an entry, and checks that it is greater than `last`, the key before it in the whole tree, which it replaces.
    pub(super) fn read_key(&mut self, entry: &Entry, last: &mut Vec<u8>) -> Result<(), CheckoutError> {
        let Self { bytes, key, link, .. } = self;
        let suffix = entry.suffix(bytes.get(36..).unwrap_or_default());
        let prefix = entry.prefix as usize;
        let broken = |key: &[u8], fault| Err(CheckoutError::tree(*link, key, fault));
        // The shared prefix must be whole: the first byte behind it differs, or one of the keys ends there.
        if prefix > key.len() || (prefix < key.len() && suffix.first() == key.get(prefix)) {
            return broken(key, TreeFault::Prefix);
        }
        if prefix + suffix.len() > MAX_KEY {
            return broken(key, TreeFault::LongKey(prefix + suffix.len()));
        }
        key.truncate(prefix);
        key.extend_from_slice(suffix);
        if key.is_empty() {
            return broken(key, TreeFault::EmptyKey);
        }
        if key.as_slice() <= last.as_slice() {
            return broken(key, TreeFault::Order);
        }
        last.clear();
        last.extend_from_slice(key);
        Ok(())
    }

    pub(super) fn broken(&self, fault: TreeFault) -> CheckoutError {
        CheckoutError::tree(self.link, &self.key, fault)
    }
}
