//! The part of a repo that goes with an event.
use std::collections::HashSet;

use bytes::Bytes;

use super::{CommitEvent, EventOp};
use crate::job::OpAction;
use crate::repo::Link;
use crate::sim::frame;
use crate::sim::repo::{Repo, Written};

/// The `#commit` of what was written last: with it go the commit, the new nodes and records, and as much of the tree around each op as it takes to
/// undo them all (atproto.com/specs/sync, "Commit Validation").
pub(in crate::sim) fn commit_event(repo: &mut Repo, written: &Written) -> CommitEvent {
    let op_set = &written.op_set;
    let mut slice = Slice::new(repo);
    written.nodes.iter().for_each(|(link, framed)| slice.framed(*link, framed));
    for op in &op_set.ops {
        // Without stubs nothing of a proof can be missing.
        for (link, block) in repo.tree().proof(op.path.as_str().as_bytes()).unwrap_or_default() {
            slice.framed(link, &frame::of(&link, &block));
        }
        if let OpAction::Create { cid, record } | OpAction::Update { cid, record } = &op.action {
            slice.framed(*cid, &frame::of(cid, record));
        }
    }
    let ops = op_set.ops.iter().zip(&written.before).map(|(op, before)| {
        let (action, cid) = match &op.action {
            OpAction::Create { cid, .. } => ("create", Some(*cid)),
            OpAction::Update { cid, .. } => ("update", Some(*cid)),
            OpAction::Delete => ("delete", None),
        };
        EventOp { action, path: op.path.to_string(), cid, prev: *before }
    });
    CommitEvent {
        rev: op_set.rev,
        since: op_set.since,
        commit: repo.commit,
        data: repo.data,
        prev_data: op_set.prev_data,
        blocks: slice.car.into(),
        ops: ops.collect(),
        too_big: false,
    }
}

/// The `#commit` with which a repo of no records begins: it was made on nothing.
pub(in crate::sim) fn first_commit(repo: &mut Repo) -> CommitEvent {
    let mut slice = Slice::new(repo);
    if let Some(root) = repo.blocks.framed(&repo.data) {
        slice.framed(repo.data, &root);
    }
    CommitEvent {
        rev: repo.rev,
        since: None,
        commit: repo.commit,
        data: repo.data,
        prev_data: None,
        blocks: slice.car.into(),
        ops: Vec::new(),
        too_big: false,
    }
}

/// A CAR of the commit alone.
pub(super) fn commit_only(repo: &Repo) -> Bytes {
    Slice::new(repo).car.into()
}

/// A CAR that holds no block twice.
struct Slice {
    car: Vec<u8>,
    held: HashSet<Link>,
}

impl Slice {
    /// One of the commit alone.
    fn new(repo: &Repo) -> Self {
        let mut slice = Self { car: frame::header(&repo.commit).to_vec(), held: HashSet::new() };
        if let Some(commit) = repo.blocks.framed(&repo.commit) {
            slice.framed(repo.commit, &commit);
        }
        slice
    }

    fn framed(&mut self, link: Link, framed: &[u8]) {
        if self.held.insert(link) {
            self.car.extend_from_slice(framed);
        }
    }
}
