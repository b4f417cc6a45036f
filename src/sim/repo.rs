use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::blocks::Blocks;
use super::export::Export;
use super::frame;
use crate::job::{Op, OpAction, OpSet};
use crate::repo::export::signed_commit;
use crate::repo::mst::Tree;
use crate::repo::{Link, SigningKey};
use crate::syntax::{Did, RecordPath, Rev};

/// Deleted paths that a repo remembers, so that random writes can make them again.
const DELETED: usize = 32;

/// A change that a write asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A record at a path that holds none.
    Create(RecordPath, Bytes),
    /// Another record at a path that holds one.
    Update(RecordPath, Bytes),
    /// No record any more.
    Delete(RecordPath),
}

impl Change {
    /// The path that changes.
    pub fn path(&self) -> &RecordPath {
        match self {
            Change::Create(path, _) | Change::Update(path, _) | Change::Delete(path) => path,
        }
    }
}

/// Why a write was not made. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No repo of this world.
    #[error("{0} is not an account of this world")]
    UnknownRepo(Did),
    /// A create of a path that holds a record.
    #[error("{path} in {did} exists already")]
    Exists {
        /// The repo.
        did: Did,
        /// The path.
        path: RecordPath,
    },
    /// An update or delete of a path that holds no record.
    #[error("{path} in {did} does not exist")]
    Missing {
        /// The repo.
        did: Did,
        /// The path.
        path: RecordPath,
    },
    /// An update to the record that is there, which would be no change.
    #[error("{path} in {did} is this record already")]
    Unchanged {
        /// The repo.
        did: Did,
        /// The path.
        path: RecordPath,
    },
    /// Two changes of one path in one commit.
    #[error("{path} in {did} is changed twice in one commit")]
    Twice {
        /// The repo.
        did: Did,
        /// The path.
        path: RecordPath,
    },
    /// A rev that is not higher than the repo's.
    #[error("{did} is at {stands}, so its next rev cannot be {rev}")]
    RevDoesNotRise {
        /// The repo.
        did: Did,
        /// The rev asked for.
        rev: Rev,
        /// The rev of the repo.
        stands: Rev,
    },
}

/// A record as a repo holds it: its frame.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    frame: Bytes,
}

impl Leaf {
    pub(super) fn new(frame: Bytes) -> Self {
        Self { frame }
    }

    fn at(&self) -> frame::Frame {
        frame::iter(&self.frame).next().expect("a leaf is one whole frame")
    }

    pub(super) fn link(&self) -> Link {
        frame::link(&self.frame, self.at())
    }

    pub(super) fn record(&self) -> Bytes {
        self.frame.slice(self.at().block..)
    }
}

/// What a write made.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) op_set: OpSet,
    /// The record that was at the path of each op.
    pub(super) before: Vec<Option<Link>>,
    /// The new nodes of the tree, framed.
    pub(super) nodes: Vec<(Link, Bytes)>,
}

/// One repo, at its current commit.
#[derive(Debug, Clone)]
pub(super) struct Repo {
    did: Did,
    /// When the repo came to be, in microseconds since the Unix epoch.
    pub(super) since: u64,
    pub(super) rev: Rev,
    pub(super) data: Link,
    pub(super) commit: Link,
    pub(super) leaves: BTreeMap<RecordPath, Leaf>,
    pub(super) blocks: Blocks,
    /// Made by the first write.
    tree: Option<Tree>,
    pub(super) deleted: VecDeque<RecordPath>,
    export: Option<Arc<Export>>,
    streamable: Option<Arc<Export>>,
    pub(super) remembered: Arc<Export>,
    /// The rev that the repo was made with: all blocks that are not recent are of that rev or older.
    made_at: Rev,
}

impl Repo {
    pub(super) fn new(
        did: Did,
        since: u64,
        rev: Rev,
        data: Link,
        commit: Link,
        leaves: BTreeMap<RecordPath, Leaf>,
        blocks: Blocks,
    ) -> Self {
        let export = Arc::new(Export::new(commit, blocks.pieces()));
        let (deleted, remembered) = (VecDeque::new(), Arc::clone(&export));
        Self {
            did,
            since,
            rev,
            data,
            commit,
            leaves,
            blocks,
            tree: None,
            deleted,
            export: Some(export),
            streamable: None,
            remembered,
            made_at: rev,
        }
    }

    /// The export in the order of the reference implementation.
    pub(super) fn export(&mut self) -> Arc<Export> {
        Arc::clone(self.export.get_or_insert_with(|| Arc::new(Export::new(self.commit, self.blocks.pieces()))))
    }

    /// The export of what is newer than a rev, or of everything where that is not known.
    pub(super) fn export_since(&mut self, since: Rev) -> Arc<Export> {
        if since < self.made_at {
            return self.export();
        }
        Arc::new(Export::new(self.commit, self.blocks.pieces_since(since)))
    }

    /// The tree, made if it is not there.
    pub(super) fn tree(&mut self) -> &mut Tree {
        let leaves = &self.leaves;
        self.tree.get_or_insert_with(|| {
            let mut tree: Tree = leaves.iter().map(|(path, leaf)| (path.as_str().as_bytes(), leaf.link())).collect();
            tree.seal();
            tree
        })
    }

    /// The export in streamable order.
    pub(super) fn streamable(&mut self) -> Arc<Export> {
        if let Some(export) = &self.streamable {
            return Arc::clone(export);
        }
        let plain = self.export();
        let tree = self.tree().clone();
        let export = Arc::new(Export::streamable(self.commit, &plain, &tree, &self.leaves));
        self.streamable = Some(Arc::clone(&export));
        export
    }

    fn check(&self, rev: Rev, changes: &[Change]) -> Result<(), WriteError> {
        let did = || self.did.clone();
        if rev <= self.rev {
            return Err(WriteError::RevDoesNotRise { did: did(), rev, stands: self.rev });
        }
        let mut seen = BTreeSet::new();
        for change in changes {
            let path = change.path().clone();
            if !seen.insert(change.path()) {
                return Err(WriteError::Twice { did: did(), path });
            }
            match (change, self.leaves.get(change.path())) {
                (Change::Create(..), Some(_)) => return Err(WriteError::Exists { did: did(), path }),
                (Change::Update(..) | Change::Delete(_), None) => return Err(WriteError::Missing { did: did(), path }),
                (Change::Update(_, record), Some(leaf)) if Link::of(record) == leaf.link() => {
                    return Err(WriteError::Unchanged { did: did(), path });
                }
                (Change::Create(..), None) | (Change::Update(..) | Change::Delete(_), Some(_)) => {}
            }
        }
        Ok(())
    }

    /// Makes one commit of these changes (of none: a commit that only proves a key).
    pub(super) fn write(&mut self, rev: Rev, changes: Vec<Change>, key: &SigningKey) -> Result<Written, WriteError> {
        self.check(rev, &changes)?;
        self.tree();
        self.blocks.open(self.leaves.values().map(Leaf::link));
        let (mut ops, mut before) = (Vec::with_capacity(changes.len()), Vec::with_capacity(changes.len()));
        for change in changes {
            before.push(self.leaves.get(change.path()).map(Leaf::link));
            ops.push(self.change(rev, change));
        }
        let sealed = self.tree().seal();
        for link in sealed.removed {
            self.blocks.remove(link);
        }
        let nodes: Vec<(Link, Bytes)> = sealed.created.iter().map(|(link, block)| (*link, self.blocks.add(rev, *link, block))).collect();
        let (commit, signed) = signed_commit(&self.did, rev, sealed.root, key);
        self.blocks.remove(self.commit);
        self.blocks.add(rev, commit, &signed);
        self.commit = commit;
        let since = std::mem::replace(&mut self.rev, rev);
        let prev_data = std::mem::replace(&mut self.data, sealed.root);
        (self.export, self.streamable) = (None, None);
        let op_set = OpSet { did: self.did.clone(), rev, since: Some(since), data: Some(sealed.root), prev_data: Some(prev_data), ops };
        Ok(Written { op_set, before, nodes })
    }

    fn change(&mut self, rev: Rev, change: Change) -> Op {
        match change {
            Change::Create(path, record) => {
                let cid = self.put(rev, &path, &record);
                Op { path, action: OpAction::Create { cid, record } }
            }
            Change::Update(path, record) => {
                let cid = self.put(rev, &path, &record);
                Op { path, action: OpAction::Update { cid, record } }
            }
            Change::Delete(path) => {
                // Without stubs no edit of a tree can fail.
                _ = self.tree().remove(path.as_str().as_bytes());
                if let Some(leaf) = self.leaves.remove(&path) {
                    self.blocks.remove(leaf.link());
                }
                self.deleted.truncate(DELETED - 1);
                self.deleted.push_front(path.clone());
                Op { path, action: OpAction::Delete }
            }
        }
    }

    fn put(&mut self, rev: Rev, path: &RecordPath, record: &Bytes) -> Link {
        let link = Link::of(record);
        _ = self.tree().insert(path.as_str().as_bytes(), link);
        let leaf = Leaf::new(self.blocks.add(rev, link, record));
        if let Some(before) = self.leaves.insert(path.clone(), leaf) {
            self.blocks.remove(before.link());
        }
        self.deleted.retain(|deleted| deleted != path);
        link
    }

    /// The export with a commit that another key signed.
    pub(super) fn signed_by(&mut self, key: &SigningKey) -> Arc<Export> {
        let (commit, signed) = signed_commit(&self.did, self.rev, self.data, key);
        Arc::new(self.export().with_commit(&self.commit, commit, &signed))
    }
}
