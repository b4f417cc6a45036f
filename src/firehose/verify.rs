//! Whether a `#commit` or `#sync` is true (protocol: Sync 1.1, `#commit` checklist). Pure; what needs the state of the repo or the account's key is
//! for the caller: he looks the key up after the first step, [`Prepared::commit`], and before the others.

use std::time::Duration;

use bytes::Bytes;

use super::event::{CommitEvent, RawAction, RawOp, SyncEvent};
use super::fault::CommitFault;
use super::slice::Slice;
use crate::job::{Op, OpAction, OpSet, Timestamp};
use crate::repo::inversion::{Change, InversionError, invert, resolve};
use crate::repo::{Commit, Link, PublicKey, SignatureError};
use crate::syntax::{Datetime, Did, RecordPath, Rev, SyntaxError};

/// How far ahead of the clock a rev may lie.
pub const MAX_AHEAD: Duration = Duration::from_secs(5 * 60);

/// The block of the tree without records.
const EMPTY_TREE: &[u8] = b"\xa2\x61e\x80\x61l\xf6";

/// How much of what an upstream sends is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verification {
    /// Signatures, and that the ops of a commit are all that it changed.
    #[default]
    Full,
    /// Signatures. That the ops are what the commit changed is the word of the upstream.
    Signature,
    /// Hashes alone, for upstreams that are trusted like oneself.
    None,
}

impl Verification {
    /// The level in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Signature => "signature",
            Self::None => "none",
        }
    }
}

/// An event that is sound in itself: its texts and hashes are in order and its commit is its own. Not yet whether the commit is signed, nor whether the ops
/// are what it changed.
#[derive(Debug)]
pub struct Prepared {
    commit: Commit,
    slice: Slice,
    /// The size of the frame, which the slice keeps in memory.
    frame: usize,
    told: Told,
}

/// What the event says beside the commit itself.
#[derive(Debug)]
enum Told {
    Commit { since: Option<Rev>, prev_data: Option<Link>, ops: Vec<ToldOp>, too_big: bool },
    Sync,
}

#[derive(Debug)]
struct ToldOp {
    path: RecordPath,
    action: RawAction,
    cid: Option<Link>,
    prev: Option<Link>,
}

impl Prepared {
    /// Checks what can be checked of a `#commit` without a key: the syntax of its fields, that no path is changed twice, that its rev is not too far
    /// ahead of `now`, the hash of every block, and that the commit is the one that the event tells of. `frame` is what `event` was read from.
    ///
    /// # Errors
    /// With the first rule broken. Whatever the verdict, the event's account and rev are then the word of the upstream alone.
    pub fn commit(frame: &Bytes, event: &CommitEvent<'_>, now: Timestamp) -> Result<Self, CommitFault> {
        let header = Header::new("repo", event.repo, event.rev, event.time, now)?;
        let since = event.since.map(Rev::new).transpose().map_err(field("since"))?;
        let provable = event.prev_data.is_some() || since.is_none();
        let mut ops = Vec::with_capacity(event.ops.len() as usize);
        for op in event.ops.iter() {
            let op = op.map_err(CommitFault::Op)?;
            // An update to the same record changes nothing, so there is nothing to tell the consumer.
            if !(op.action == RawAction::Update && op.cid.is_some() && op.cid == op.prev) {
                ops.push(ToldOp::new(&op, provable)?);
            }
        }
        unique(&ops)?;
        if event.blocks.is_empty() {
            return Err(if event.too_big { CommitFault::TooBig } else { CommitFault::NoBlocks });
        }
        let told = Told::Commit { since, prev_data: event.prev_data, ops, too_big: event.too_big };
        Self::new(header, frame, event.blocks, Some(event.commit), told)
    }

    /// Checks what can be checked of a `#sync` without a key, as [`Self::commit`] does.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn sync(frame: &Bytes, event: &SyncEvent<'_>, now: Timestamp) -> Result<Self, CommitFault> {
        let header = Header::new("did", event.did, event.rev, event.time, now)?;
        if event.blocks.is_empty() {
            return Err(CommitFault::NoBlocks);
        }
        Self::new(header, frame, event.blocks, None, Told::Sync)
    }

    fn new(header: Header, frame: &Bytes, blocks: &[u8], link: Option<Link>, told: Told) -> Result<Self, CommitFault> {
        let slice = Slice::read(share(frame, blocks)).map_err(CommitFault::Car)?;
        let (root, link) = (slice.root(), link.unwrap_or(slice.root()));
        if root != link {
            return Err(CommitFault::Root { root, commit: link });
        }
        let block = slice.get(&link).ok_or(CommitFault::MissingCommit(link))?;
        let commit = Commit::decode_at(link, block).map_err(|source| CommitFault::Commit { link, source })?;
        if *commit.did() != header.did {
            return Err(CommitFault::Account { expected: header.did, found: commit.did().clone() });
        }
        if commit.rev() != header.rev {
            return Err(CommitFault::Rev { expected: header.rev, found: commit.rev() });
        }
        Ok(Self { commit, slice, frame: frame.len(), told })
    }

    /// The account.
    pub fn did(&self) -> &Did {
        self.commit.did()
    }

    /// The rev that the repo is now at.
    pub fn rev(&self) -> Rev {
        self.commit.rev()
    }

    /// The root of the tree that the repo now has.
    pub fn data(&self) -> Link {
        self.commit.data()
    }

    /// Whether the event is a `#commit` that names the tree it was made on, as every host since Sync 1.1 has it.
    pub fn names_prev_data(&self) -> bool {
        matches!(self.told, Told::Commit { prev_data: Some(_), .. })
    }

    /// Checks the signature of the commit.
    ///
    /// # Errors
    /// When it is not of this key.
    pub fn signed_by(&self, key: &PublicKey) -> Result<(), SignatureError> {
        key.verify(self.commit.unsigned(), self.commit.signature())
    }

    /// Proves that the ops are what the commit changed, all of it, by undoing them; `prev_data` of the op set is then proven. Of a commit that names no
    /// tree it was made on, other than a first one, only that the tree agrees with each op.
    ///
    /// # Errors
    /// When the tree says otherwise ([`Verdict::Drop`](super::Verdict)), or the blocks do not suffice ([`Verdict::Gap`](super::Verdict), which
    /// [`Self::gap`] makes an op set of).
    pub fn prove(&self) -> Result<OpSet, CommitFault> {
        let Told::Commit { since, prev_data, ops, too_big } = &self.told else { return Ok(self.state(Some(self.data()))) };
        if *too_big {
            return Err(CommitFault::TooBig);
        }
        let changes: Vec<Change<'_>> = ops.iter().map(ToldOp::change).collect();
        let block = |link: &Link| self.slice.get(link);
        let expected = prev_data.or_else(|| since.is_none().then(|| Link::of(EMPTY_TREE)));
        match expected {
            Some(expected) => {
                let found = match invert(self.data(), block, &changes) {
                    Err(InversionError::Unseen(root)) if root == expected => root,
                    found => found?,
                };
                if found != expected {
                    return Err(CommitFault::PrevData { expected, found });
                }
            }
            None => resolve(self.data(), block, &changes)?,
        }
        self.op_set(*since, expected, ops)
    }

    /// The op set as the upstream tells it, for the levels below [`Verification::Full`]. The records have the CIDs that the ops name.
    ///
    /// # Errors
    /// When a record is not there.
    pub fn unproven(&self) -> Result<OpSet, CommitFault> {
        match &self.told {
            Told::Sync => Ok(self.state(Some(self.data()))),
            Told::Commit { too_big: true, .. } => Err(CommitFault::TooBig),
            Told::Commit { since, ops, .. } => self.op_set(*since, None, ops),
        }
    }

    /// An op set without ops that starts nowhere, for an event that tells that the repo moved but not how.
    pub fn gap(&self) -> OpSet {
        self.state(None)
    }

    fn state(&self, prev_data: Option<Link>) -> OpSet {
        OpSet { did: self.did().clone(), rev: self.rev(), since: None, data: Some(self.data()), prev_data, ops: Vec::new() }
    }

    fn op_set(&self, since: Option<Rev>, prev_data: Option<Link>, ops: &[ToldOp]) -> Result<OpSet, CommitFault> {
        let lent = ops.iter().filter_map(|op| self.slice.get(&op.cid?)).map(<[u8]>::len).sum::<usize>();
        // Records share the memory of their frame, unless they are so little of it that a buffer of them would hold many times its size.
        let sharing = lent >= self.frame / 4;
        let record = |op: &ToldOp, cid: Link| {
            let record = if sharing { self.slice.share(&cid) } else { self.slice.get(&cid).map(Bytes::copy_from_slice) };
            record.ok_or_else(|| CommitFault::MissingRecord { path: op.path.clone(), cid })
        };
        let told = |op: &ToldOp| {
            let action = match (op.action, op.cid) {
                (RawAction::Create, Some(cid)) => OpAction::Create { cid, record: record(op, cid)? },
                (RawAction::Update, Some(cid)) => OpAction::Update { cid, record: record(op, cid)? },
                (RawAction::Delete, _) | (_, None) => OpAction::Delete,
            };
            Ok(Op { path: op.path.clone(), action })
        };
        let ops = ops.iter().map(told).collect::<Result<_, CommitFault>>()?;
        Ok(OpSet { did: self.did().clone(), rev: self.rev(), since, data: Some(self.data()), prev_data, ops })
    }
}

/// What every event says of its commit.
struct Header {
    did: Did,
    rev: Rev,
}

impl Header {
    fn new(name: &'static str, did: &str, rev: &str, time: &str, now: Timestamp) -> Result<Self, CommitFault> {
        let did = Did::new(did).map_err(field(name))?;
        let rev = Rev::new(rev).map_err(field("rev"))?;
        Datetime::new(time).map_err(field("time"))?;
        if (rev.micros() / 1000) as i64 > now.plus(MAX_AHEAD).0 {
            return Err(CommitFault::Future(rev));
        }
        Ok(Self { did, rev })
    }
}

fn field(field: &'static str) -> impl FnOnce(SyntaxError) -> CommitFault {
    move |source| CommitFault::Field { field, source }
}

impl ToldOp {
    /// Of a commit whose ops can be undone, every op must say what was there before.
    fn new(op: &RawOp<'_>, provable: bool) -> Result<Self, CommitFault> {
        let path = RecordPath::new(op.path).map_err(field("ops.path"))?;
        if op.cid.is_some() == (op.action == RawAction::Delete) {
            return Err(CommitFault::Op("ops.cid"));
        }
        if provable && op.prev.is_some() == (op.action == RawAction::Create) {
            return Err(CommitFault::Op("ops.prev"));
        }
        Ok(Self { path, action: op.action, cid: op.cid, prev: op.prev })
    }

    fn change(&self) -> Change<'_> {
        Change { key: self.path.as_str().as_bytes(), cid: self.cid, prev: self.prev }
    }
}

fn unique(ops: &[ToldOp]) -> Result<(), CommitFault> {
    if ops.len() < 2 {
        return Ok(());
    }
    let mut paths: Vec<&RecordPath> = ops.iter().map(|op| &op.path).collect();
    paths.sort_unstable();
    match paths.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CommitFault::Twice(pair[0].clone())),
        None => Ok(()),
    }
}

/// A part of a frame, sharing its memory.
fn share(frame: &Bytes, part: &[u8]) -> Bytes {
    let (frame_at, part_at) = (frame.as_ptr() as usize, part.as_ptr() as usize);
    match part_at.checked_sub(frame_at) {
        Some(start) if start + part.len() <= frame.len() => frame.slice(start..start + part.len()),
        _ => Bytes::copy_from_slice(part),
    }
}
