//! Undoing the ops of a commit on the part of its tree that the commit brings along, which gives the root before it and so proves that the ops are all
//! that changed (protocol: Sync 1.1, "Operation inversion").
//!
//! The part is not edited as a tree. It is laid out as the row of its keys, and of its subtrees that nobody has looked into; the row is edited; and the
//! one tree that a row makes is hashed. So there is no order in which ops had to be undone, and no node is asked for but those that every order needs.

mod rebuild;
mod row;

use row::Row;

use super::mst::{LoadError, StubReached, key_height};
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
    /// With the ops undone this subtree alone is left, and it is not there. It may be the root before the commit, and it may lead to it: whoever knows the
    /// root before can tell, and whoever finds another one knows no more than that the nodes are too few.
    #[error("the commit does not bring the tree {0}, which alone is left")]
    Unseen(Link),
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
/// If the answer is the root of a tree that follows all rules, then that proves every op, and that there were no others: whatever the ops leave alone
/// is in that tree, and what they changed is checked here.
///
/// # Errors
/// When an op contradicts the tree, a node breaks a rule, or the nodes are too few: [`InversionError::Unseen`] too may prove the ops.
pub fn invert<'b>(data: Link, block: impl Fn(&Link) -> Option<&'b [u8]>, changes: &[Change<'_>]) -> Result<Link, InversionError> {
    let effective = || changes.iter().filter(|change| change.cid != change.prev);
    if effective().next().is_none() {
        return Ok(data);
    }
    let mut row = Row::new(data, &block)?;
    for change in effective() {
        let height = check(&mut row, change)?;
        if let (Some(_), Some(prev)) = (change.cid, change.prev) {
            row.replace(change.key, prev);
        } else if let (Some(height), None) = (height, change.prev) {
            right_layer(change, height)?;
        }
    }
    // While every key of the tree is still there, it is plain where another belongs.
    effective()
        .filter_map(|change| change.prev.filter(|_| change.cid.is_none()).map(|prev| (change.key, prev)))
        .for_each(|(key, prev)| row.insert(key, prev));
    effective().filter(|change| change.prev.is_none()).for_each(|change| row.remove(change.key));
    row.open_what_merges()?;
    row.open_what_is_left()?;
    row.rebuild(data)
}

/// Checks that the ops are what the tree after them says of their keys, without undoing them: a weaker proof, of commits that do not name the root
/// before them.
///
/// # Errors
/// As [`invert`].
pub fn resolve<'b>(data: Link, block: impl Fn(&Link) -> Option<&'b [u8]>, changes: &[Change<'_>]) -> Result<(), InversionError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut row = Row::new(data, &block)?;
    changes.iter().try_for_each(|change| check(&mut row, change).map(drop))
}

/// Checks that a key is as its op left it. Answers the height of the node that has it.
fn check<'b, F: Fn(&Link) -> Option<&'b [u8]>>(row: &mut Row<'_, F>, change: &Change<'_>) -> Result<Option<u8>, InversionError> {
    match (change.cid, row.find(change.key)?) {
        (Some(cid), Some((found, height))) if cid == found => Ok(Some(height)),
        (Some(_), Some(_)) => Err(Contradiction::OtherRecord.of(change)),
        (Some(_), None) => Err(Contradiction::Absent.of(change)),
        (None, Some(_)) => Err(Contradiction::Present.of(change)),
        (None, None) => Ok(None),
    }
}

/// Checks the layer of a created key. Those of the others are the same in the tree before.
fn right_layer(change: &Change<'_>, node: u8) -> Result<(), InversionError> {
    match key_height(change.key) as u8 {
        key if key == node => Ok(()),
        key => Err(Contradiction::Layer(TreeFault::Layer { key, node }).of(change)),
    }
}
