//! Undoing the ops of a commit on the part of its tree that the commit brings along, which gives the root before it and so proves that the ops are all
//! that changed (protocol: Sync 1.1, "Operation inversion").

use super::mst::{LoadError, StubReached, Tree, key_height};
use super::{Link, TreeFault};

/// One op of a commit: what it did to one key.
///
/// A create has no `prev`, a delete no `cid`; an op with neither, or with both the same, does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key: the path of a record. No two changes of a commit have the same.
    pub key: &'a [u8],
    /// The record after the commit.
    pub cid: Option<Link>,
    /// The record before the commit.
    pub prev: Option<Link>,
}

/// Why ops could not be undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InversionError {
    /// A node breaks a rule.
    #[error("the commit's part of the tree is not valid")]
    Tree(#[from] LoadError),
    /// An op tells something else about its key than the tree does.
    #[error("the op on {key:?} is not what the tree says: {rule}")]
    Contradiction {
        /// The key, lossily as text, cut to 64 characters.
        key: String,
        /// What is wrong.
        rule: Contradiction,
    },
    /// A node that is needed is not there. Says nothing about the ops: another selection of nodes may prove them.
    #[error("the commit brings too little of the tree")]
    Insufficient(#[from] StubReached),
}

/// How an op and the tree after it disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Contradiction {
    /// Created or updated, but absent.
    #[error("the key is not there")]
    Absent,
    /// Created or updated, but with another record.
    #[error("the record is another one")]
    OtherRecord,
    /// Deleted, but present.
    #[error("the key is still there")]
    Present,
    /// Created on another layer than its hash gives.
    #[error("{0}")]
    Layer(TreeFault),
}

impl Contradiction {
    fn of(self, change: &Change<'_>) -> InversionError {
        InversionError::Contradiction { key: String::from_utf8_lossy(change.key).chars().take(64).collect(), rule: self }
    }
}

/// The root before a commit with the root `data`. `block` answers those blocks of the tree's nodes that the commit brings, whose hashes were checked.
///
/// That the root is right proves every op, and that there were no others, if the answer is the root of a tree that follows all rules: whatever the
/// ops leave alone is in that tree, and the rest is checked here.
///
/// # Errors
/// When an op contradicts the tree, a node breaks a rule, or the nodes are too few.
pub fn invert<'b>(data: Link, block: impl Fn(&Link) -> Option<&'b [u8]>, changes: &[Change<'_>]) -> Result<Link, InversionError> {
    let block = &block;
    let mut steps: Vec<Step<'_>> = changes.iter().map(Step::new).collect();
    // Minimal proofs are made for this order. There are hosts whose proofs are not, and for some of them the other order does.
    steps.sort_by_key(|step| step.created_at);
    let tree = match undo(Tree::load_part(data, block)?, &steps) {
        Err(InversionError::Insufficient(_)) => {
            steps.sort_by(|one, other| other.change.key.cmp(one.change.key));
            undo(Tree::load_part(data, block)?, &steps)?
        }
        undone => undone?,
    };
    // The layer of every node counts from the root's, and so do the layers that created keys were found on.
    match tree.root_fault() {
        Some(fault) => Err(LoadError::Tree { link: data, fault }.into()),
        None => Ok(tree.root_link()),
    }
}

/// Checks that the ops are what the tree after them says of their keys, without undoing them: a weaker proof, of commits that do not name the root
/// before them.
///
/// # Errors
/// As [`invert`].
pub fn resolve<'b>(data: Link, block: impl Fn(&Link) -> Option<&'b [u8]>, changes: &[Change<'_>]) -> Result<(), InversionError> {
    let tree = Tree::load_part(data, block)?;
    for change in changes {
        match (change.cid, tree.get(change.key)?) {
            (Some(cid), Some(found)) if cid == found => {}
            (Some(_), Some(_)) => return Err(Contradiction::OtherRecord.of(change)),
            (Some(_), None) => return Err(Contradiction::Absent.of(change)),
            (None, Some(_)) => return Err(Contradiction::Present.of(change)),
            (None, None) => {}
        }
    }
    Ok(())
}

/// A change to be undone.
struct Step<'c> {
    change: &'c Change<'c>,
    /// Of a create, the height of its key.
    created_at: Option<u32>,
}

impl<'c> Step<'c> {
    fn new(change: &'c Change<'c>) -> Self {
        let created = change.cid.is_some() && change.prev.is_none();
        Self { change, created_at: created.then(|| key_height(change.key)) }
    }

    fn undo(&self, tree: &mut Tree) -> Result<(), InversionError> {
        let Change { key, cid, prev } = *self.change;
        match (cid, prev) {
            (cid, prev) if cid == prev => Ok(()),
            (Some(cid), None) => self.remove(cid, tree),
            (cid, Some(prev)) => match (cid, tree.insert(key, prev)?) {
                (cid, found) if cid == found => Ok(()),
                (Some(_), Some(_)) => Err(Contradiction::OtherRecord.of(self.change)),
                (Some(_), None) => Err(Contradiction::Absent.of(self.change)),
                (None, _) => Err(Contradiction::Present.of(self.change)),
            },
            (None, None) => Ok(()),
        }
    }

    fn remove(&self, cid: Link, tree: &mut Tree) -> Result<(), InversionError> {
        let Some((found, height)) = tree.locate(self.change.key)? else { return Err(Contradiction::Absent.of(self.change)) };
        if found != cid {
            return Err(Contradiction::OtherRecord.of(self.change));
        }
        if let Some(layer) = self.created_at.filter(|layer| *layer != height) {
            let fault = TreeFault::Layer { key: layer as u8, node: height as u8 };
            return Err(Contradiction::Layer(fault).of(self.change));
        }
        tree.remove_found(self.change.key)?;
        Ok(())
    }
}

fn undo(mut tree: Tree, steps: &[Step<'_>]) -> Result<Tree, InversionError> {
    steps.iter().try_for_each(|step| step.undo(&mut tree))?;
    Ok(tree)
}
