//! Trees that need not be right.

use std::collections::BTreeMap;

use super::{CidBytes, cid};
use crate::repo::Link;
use crate::repo::emit::{self, Major};
use crate::repo::mst::{Tree, Visit, common_prefix, key_height};

/// A tree whose nodes say whatever they are made to say.
pub(super) struct RawTree {
    pub(super) root: RawNode,
    /// Blocks beside those of the nodes: the records.
    pub(super) blocks: Vec<(CidBytes, Vec<u8>)>,
}

#[derive(Clone, Default)]
pub(super) struct RawNode {
    pub(super) left: Option<Subtree>,
    pub(super) entries: Vec<RawEntry>,
    /// Whether the node has a field that no node has.
    pub(super) odd_field: bool,
}

#[derive(Clone)]
pub(super) enum Subtree {
    Node(Box<RawNode>),
    Link(CidBytes),
}

#[derive(Clone)]
pub(super) struct RawEntry {
    pub(super) key: Vec<u8>,
    /// The shared prefix to claim instead of the right one.
    pub(super) prefix: Option<usize>,
    pub(super) value: CidBytes,
    pub(super) right: Option<Subtree>,
}

impl RawTree {
    /// The right tree of some records.
    pub(super) fn new(records: BTreeMap<String, Vec<u8>>) -> Self {
        let tree: Tree = records.iter().map(|(path, block)| (path.as_bytes(), Link::of(block))).collect();
        let mut entries = Vec::new();
        tree.visit(|seen| {
            if let Visit::Record(key, value) = seen {
                entries.push(RawEntry { key: key.to_vec(), prefix: None, value: cid(value), right: None });
            }
        });
        let height = entries.iter().map(|entry| key_height(&entry.key)).max().unwrap_or(0);
        let root = subtree(&entries, height);
        Self { root, blocks: records.into_values().map(|block| (cid(Link::of(&block)), block)).collect() }
    }

    /// The root and all blocks, nodes before records.
    pub(super) fn encode(self) -> (Link, Vec<(CidBytes, Vec<u8>)>) {
        let mut blocks = Vec::new();
        let root = self.root.encode(&mut blocks);
        blocks.reverse();
        blocks.extend(self.blocks);
        (root, blocks)
    }

    /// Adds a record as the tree would hold it, except that nothing of it needs to be right.
    pub(super) fn insert(&mut self, key: &[u8], value: CidBytes) {
        let mut entries = Vec::new();
        self.root.flatten(&mut entries);
        entries.push(RawEntry { key: key.to_vec(), prefix: None, value, right: None });
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        let height = entries.iter().map(|entry| key_height(&entry.key)).max().unwrap_or(0);
        self.root = subtree(&entries, height);
    }
}

/// The node of a height over sorted entries that all belong at or below it.
fn subtree(entries: &[RawEntry], height: u32) -> RawNode {
    let mut node = RawNode::default();
    let mut below = Vec::new();
    let close = |node: &mut RawNode, below: &mut Vec<RawEntry>| {
        if !below.is_empty() {
            let child = Some(Subtree::Node(Box::new(subtree(below, height - 1))));
            match node.entries.last_mut() {
                Some(entry) => entry.right = child,
                None => node.left = child,
            }
            below.clear();
        }
    };
    for entry in entries {
        if key_height(&entry.key) == height {
            close(&mut node, &mut below);
            node.entries.push(entry.clone());
        } else {
            below.push(entry.clone());
        }
    }
    close(&mut node, &mut below);
    node
}

impl RawNode {
    pub(super) fn children_mut(&mut self) -> impl Iterator<Item = &mut RawNode> {
        let slots = self.left.iter_mut().chain(self.entries.iter_mut().filter_map(|entry| entry.right.as_mut()));
        slots.filter_map(|child| match child {
            Subtree::Node(node) => Some(node.as_mut()),
            Subtree::Link(_) => None,
        })
    }

    /// The first node, from the left and the bottom, that is as asked for. `height` is that of this node.
    pub(super) fn find(&mut self, height: u32, wanted: &dyn Fn(&Self, u32) -> bool) -> Option<&mut Self> {
        // Asked before the children are borrowed, as the answer is about this node alone.
        let is_wanted = wanted(self, height);
        if height > 0 && self.children_mut().any(|child| child.find(height - 1, wanted).is_some()) {
            return self.children_mut().find_map(|child| child.find(height - 1, wanted));
        }
        is_wanted.then_some(self)
    }

    fn flatten(&self, entries: &mut Vec<RawEntry>) {
        let below = |child: &Option<Subtree>, entries: &mut Vec<RawEntry>| {
            if let Some(Subtree::Node(node)) = child {
                node.flatten(entries);
            }
        };
        below(&self.left, entries);
        for entry in &self.entries {
            entries.push(RawEntry { right: None, ..entry.clone() });
            below(&entry.right, entries);
        }
    }

    /// Encodes the node and all below it, children first.
    pub(super) fn encode(&self, blocks: &mut Vec<(CidBytes, Vec<u8>)>) -> Link {
        let mut out = Vec::new();
        emit::head(&mut out, Major::Map, 2 + u64::from(self.odd_field));
        emit::text(&mut out, "e");
        emit::head(&mut out, Major::Array, self.entries.len() as u64);
        let mut previous: &[u8] = &[];
        for entry in &self.entries {
            let prefix = entry.prefix.unwrap_or_else(|| common_prefix(previous, &entry.key));
            emit::head(&mut out, Major::Map, 4);
            emit::text(&mut out, "k");
            emit::bytes(&mut out, entry.key.get(prefix..).unwrap_or(&entry.key));
            emit::text(&mut out, "p");
            emit::head(&mut out, Major::Unsigned, prefix as u64);
            emit::text(&mut out, "t");
            encode_child(&mut out, entry.right.as_ref(), blocks);
            emit::text(&mut out, "v");
            emit::cid(&mut out, &entry.value);
            previous = &entry.key;
        }
        emit::text(&mut out, "l");
        encode_child(&mut out, self.left.as_ref(), blocks);
        if self.odd_field {
            emit::text(&mut out, "x");
            out.push(emit::TRUE);
        }
        let link = Link::of(&out);
        blocks.push((cid(link), out));
        link
    }
}

fn encode_child(out: &mut Vec<u8>, child: Option<&Subtree>, blocks: &mut Vec<(CidBytes, Vec<u8>)>) {
    match child {
        Some(Subtree::Node(node)) => emit::link(out, &node.encode(blocks)),
        Some(Subtree::Link(cid)) => emit::cid(out, cid),
        None => out.push(emit::NULL),
    }
}
