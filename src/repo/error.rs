use std::io;

use super::{CommitFault, Link, NodeFault, SignatureError};
use crate::job::FailureKind;
use crate::syntax::Did;

/// Why a repo could not be checked out. Offsets count the bytes of the CAR file from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckoutError {
    /// The body has no bytes.
    #[error("the body is empty")]
    Empty,
    /// The body does not begin as a CAR file does: an error page, perhaps.
    #[error("the body is not a CAR file of version 1: {reason}")]
    NotACar {
        /// What is wrong with the header.
        reason: &'static str,
    },
    /// The header names no root.
    #[error("the CAR file has no root")]
    NoRoot,
    /// The file ends within its header, a length or a block.
    #[error("the CAR file is cut within what begins at byte {offset}")]
    Cut {
        /// Where the cut part begins.
        offset: u64,
    },
    /// A length that no block has.
    #[error("the CAR file claims a block of {length} bytes at byte {offset}, more than {limit}")]
    Length {
        /// Where the length lies.
        offset: u64,
        /// The length claimed; `u64::MAX` for any above.
        length: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A block begins with something that is not a CID.
    #[error("the CAR file has no CID at byte {offset}")]
    Cid {
        /// Where the CID should be.
        offset: u64,
    },
    /// A block is not what its CID says.
    #[error("the block at byte {offset} does not have the hash of its CID {link}")]
    Hash {
        /// Where the block's CID lies.
        offset: u64,
        /// The CID that it claims.
        link: Link,
    },
    /// The repo has more bytes than the configured cap.
    #[error("the repo has more than the {limit} bytes allowed")]
    TooLarge {
        /// The cap.
        limit: u64,
    },
    /// The repo has more blocks than the configured cap.
    #[error("the repo has more than the {limit} blocks allowed")]
    TooManyBlocks {
        /// The cap.
        limit: u64,
    },
    /// The file holds more bytes that do not belong to the repo than the configured cap.
    #[error("the CAR file holds {bytes} bytes that do not belong to the repo, more than the {limit} allowed")]
    Unrelated {
        /// How many were seen.
        bytes: u64,
        /// The cap.
        limit: u64,
    },
    /// The block of the commit is not in the file.
    #[error("the commit {link} is not in the CAR file")]
    MissingCommit {
        /// The root that the header names.
        link: Link,
    },
    /// A node of the tree is not in the file. Hosts do not export atomically, so another attempt may find it.
    #[error("the tree node {link} is not in the CAR file")]
    MissingNode {
        /// The node.
        link: Link,
    },
    /// A record is not in the file. As for a node.
    #[error("the record {link} at {path} is not in the CAR file")]
    MissingRecord {
        /// Its path.
        path: String,
        /// Its CID.
        link: Link,
    },
    /// The commit breaks a rule.
    #[error("the commit {link} is not valid")]
    Commit {
        /// The commit.
        link: Link,
        /// The rule.
        #[source]
        fault: CommitFault,
    },
    /// The commit is another account's.
    #[error("the commit is of {found}, not of {expected}")]
    Account {
        /// Whose repo was asked for.
        expected: Did,
        /// Whose it is.
        found: Did,
    },
    /// The signature is not of the account's key.
    #[error("the signature of the commit {link} is not valid")]
    Signature {
        /// The commit.
        link: Link,
        /// Why.
        #[source]
        fault: SignatureError,
    },
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
    #[error("the tree is not valid at {link}, key {key:?}")]
    Tree {
        /// The node; where keys are checked many at once, the root.
        link: Link,
        /// The key, lossily as text, cut to 64 characters; empty where the rule is about the node itself.
        key: String,
        /// The rule.
        #[source]
        fault: TreeFault,
    },
    /// The walk was asked to go on after it had failed.
    #[error("the walk has failed before")]
    WalkFailed,
    /// The local disk.
    #[error("local failure to {action}")]
    Local {
        /// What was being done, as an infinitive.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The rule of its structure that a tree breaks (atproto.com/specs/repository, "MST Structure").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TreeFault {
    /// Keys, read from left to right, do not strictly rise: out of order, twice, or outside the range of their subtree. So shows a cycle, too.
    #[error("the key is not greater than the one before it")]
    Order,
    /// A key says that it shares more bytes with the one before it than that one has, or fewer than it does.
    #[error("the shared prefix is not exactly what the two keys share")]
    Prefix,
    /// A key of no bytes.
    #[error("the key is empty")]
    EmptyKey,
    /// A key longer than 1,024 bytes.
    #[error("the key has {0} bytes")]
    LongKey(usize),
    /// A key whose hash puts it on another layer.
    #[error("the key belongs to layer {key}, the node is of layer {node}")]
    Layer {
        /// The layer that the key's hash gives.
        key: u8,
        /// The layer of the node.
        node: u8,
    },
    /// A root on a higher layer than chance could ever reach.
    #[error("the root is of layer {0}")]
    Height(u8),
    /// A root with a subtree but no entry.
    #[error("the root has a subtree but no entry")]
    BareRoot,
    /// A node without entry and subtree, other than the root of an empty repo.
    #[error("the node is empty")]
    EmptyNode,
    /// A subtree below layer 0.
    #[error("the node is of layer 0 and has a subtree")]
    BelowZero,
}

impl CheckoutError {
    /// What failed, in the words of the job.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Empty
            | Self::NotACar { .. }
            | Self::NoRoot
            | Self::Cut { .. }
            | Self::Length { .. }
            | Self::Cid { .. }
            | Self::Hash { .. } => FailureKind::MalformedCar,
            Self::TooLarge { .. } | Self::TooManyBlocks { .. } | Self::Unrelated { .. } => FailureKind::TooLarge,
            Self::MissingCommit { .. } | Self::MissingNode { .. } | Self::MissingRecord { .. } => FailureKind::MissingBlock,
            Self::Commit { .. } | Self::Account { .. } => FailureKind::InvalidCommit,
            Self::Signature { .. } => FailureKind::BadSignature,
            Self::Node { .. } | Self::Tree { .. } => FailureKind::InvalidTree,
            Self::WalkFailed | Self::Local { .. } => FailureKind::Local,
        }
    }

    /// For `map_err` on what the local disk does.
    pub(crate) fn local(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Local { action, source }
    }

    pub(super) fn tree(link: Link, key: &[u8], fault: TreeFault) -> Self {
        Self::Tree { link, key: String::from_utf8_lossy(key).chars().take(64).collect(), fault }
    }
}
