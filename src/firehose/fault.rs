use crate::repo::inversion::InversionError;
use crate::repo::{self, CheckoutError, Link};
use crate::syntax::{Did, RecordPath, Rev, SyntaxError};

/// What a fault means for the repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The event says nothing about the repo: it is dropped alone. If the repo did move, its next commit shows that.
    Drop,
    /// The repo moved, but not in a way that can be followed: it has to be checked out.
    Gap,
}

/// Why a `#commit` or `#sync` is not taken (protocol: `#commit` checklist).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitFault {
    /// A field's text breaks its own syntax.
    #[error("the field {field:?} is not valid")]
    Field {
        /// The field.
        field: &'static str,
        /// The rule.
        #[source]
        source: SyntaxError,
    },
    /// An op whose field is missing, of the wrong type, or does not go with its action.
    #[error("an op's field {0:?} is not valid")]
    Op(&'static str),
    /// Two ops on one path.
    #[error("there are two ops on {0}")]
    Twice(RecordPath),
    /// The rev names a time too far ahead.
    #[error("the rev {0} lies in the future")]
    Future(Rev),
    /// The upstream left the blocks out for their size.
    #[error("the blocks were left out for their size")]
    TooBig,
    /// There are no blocks at all.
    #[error("there are no blocks")]
    NoBlocks,
    /// The blocks are no valid CAR, or a block does not have the hash of its CID.
    #[error("the blocks are not valid")]
    Car(#[source] CheckoutError),
    /// The CAR is not of the commit that the event names.
    #[error("the blocks are of {root}, the event is of {commit}")]
    Root {
        /// The root of the CAR.
        root: Link,
        /// The commit that the event names.
        commit: Link,
    },
    /// The block of the commit is not there.
    #[error("the commit {0} is not among the blocks")]
    MissingCommit(Link),
    /// The commit itself breaks a rule.
    #[error("the commit {link} is not valid")]
    Commit {
        /// The commit.
        link: Link,
        /// The rule.
        #[source]
        source: repo::CommitFault,
    },
    /// The commit is another account's.
    #[error("the commit is of {found}, not of {expected}")]
    Account {
        /// The account that the event names.
        expected: Did,
        /// The account that the commit names.
        found: Did,
    },
    /// The commit is of another rev.
    #[error("the commit is at {found}, not at {expected}")]
    Rev {
        /// The rev that the event names.
        expected: Rev,
        /// The rev that the commit names.
        found: Rev,
    },
    /// The ops cannot be undone.
    #[error("the ops are not proven")]
    Inversion(#[from] InversionError),
    /// The ops lead from another tree than the event says, so they are not all of the change.
    #[error("the ops lead from {found}, not from {expected}")]
    PrevData {
        /// The root that the event names; that of the empty tree for a first commit.
        expected: Link,
        /// The root that undoing the ops gives.
        found: Link,
    },
    /// The block of a record is not there.
    #[error("the record {cid} at {path} is not among the blocks")]
    MissingRecord {
        /// The path.
        path: RecordPath,
        /// The record.
        cid: Link,
    },
}

impl CommitFault {
    /// What is to be done. A gap counts only once the signature was checked, where the fault was found behind that check.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::TooBig | Self::NoBlocks | Self::MissingCommit(_) | Self::MissingRecord { .. } => Verdict::Gap,
            Self::Inversion(InversionError::Insufficient(_) | InversionError::Unseen(_)) => Verdict::Gap,
            Self::Field { .. }
            | Self::Op(_)
            | Self::Twice(_)
            | Self::Future(_)
            | Self::Car(_)
            | Self::Root { .. }
            | Self::Commit { .. }
            | Self::Account { .. }
            | Self::Rev { .. }
            | Self::Inversion(InversionError::Tree(_) | InversionError::Contradiction { .. })
            | Self::PrevData { .. } => Verdict::Drop,
        }
    }

    /// The kind in a word, for counting.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Field { .. } => "field",
            Self::Op(_) => "op",
            Self::Twice(_) => "twice",
            Self::Future(_) => "future",
            Self::TooBig => "too_big",
            Self::NoBlocks => "no_blocks",
            Self::Car(CheckoutError::Hash { .. }) => "hash",
            Self::Car(_) => "car",
            Self::Root { .. } => "root",
            Self::MissingCommit(_) => "missing_commit",
            Self::Commit { .. } => "commit",
            Self::Account { .. } => "account",
            Self::Rev { .. } => "rev",
            Self::Inversion(InversionError::Tree(_)) => "tree",
            Self::Inversion(InversionError::Contradiction { .. }) => "contradiction",
            Self::Inversion(InversionError::Insufficient(_) | InversionError::Unseen(_)) => "insufficient",
            Self::PrevData { .. } => "prev_data",
            Self::MissingRecord { .. } => "missing_record",
        }
    }
}
