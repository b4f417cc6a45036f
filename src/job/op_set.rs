use bytes::Bytes;

use crate::repo::Link;
use crate::syntax::{Did, RecordPath, Rev};

/// The ops of one commit: moves a repo from `since` to `rev`, and its tree from `prev_data` to `data`.
///
/// What the fields claim is for the giver to have verified; the chain rule (I2) is checked here whatever he did.
///
/// An event that tells a state without the way to it is an op set without ops. A `#sync` has its `data` also as `prev_data`: it chains where the
/// tree is the same, and is a gap elsewhere. A commit whose ops are missing or too many to be sent has neither `since` nor `prev_data`: it never chains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpSet {
    /// The repo.
    pub did: Did,
    /// The rev that the commit made.
    pub rev: Rev,
    /// The rev that it was made on; none for the first commit of a repo.
    pub since: Option<Rev>,
    /// The tree root that the commit made, where known.
    pub data: Option<Link>,
    /// The tree root that it was made on, where proven by inverting the ops. None means: not proven, chain by `since`.
    pub prev_data: Option<Link>,
    /// The changes, in the order of the commit; no path twice.
    pub ops: Vec<Op>,
}

/// One change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The record.
    pub path: RecordPath,
    /// What happens to it.
    pub action: OpAction,
}

/// What an op does to its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpAction {
    /// The record comes to be.
    Create {
        /// Its CID.
        cid: Link,
        /// Its DAG-CBOR bytes.
        record: Bytes,
    },
    /// The record is replaced.
    Update {
        /// The CID of the new record.
        cid: Link,
        /// The DAG-CBOR bytes of the new record.
        record: Bytes,
    },
    /// The record ceases to be.
    Delete,
}
