//! The canonical blocks of nodes.

use std::sync::Arc;

use super::common_prefix;
use super::tree::{Child, Node};
use crate::repo::Link;
use crate::repo::emit::{self, Major};

impl Node {
    /// The node's block. Children that are not sealed are hashed for it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 160 * self.entries.len());
        emit::head(&mut out, Major::Map, 2);
        emit::text(&mut out, "e");
        emit::head(&mut out, Major::Array, self.entries.len() as u64);
        let mut previous: &[u8] = &[];
        for entry in &self.entries {
            let shared = common_prefix(previous, &entry.key);
            emit::head(&mut out, Major::Map, 4);
            emit::text(&mut out, "k");
            emit::bytes(&mut out, &entry.key[shared..]);
            emit::text(&mut out, "p");
            emit::head(&mut out, Major::Unsigned, shared as u64);
            emit::text(&mut out, "t");
            emit::optional_link(&mut out, entry.right.as_ref().map(Child::link).as_ref());
            emit::text(&mut out, "v");
            emit::link(&mut out, &entry.value);
            previous = &entry.key;
        }
        emit::text(&mut out, "l");
        emit::optional_link(&mut out, self.left.as_ref().map(Child::link).as_ref());
        out
    }

    /// The node's link and block.
    pub(super) fn block(&self) -> (Link, Vec<u8>) {
        let block = self.encode();
        (self.link.unwrap_or_else(|| Link::of(&block)), block)
    }
}

impl Child {
    fn link(&self) -> Link {
        match self {
            Self::Node(node) => node.link.unwrap_or_else(|| Link::of(&node.encode())),
            Self::Stub(link) => **link,
        }
    }

    /// Hashes the nodes below and including this one that are not sealed, and collects their blocks, each before its children.
    pub(super) fn seal(&mut self, created: &mut Vec<(Link, Vec<u8>)>) -> Link {
        let node = match self {
            Self::Stub(link) => return **link,
            Self::Node(node) => match node.link {
                Some(link) => return link,
                None => Arc::make_mut(node),
            },
        };
        let place = created.len();
        created.push((Link::from_digest([0; 32]), Vec::new()));
        let Node { left, entries, .. } = node;
        for child in left.iter_mut().chain(entries.iter_mut().filter_map(|entry| entry.right.as_mut())) {
            child.seal(created);
        }
        let block = node.encode();
        let link = Link::of(&block);
        node.link = Some(link);
        created[place] = (link, block);
        link
    }
}
