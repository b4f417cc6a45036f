//! What the events of the firehose say, borrowed from their frames (lexicon com.atproto.sync.subscribeRepos).

use crate::job::Timestamp;
use crate::repo::Link;
use crate::repo::cbor::{Reader, Value};
use crate::syntax::{Datetime, Seq};

/// The most bytes of blocks in a `#commit` (atproto.com/specs/sync).
pub const MAX_COMMIT_BLOCKS: usize = 2_000_000;
/// The most ops in a `#commit`.
pub const MAX_OPS: u64 = 200;
/// The most bytes of blocks in a `#sync`: one commit.
pub const MAX_SYNC_BLOCKS: usize = 10_000;

/// `#commit`: a repo was written to. Everything but what the blocks hold is the word of the upstream alone.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CommitEvent<'a> {
    /// Its number.
    pub seq: Seq,
    /// The account; not checked to be a DID.
    pub repo: &'a str,
    /// The rev that the commit made; not checked to be one.
    pub rev: &'a str,
    /// The rev that it was made on; none for the first commit of a repo.
    pub since: Option<&'a str>,
    /// The commit.
    pub commit: Link,
    /// A CAR with the commit, the records, and a part of the tree.
    pub blocks: &'a [u8],
    /// What it changed.
    pub ops: RawOps<'a>,
    /// The tree root that it was made on; hosts before Sync 1.1 do not send it.
    pub prev_data: Option<Link>,
    /// Whether the blocks were left out for their size, as hosts before Sync 1.1 did.
    pub too_big: bool,
    /// When the upstream emitted it; not checked to be a datetime.
    pub time: &'a str,
}

/// `#sync`: what a repo is now, without the way there.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SyncEvent<'a> {
    /// Its number.
    pub seq: Seq,
    /// The account; not checked to be a DID.
    pub did: &'a str,
    /// The rev of the commit; not checked to be one.
    pub rev: &'a str,
    /// A CAR with the commit.
    pub blocks: &'a [u8],
    /// When the upstream emitted it; not checked to be a datetime.
    pub time: &'a str,
}

/// `#identity`: the account's DID document or handle may have changed.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct IdentityEvent<'a> {
    /// Its number.
    pub seq: Seq,
    /// The account; not checked to be a DID.
    pub did: &'a str,
    /// The handle, as a hint at most.
    pub handle: Option<&'a str>,
    /// When the upstream emitted it; not checked to be a datetime.
    pub time: &'a str,
}

/// `#account`: whether the upstream serves the account's repo.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AccountEvent<'a> {
    /// Its number.
    pub seq: Seq,
    /// The account; not checked to be a DID.
    pub did: &'a str,
    /// Whether it does.
    pub active: bool,
    /// Why not, or what is the matter: `takendown`, `suspended`, `deleted`, `deactivated`, `desynchronized`, `throttled`, or some other word.
    pub status: Option<&'a str>,
    /// When the upstream emitted it; not checked to be a datetime.
    pub time: &'a str,
}

/// The moment that an event's `time` names; none when it is no datetime.
pub fn moment(time: &str) -> Option<Timestamp> {
    Datetime::new(time).ok().map(|time| Timestamp(time.millis()))
}

/// The ops of a commit as they lie in its frame: strict DAG-CBOR, otherwise not looked at.
#[derive(Debug, Clone, Copy)]
pub struct RawOps<'a> {
    len: u64,
    reader: Reader<'a>,
}

impl<'a> RawOps<'a> {
    /// Of the value of `ops`, which was read from strict DAG-CBOR. None when it is no array.
    pub(super) fn new(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Array(len, reader) => Some(Self { len, reader }),
            _ => None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads them one after the other; instead of an op whose field is missing or of the wrong type comes the field's name.
    pub fn iter(&self) -> impl Iterator<Item = Result<RawOp<'a>, &'static str>> + use<'a> {
        let mut reader = self.reader;
        (0..self.len).map(move |_| RawOp::read(&mut reader))
    }
}

/// What an op says it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RawAction {
    /// A record comes to be.
    Create,
    /// A record is replaced.
    Update,
    /// A record ceases to be.
    Delete,
}

/// One op as a frame has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawOp<'a> {
    /// What it says it does.
    pub action: RawAction,
    /// The record; not checked to be a path.
    pub path: &'a str,
    /// The record's CID after the commit; none for a delete.
    pub cid: Option<Link>,
    /// The record's CID before the commit; none for a create, and from hosts before Sync 1.1.
    pub prev: Option<Link>,
}

impl<'a> RawOp<'a> {
    /// Reads an op, leaving the reader behind it.
    fn read(reader: &mut Reader<'a>) -> Result<Self, &'static str> {
        let mut after = *reader;
        after.value().ok_or("ops")?;
        let mut pairs = std::mem::replace(reader, after);
        let (mut action, mut path, mut cid, mut prev) = (None, None, None, None);
        for _ in 0..pairs.map().ok_or("ops")? {
            let (Some(key), Some(value)) = (pairs.text(), pairs.value()) else { return Err("ops") };
            match key {
                "action" => action = Some(value.text().and_then(RawAction::named).ok_or("ops.action")?),
                "path" => path = Some(value.text().ok_or("ops.path")?),
                "cid" => cid = value.optional_link().ok_or("ops.cid")?,
                "prev" => prev = value.optional_link().ok_or("ops.prev")?,
                _ => {}
            }
        }
        Ok(Self { action: action.ok_or("ops.action")?, path: path.ok_or("ops.path")?, cid, prev })
    }
}

impl RawAction {
    fn named(name: &str) -> Option<Self> {
        match name {
            "create" => Some(Self::Create),
            "update" => Some(Self::Update),
            "delete" => Some(Self::Delete),
            _ => None,
        }
    }
}
