use std::time::Duration;

use super::Missing;
use crate::sim::EventKind;
use crate::syntax::Did;

/// One way in which an upstream tells an event wrongly. It strikes when the event is sequenced there: all who follow that upstream see the same,
/// and see it again when they come with a cursor. The repo itself, and what other upstreams tell, are not touched.
///
/// A fault of what an event holds changes nothing in an event of a kind that does not; its count says that it struck all the same.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventFault {
    /// The event is never told.
    Drop,
    /// The event is told after the next one of its repo.
    Swap,
    /// The event is told twice, under two numbers.
    Twice,
    /// The host of this number tells it too, though the account is not there.
    AlsoAt(usize),
    /// The sequence begins anew, this event being number 1. Nothing from before is retained, open connections are reset.
    Restart,
    /// Before the event the status of its account changes this many times; the last time to what it is.
    Storm(usize),
    /// Before the event comes one of a kind that no client knows.
    UnknownFirst,
    /// The commit is signed with a key that is not the account's.
    WrongKey,
    /// The commit is of another tree than the repo's, one that nobody has; the account's key signed it.
    OtherData,
    /// The rev of event and commit is this far ahead of the real clock; the account's key signed it.
    FutureRev(Duration),
    /// A block is left out: a node that the first op cannot do without, or its record.
    Without(Missing),
    /// One bit of a block is flipped, so that its hash is not what its CID says.
    WrongHash(Missing),
    /// All blocks are left out, down to the last byte.
    NoBlocks,
    /// `tooBig` is set; ops and all blocks but the commit are left out, as hosts did that the commit was too large for.
    TooBig,
    /// `prevData` is another.
    WrongPrevData,
    /// `prevData` is left out, and `prev` of each op.
    NoPrevData,
    /// The first op names another record than the one that was written.
    WrongCid,
    /// `since` is another.
    WrongSince,
    /// There are ops for this many paths more, none of which the repo has.
    MoreOps(usize),
    /// An unrelated block is added, of this many bytes.
    Padded(usize),
    /// The commit is told as a `#sync`: where the repo is now, without the way to it.
    AsSync,
    /// The event says that it is about another account.
    OtherAccount(Did),
    /// A field is left out of the event, given by its name.
    WithoutField(&'static str),
}

impl EventFault {
    /// The kind of events that a rule strikes unless it names another; none: every kind.
    pub(super) fn strikes(&self) -> Option<EventKind> {
        match self {
            EventFault::AlsoAt(_)
            | EventFault::Restart
            | EventFault::Storm(_)
            | EventFault::UnknownFirst
            | EventFault::OtherAccount(_)
            | EventFault::WithoutField(_) => None,
            EventFault::Drop
            | EventFault::Swap
            | EventFault::Twice
            | EventFault::WrongKey
            | EventFault::OtherData
            | EventFault::FutureRev(_)
            | EventFault::Without(_)
            | EventFault::WrongHash(_)
            | EventFault::NoBlocks
            | EventFault::TooBig
            | EventFault::WrongPrevData
            | EventFault::NoPrevData
            | EventFault::WrongCid
            | EventFault::WrongSince
            | EventFault::MoreOps(_)
            | EventFault::Padded(_)
            | EventFault::AsSync => Some(EventKind::Commit),
        }
    }
}
