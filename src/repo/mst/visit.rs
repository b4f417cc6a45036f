//! Reading trees: in key order, in the order of a streamable CAR, and the part that proves one key.

use super::tree::{Child, Node, StubReached, Tree};
use crate::repo::Link;

/// What a visit comes across.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visit<'t> {
    /// A node and its block.
    Node(Link, &'t [u8]),
    /// A record: its key and its value.
    Record(&'t [u8], Link),
}

impl Tree {
    /// The keys and values in key order. What is inside stubs is left out.
    pub fn entries(&self) -> Entries<'_> {
        let mut entries = Entries { path: Vec::new() };
        entries.descend(Some(&self.root));
        entries
    }

    /// Visits nodes and records in the order of a streamable CAR: a node before what is in it, and that in key order
    /// (atproto.com/specs/repository, "Streamable CAR Ordering"). What is inside stubs is left out.
    pub fn visit(&self, mut visitor: impl FnMut(Visit<'_>)) {
        self.root.visit(&mut visitor);
    }

    /// The blocks of all nodes whose content shows that a key has its value, or that it is absent, and which keys are its neighbours: what a host puts into
    /// a commit's blocks so that the commit can be undone. A node comes before its children.
    ///
    /// # Errors
    /// When some of them are inside a stub.
    pub fn proof(&self, key: &[u8]) -> Result<Vec<(Link, Vec<u8>)>, StubReached> {
        let mut blocks = Vec::new();
        let mut child = Some(&self.root);
        while let Some(subtree) = child {
            let node = subtree.node()?;
            blocks.push(node.block());
            child = match node.search(key) {
                Ok(found) => {
                    // The neighbours of a key that is there are at the facing edges of the subtrees beside it.
                    edge(node.slot(found), |node| node.slot(node.entries.len()), &mut blocks)?;
                    edge(node.slot(found + 1), |node| node.slot(0), &mut blocks)?;
                    break;
                }
                Err(slot) => node.slot(slot),
            };
        }
        Ok(blocks)
    }
}

fn edge(mut child: Option<&Child>, next: fn(&Node) -> Option<&Child>, blocks: &mut Vec<(Link, Vec<u8>)>) -> Result<(), StubReached> {
    while let Some(subtree) = child {
        let node = subtree.node()?;
        blocks.push(node.block());
        child = next(node);
    }
    Ok(())
}

impl Child {
    fn visit(&self, visitor: &mut impl FnMut(Visit<'_>)) {
        let Self::Node(node) = self else { return };
        let (link, block) = node.block();
        visitor(Visit::Node(link, &block));
        if let Some(left) = &node.left {
            left.visit(visitor);
        }
        for entry in &node.entries {
            visitor(Visit::Record(&entry.key, entry.value));
            if let Some(right) = &entry.right {
                right.visit(visitor);
            }
        }
    }
}

/// The keys and values of a tree in key order.
#[derive(Debug)]
pub struct Entries<'t> {
    /// The nodes down to the next entry, each with the index of its own next entry.
    path: Vec<(&'t Node, usize)>,
}

impl<'t> Entries<'t> {
    fn descend(&mut self, mut child: Option<&'t Child>) {
        while let Some(Child::Node(node)) = child {
            self.path.push((node, 0));
            child = node.left.as_ref();
        }
    }
}

impl<'t> Iterator for Entries<'t> {
    type Item = (&'t [u8], Link);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, next) = self.path.last_mut()?;
            let Some(entry) = node.entries.get(*next) else {
                self.path.pop();
                continue;
            };
            *next += 1;
            self.descend(entry.right.as_ref());
            return Some((&entry.key, entry.value));
        }
    }
}
