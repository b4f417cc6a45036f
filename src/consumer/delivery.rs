use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::repo::Link;
use crate::syntax::{Did, RecordPathRef, Rev};

/// Changes of one repo, handed to the handler together.
///
/// One path occurs at most once in a checkout's delivery; in a live one, the changes are in the order of their commits.
/// The changes lie in two buffers of the delivery, so that a record costs no allocation of its own.
pub struct Delivery {
    did: Did,
    rev: Rev,
    origin: Origin,
    entries: Vec<Entry>,
    paths: String,
    bytes: Vec<u8>,
    parallel: usize,
    rejected: AtomicU64,
    /// Changes that the default [`super::Handler::batch`] has seen acknowledged; empty before the first.
    acknowledged: OnceLock<Box<[AtomicBool]>>,
}

/// Where the changes of a delivery come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A checkout: the repo as it was at one rev. Its deliveries may reach the handler several at once, in any order.
    Checkout,
    /// Op sets, in the order of their revs; nothing else of the repo is in flight.
    Live,
}

/// What happens to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The consumer does not have it yet (or may have it, after a crash).
    Create,
    /// The consumer has an older one (or may have this one, after a crash).
    Update,
    /// The consumer has it (or may have it, after a crash), and it is no more.
    Delete,
}

/// A record as it lies in its repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where.
    pub path: RecordPathRef<'a>,
    /// The CID of its bytes.
    pub cid: Link,
    /// Its DAG-CBOR, checked to be well-formed. [`crate::repo::record`] decodes it.
    pub bytes: &'a [u8],
}

/// One change of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// See [`Action::Create`].
    Create(Record<'a>),
    /// See [`Action::Update`].
    Update(Record<'a>),
    /// See [`Action::Delete`].
    Delete(RecordPathRef<'a>),
}

struct Entry {
    action: Action,
    cid: Link,
    path_end: usize,
    bytes_end: usize,
}

impl Delivery {
    /// `parallel`: how many changes the default [`super::Handler::batch`] may have in hand at once.
    pub(crate) fn new(did: Did, rev: Rev, origin: Origin, parallel: usize) -> Self {
        Self {
            did,
            rev,
            origin,
            entries: Vec::new(),
            paths: String::new(),
            bytes: Vec::new(),
            parallel,
            rejected: AtomicU64::new(0),
            acknowledged: OnceLock::new(),
        }
    }

    pub(crate) fn push(&mut self, change: Change<'_>) {
        let (action, path, cid, bytes) = match change {
            Change::Create(record) => (Action::Create, record.path, record.cid, record.bytes),
            Change::Update(record) => (Action::Update, record.path, record.cid, record.bytes),
            Change::Delete(path) => (Action::Delete, path, Link::from_digest([0; 32]), &[][..]),
        };
        self.paths.push_str(path.as_str());
        self.bytes.extend_from_slice(bytes);
        self.entries.push(Entry { action, cid, path_end: self.paths.len(), bytes_end: self.bytes.len() });
    }

    /// Moves the delivery to a later rev; the changes pushed from now on are of that commit.
    pub(crate) fn set_rev(&mut self, rev: Rev) {
        self.rev = rev;
    }

    /// The repo.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// The rev at which the repo stands once all changes are made.
    pub fn rev(&self) -> Rev {
        self.rev
    }

    /// Where the changes come from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no change; the handler never sees such a delivery.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all records and paths: what the delivery weighs in memory.
    pub fn weight(&self) -> usize {
        self.paths.len() + self.bytes.len()
    }

    pub(super) fn parallel(&self) -> usize {
        self.parallel
    }

    pub(super) fn acknowledge(&self, at: usize) {
        let all = self.acknowledged.get_or_init(|| self.entries.iter().map(|_| AtomicBool::new(false)).collect());
        if let Some(change) = all.get(at) {
            change.store(true, Ordering::Release);
        }
    }

    /// Has every change come again, as if the acknowledgements had been lost.
    #[cfg(feature = "sim")]
    pub(crate) fn forget_acknowledged(&self) {
        self.acknowledged.get().into_iter().flatten().for_each(|change| change.store(false, Ordering::Release));
    }

    pub(super) fn is_acknowledged(&self, at: usize) -> bool {
        self.acknowledged.get().and_then(|all| all.get(at)).is_some_and(|change| change.load(Ordering::Acquire))
    }

    pub(super) fn count_rejected(&self, reason: &(dyn std::error::Error + Send + Sync + 'static)) {
        tracing::warn!(did = %self.did, rev = %self.rev, %reason, "the handler rejects a change");
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// How many changes the handler has rejected one by one.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// The changes in order.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = Change<'_>> {
        let (mut path_at, mut bytes_at) = (0, 0);
        self.entries.iter().map(move |entry| {
            let path = RecordPathRef::assume_valid(&self.paths[path_at..entry.path_end]);
            let record = Record { path, cid: entry.cid, bytes: &self.bytes[bytes_at..entry.bytes_end] };
            (path_at, bytes_at) = (entry.path_end, entry.bytes_end);
            match entry.action {
                Action::Create => Change::Create(record),
                Action::Update => Change::Update(record),
                Action::Delete => Change::Delete(path),
            }
        })
    }
}

impl<'a> Change<'a> {
    /// What happens.
    pub fn action(&self) -> Action {
        match self {
            Change::Create(_) => Action::Create,
            Change::Update(_) => Action::Update,
            Change::Delete(_) => Action::Delete,
        }
    }

    /// To which record.
    pub fn path(&self) -> RecordPathRef<'a> {
        match self {
            Change::Create(record) | Change::Update(record) => record.path,
            Change::Delete(path) => *path,
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delivery({} {} {:?}, {} changes)", self.did, self.rev, self.origin, self.len())
    }
}
