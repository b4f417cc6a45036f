use super::nodes::{RawEntry, RawNode, RawTree, Subtree};
use super::{cid, raw_cid};
use crate::repo::mst::key_height;

/// What can be wrong with the tree. All of it fails the checkout as an invalid tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeDamage {
    /// Two keys of a node are swapped.
    KeysOutOfOrder,
    /// A node has a key twice.
    DuplicateKey,
    /// A key is greater than that of the node above which its subtree is left of.
    KeyOutsideRange,
    /// A subtree hangs in two places.
    SharedSubtree,
    /// A key shares a byte more with the one before it than it says.
    PrefixTooShort,
    /// A key says to share more bytes with the one before it than that one has.
    PrefixTooLong,
    /// A node has a key of another layer.
    WrongLayer,
    /// A subtree hangs two layers below its parent.
    SkippedLayer,
    /// A node of layer 0 has a subtree.
    BelowZero,
    /// A node below the root has neither entry nor subtree.
    EmptyNode,
    /// The root has a subtree and no entry.
    BareRoot,
    /// A chain of 50,000 nodes without entry hangs below the root.
    Chain,
    /// A node has 2,000 entries.
    CrowdedNode,
    /// A key has no bytes.
    EmptyKey,
    /// A key has more than 1,024 bytes.
    LongKey,
    /// A node has a field that no node has.
    OddField,
    /// A node links to a subtree by a CID with the codec of blobs.
    SubtreeOfOtherCid,
    /// The commit's `data` is a record.
    RootIsARecord,
}

impl TreeDamage {
    /// Every one.
    pub const ALL: [Self; 18] = [
        Self::KeysOutOfOrder,
        Self::DuplicateKey,
        Self::KeyOutsideRange,
        Self::SharedSubtree,
        Self::PrefixTooShort,
        Self::PrefixTooLong,
        Self::WrongLayer,
        Self::SkippedLayer,
        Self::BelowZero,
        Self::EmptyNode,
        Self::BareRoot,
        Self::Chain,
        Self::CrowdedNode,
        Self::EmptyKey,
        Self::LongKey,
        Self::OddField,
        Self::SubtreeOfOtherCid,
        Self::RootIsARecord,
    ];

    pub(super) fn apply(self, tree: &mut RawTree) {
        match self {
            Self::KeysOutOfOrder | Self::DuplicateKey | Self::PrefixTooShort | Self::PrefixTooLong => self.apply_to_entries(tree),
            Self::KeyOutsideRange | Self::WrongLayer | Self::EmptyKey | Self::LongKey => self.apply_to_keys(tree),
            Self::SharedSubtree | Self::SkippedLayer | Self::BelowZero | Self::EmptyNode | Self::SubtreeOfOtherCid => {
                self.apply_to_children(tree)
            }
            Self::BareRoot => {
                let root = std::mem::take(&mut tree.root);
                tree.root.left = Some(Subtree::Node(Box::new(root)));
            }
            Self::Chain => chain(tree),
            Self::CrowdedNode => {
                let value = tree.root.entries[0].value.clone();
                let keys = (0..).map(|number| format!("com.example.alpha/4k{number:011}")).filter(|key| key_height(key.as_bytes()) == 0);
                tree.root = RawNode { entries: keys.take(2_000).map(|key| entry(key, value.clone())).collect(), ..RawNode::default() };
            }
            Self::OddField => found(tree, &|_, height| height == 0).odd_field = true,
            Self::RootIsARecord => {}
        }
    }

    fn apply_to_entries(self, tree: &mut RawTree) {
        let entries = &mut found(tree, &|node, _| node.entries.len() > 1).entries;
        let (one, other) = entries.split_at_mut(1);
        match self {
            Self::KeysOutOfOrder => std::mem::swap(&mut one[0].key, &mut other[0].key),
            Self::DuplicateKey => other[0].key.clone_from(&one[0].key),
            // The keys of one collection share all of its name.
            Self::PrefixTooShort => other[0].prefix = Some(4),
            _ => other[0].prefix = Some(one[0].key.len() + 1),
        }
    }

    /// Adds a key to a node that is no place for it.
    fn apply_to_keys(self, tree: &mut RawTree) {
        let value = tree.root.entries[0].value.clone();
        let leftmost = found(tree, &|_, height| height == 0);
        let of_height = |start: String, wanted: fn(u32) -> bool| {
            (0..).map(|number| format!("{start}{number}")).find(|key| wanted(key_height(key.as_bytes()))).unwrap_or_default()
        };
        match self {
            Self::KeyOutsideRange => leftmost.entries.push(entry(of_height("zz.example.last/".into(), |height| height == 0), value)),
            Self::WrongLayer => {
                let neighbour = String::from_utf8_lossy(&leftmost.entries[0].key).into_owned();
                leftmost.entries.insert(1, entry(of_height(neighbour, |height| height > 0), value));
            }
            Self::EmptyKey => leftmost.entries.insert(0, entry(String::new(), value)),
            _ => leftmost
                .entries
                .insert(0, entry(of_height("aa.example.first/".to_owned() + &"k".repeat(1_100), |height| height == 0), value)),
        }
    }

    fn apply_to_children(self, tree: &mut RawTree) {
        match self {
            Self::SharedSubtree => {
                let node = found(tree, &|node, height| height > 0 && node.left.is_some() && !node.entries.is_empty());
                let left = node.left.clone();
                node.entries[0].right = left;
            }
            Self::SkippedLayer => {
                let node =
                    found(tree, &|node, height| height > 1 && matches!(&node.left, Some(Subtree::Node(child)) if child.left.is_some()));
                let Some(Subtree::Node(child)) = node.left.take() else { return };
                node.left = child.left;
            }
            Self::BelowZero => {
                let key = (0..).map(|number| format!("aa.example.first/{number}")).find(|key| key_height(key.as_bytes()) == 0);
                let leftmost = found(tree, &|_, height| height == 0);
                let value = leftmost.entries[0].value.clone();
                let below = RawNode { entries: key.map(|key| entry(key, value)).into_iter().collect(), ..RawNode::default() };
                leftmost.left = Some(Subtree::Node(Box::new(below)));
            }
            _ => {
                let node = found(tree, &|_, height| height == 1);
                node.left = Some(match self {
                    Self::EmptyNode => Subtree::Node(Box::default()),
                    _ => Subtree::Link(raw_cid(b"no node")),
                });
            }
        }
    }
}

fn entry(key: impl Into<Vec<u8>>, value: super::CidBytes) -> RawEntry {
    RawEntry { key: key.into(), prefix: None, value, right: None }
}

/// A node of the sample that has what a damage needs.
fn found<'t>(tree: &'t mut RawTree, wanted: &dyn Fn(&RawNode, u32) -> bool) -> &'t mut RawNode {
    let height = key_height(&tree.root.entries[0].key);
    tree.root.find(height, wanted).expect("the sample has nodes of several layers, with several entries")
}

/// Hangs a chain below the root, too long to be read by recursion.
fn chain(tree: &mut RawTree) {
    let mut end = Vec::new();
    let mut link = RawNode::default().encode(&mut end);
    for _ in 0..50_000 {
        let above = RawNode { left: Some(Subtree::Link(cid(link))), ..RawNode::default() };
        link = above.encode(&mut end);
    }
    tree.blocks.extend(end);
    tree.root.left = Some(Subtree::Link(cid(link)));
}
