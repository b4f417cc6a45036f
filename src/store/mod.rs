//! The store: what survives a crash. One trait, two implementations, one conformance suite.
//!
//! Every method is one transaction. A method that acts on a claimed job names its epoch and answers [`Standing::Superseded`],
//! with nothing written, when the job is gone or another epoch has begun; that is how a purge or a new claim ends a worker.
//!
//! A job is *held* while it is in progress or complete. When it ceases to be held, by whatever event, its epoch ends, and what is left in its buffer
//! leaves it: the paths may have reached the handler without having been acknowledged, so they become an intent.

mod account_rules;
mod audit;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod check;
mod error;
mod fleet;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use audit::{AuditId, AuditState};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use check::{StoreCheck, StoreStats};
pub use error::StoreError;
pub use fleet::{Fleet, Renewal, Share};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::firehose::SavedCursor;
use crate::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Position, Route, Timestamp};
use crate::manifest::{Chunk, Edit};
use crate::syntax::{Did, RecordPath, Seq};

/// What a store method returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Durable state of jobs. See the module for what all methods have in common.
pub trait Store: Debug + Send + Sync + 'static {
    /// Interns a consumer by name. Idempotent.
    fn consumer<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ConsumerId>;

    /// The names of all consumers that were ever interned, in no order.
    fn consumers(&self) -> StoreFuture<'_, Vec<String>>;

    /// Adds jobs that are not there yet, as enqueued. Idempotent: a job that exists is not touched. Returns how many were added.
    fn enqueue<'a>(&'a self, consumer: ConsumerId, dids: &'a [Did]) -> StoreFuture<'a, u64>;

    /// Applies [`JobEvent::Wanted`] to a job; enqueued or in progress it changes nothing. `false` when there is no such job.
    fn want<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool>;

    /// Removes a job with its buffer, intents and manifest. `false` when there was none.
    fn purge<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool>;

    /// One job.
    fn job<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Option<Job>>;

    /// A page of jobs in the order of their ids, after `after`, at most `limit`.
    fn jobs(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>>;

    /// How many jobs are in each state, and the sums of records, buffered op sets and buffered bytes.
    fn totals(&self, consumer: ConsumerId) -> StoreFuture<'_, Totals>;

    /// Repos of any consumer with a job that may be claimed now (enqueued, or failed with `retry_at` passed), at most `limit`.
    /// `Where::Unplaced`: those whose host is not known. `Where::Host`: those of one host. Enqueued ones first, in the order in which they were added,
    /// then failed ones, the longest due first.
    fn due<'a>(&'a self, place: Where<'a>, now: Timestamp, limit: usize) -> StoreFuture<'a, Vec<Did>>;

    /// Hosts that have a job that may be claimed now, in no order, and the earliest moment at which a failed job will come due, if any.
    fn due_hosts(&self, now: Timestamp) -> StoreFuture<'_, DueHosts>;

    /// Remembers which host holds a repo, for all its jobs, and those that are added later. Nothing for a repo that never had a job.
    fn place<'a>(&'a self, did: &'a Did, host: &'a str) -> StoreFuture<'a, ()>;

    /// Takes every claimable job of one repo, all consumers together: state in progress, a new epoch, atomically; a job is claimed once.
    /// Empty when there is nothing to claim, or the host of the repo is another process's, or whoever follows an upstream does not know of it yet.
    fn claim<'a>(&'a self, did: &'a Did, now: Timestamp) -> StoreFuture<'a, Vec<Job>>;

    /// Routes one op set of one job, by [`route`](crate::job::route) on what this transaction reads, and appends it to the buffer where that says so.
    /// Unless it is stale, its rev raises `min_rev`. Past `budget` bytes the buffer is emptied instead, its paths become an intent, and the answer is
    /// [`Route::Gap`]: a complete job gets [`JobEvent::Gap`]; one in progress goes on, and will be found behind its `min_rev` unless its checkout is newer.
    /// An unavailable job gets [`JobEvent::Wanted`] if the rev is above every one that is known of it ([`Route::Rearmed`]).
    fn append<'a>(&'a self, consumer: ConsumerId, op_set: &'a OpSet, budget: u64) -> StoreFuture<'a, Route>;

    /// Something was lost of which only the repo is known, not the rev: a job that is complete or in progress gets [`JobEvent::Gap`], since its checkout may be older.
    fn gap<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Route>;

    /// Notes what an upstream says of an account, unless that upstream has said something later already. Unavailable: the job gets [`JobEvent::Unavailable`], and if it is
    /// deleted loses buffer, intents and manifest. Active: an unavailable job gets [`JobEvent::Wanted`]. A change is to be told to the consumer ([`Job::untold`]).
    fn account<'a>(
        &'a self,
        consumer: ConsumerId,
        did: &'a Did,
        upstream: UpstreamId,
        seq: Seq,
        account: Account,
    ) -> StoreFuture<'a, AccountRoute>;

    /// The consumer has acknowledged what it was told first of [`Job::untold`]. Nothing when that is another by now.
    fn told(&self, job: JobId, account: Account) -> StoreFuture<'_, ()>;

    /// Interns an upstream by name and reads its cursor: the last event at or below which everything is settled, and when it was made.
    fn upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (UpstreamId, Option<SavedCursor>)>;

    /// Saves the cursor of an upstream. Nothing when the upstream has restarted since.
    fn save_cursor(&self, upstream: UpstreamId, cursor: SavedCursor) -> StoreFuture<'_, ()>;

    /// The sequence of an upstream has restarted: its cursor is forgotten, and so are the sequence numbers of its account events, since it gets a new id.
    fn restart_upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, UpstreamId>;

    /// Op sets in the buffer of a job in order, from the first, until `max_bytes` are reached (at least one, if there is one).
    fn buffered(&self, job: JobId, max_bytes: u64) -> StoreFuture<'_, Vec<(BufferSeq, OpSet)>>;

    /// Complete jobs with a buffer that is not empty, and jobs in any state with something to tell of their account, for start-up. At most `limit`, after `after`.
    fn unflushed(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>>;

    /// Records, before they are handed to the handler, which paths a delivery may change; in any order. Until the intent is ended by [`Store::advance`],
    /// the consumer's copy of these paths is in doubt, and the next checkout brings them again or deletes them. None: superseded.
    fn intend<'a>(&'a self, job: JobId, epoch: Epoch, paths: &'a [RecordPath]) -> StoreFuture<'a, Option<IntentId>>;

    /// The paths of all intents of a job, sorted, no path twice.
    fn in_doubt(&self, job: JobId) -> StoreFuture<'_, Vec<RecordPath>>;

    /// Chunks of the manifest in order, at most `limit` (at least 2), that may hold paths greater than `after`: from the last whose first path is not
    /// greater than it, or from the first of all. Chunks are split and merged while a checkout goes on, so only a path names a place in a manifest.
    fn manifest<'a>(&'a self, job: JobId, after: Option<&'a RecordPath>, limit: usize) -> StoreFuture<'a, Vec<Chunk>>;

    /// Records what the handler has acknowledged (I4): manifest, buffer rows, intent, position, and, where asked, completion, in one transaction.
    fn advance(&self, advance: Advance) -> StoreFuture<'_, Standing>;

    /// Ends a claim in another way than by completion: applies the event; but [`JobEvent::Released`] in place of [`JobEvent::Unavailable`] where op sets have come during
    /// the claim, because they say otherwise. `in_doubt` paths and those of the buffer become an intent; the buffer is emptied.
    /// Also tells a job that nobody holds that its account is unavailable, by the epoch it was read with.
    fn settle<'a>(
        &'a self,
        job: JobId,
        epoch: Epoch,
        event: JobEvent,
        failure: &'a str,
        in_doubt: &'a [RecordPath],
    ) -> StoreFuture<'a, Standing>;

    /// Start-up of a store that is one process's alone: every job in progress gets [`JobEvent::Abandoned`]. Returns how many. A failed job whose next attempt lies further
    /// ahead of `now` than any delay is long was dated by a clock that has been set back since, and gets [`JobEvent::Wanted`]. Where processes share a store, a host is
    /// recovered by whoever takes it ([`Fleet::renew`]).
    fn recover(&self, now: Timestamp) -> StoreFuture<'_, u64>;

    /// Remembers that an audit of all jobs is due, from the first; one that is under way is forgotten. `reason` is cut to 512 bytes.
    fn audit_begin<'a>(&'a self, consumer: ConsumerId, reason: &'a str, now: Timestamp) -> StoreFuture<'a, AuditId>;

    /// The audit that is due or under way.
    fn audit(&self, consumer: ConsumerId) -> StoreFuture<'_, Option<AuditState>>;

    /// Remembers how far an audit is: [`AuditState::after`] and [`AuditState::passed`]. `false`, with nothing written, when it has ended or another has begun.
    fn audit_checkpoint(&self, consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> StoreFuture<'_, bool>;

    /// Forgets an audit: it is done. `false`, with nothing written, when it has ended or another has begun.
    fn audit_end(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, bool>;

    /// What other processes have to do with this store; none when it is one process's alone.
    fn fleet(&self) -> Option<&dyn Fleet> {
        None
    }
}

/// Whether what was committed is on the disk. Either way a commit is whole or not there, and the end of the process alone undoes none.
///
/// The engine answers for [`Durability::Normal`]: what was undone is fetched or delivered again. One thing it cannot know: a record that was delivered, and
/// deleted upstream before the machine was back, then stays with the consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// A commit waits for the disk: a loss of power undoes nothing. SQLite: `synchronous = FULL`; PostgreSQL: `synchronous_commit = on`.
    Full,
    /// A commit does not wait: a loss of power, or on PostgreSQL a crash of its server, may undo the last ones (PostgreSQL: of less than a second).
    /// SQLite: `synchronous = NORMAL`; PostgreSQL: `synchronous_commit = off`.
    Normal,
}

/// Names the sequence of an upstream: another after it has restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub i64);

/// What becomes of an account event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountRoute {
    /// There is no such job.
    Unknown,
    /// The upstream has said something later already.
    Stale,
    /// It says what is known.
    Unchanged,
    /// The job or what the consumer is to be told has changed.
    Changed,
}

/// Names an intent within one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntentId(pub i64);

/// Which jobs [`Store::due`] looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where<'a> {
    /// Those whose host is not known.
    Unplaced,
    /// Those of one host.
    Host(&'a str),
}

/// What [`Store::due_hosts`] answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DueHosts {
    /// Hosts with at least one claimable job.
    pub hosts: Vec<String>,
    /// Whether a claimable job has no known host.
    pub unplaced: bool,
    /// The earliest `retry_at` that is still to come.
    pub next_retry: Option<Timestamp>,
}

/// Sums over the jobs of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Jobs that wait for a checkout.
    pub enqueued: u64,
    /// Jobs with a checkout or its flush under way.
    pub in_progress: u64,
    /// Jobs that follow.
    pub complete: u64,
    /// Jobs that will be tried again.
    pub failed: u64,
    /// Jobs whose account is not to be had.
    pub unavailable: u64,
    /// Records in all manifests.
    pub records: u64,
    /// Op sets in all buffers.
    pub buffered_op_sets: u64,
    /// Bytes in all buffers.
    pub buffered_bytes: u64,
    /// Op sets that ever left a buffer without having been flushed; the next checkout stands for them.
    pub dropped_op_sets: u64,
    /// Jobs with something that the consumer has not acknowledged of their account.
    pub untold: u64,
}

/// What a handler has acknowledged, to be recorded in one transaction.
#[derive(Debug, Clone)]
pub struct Advance {
    /// The job.
    pub job: JobId,
    /// The claim that acts.
    pub epoch: Epoch,
    /// What changes in the manifest.
    pub manifest: ManifestChange,
    /// The buffer loses its op sets up to and with this one.
    pub flushed: Option<BufferSeq>,
    /// This intent ends; a position ends all intents that are older than the claim.
    pub intent: Option<IntentId>,
    /// The consumer now holds the repo as it is there. A rev that would move back is refused as [`StoreError::RevMovesBack`].
    pub position: Option<Position>,
    /// The account is to be had, and the consumer is to be told so unless that is what it heard last.
    pub found: bool,
    /// The position may be below `rev` and `min_rev`, which both become its rev: [`Freshness::Restored`](crate::job::Freshness) said so (I8).
    pub accept_older: bool,
    /// Why the handler does not acknowledge what is in the buffer, in words; kept on the job until it advances.
    pub failure: Option<String>,
    /// Try to complete: when the buffer is then empty and `rev >= min_rev`, the job gets [`JobEvent::Finished`] (I3).
    pub finish: bool,
}

impl Advance {
    /// An advance that changes nothing yet.
    pub fn new(job: JobId, epoch: Epoch) -> Self {
        Self {
            job,
            epoch,
            manifest: ManifestChange::None,
            flushed: None,
            intent: None,
            position: None,
            found: false,
            accept_older: false,
            failure: None,
            finish: false,
        }
    }
}

/// What an [`Advance`] does to the manifest.
#[derive(Debug, Clone)]
pub enum ManifestChange {
    /// Nothing.
    None,
    /// Puts chunks behind the last one; all their paths are greater than any in the manifest.
    Append(Vec<Chunk>),
    /// Changes single paths, in path order.
    Apply(Vec<Edit>),
}

/// How a job stands after an act upon it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Done; the claim goes on: the job is in progress. Answered to `finish` when the buffer is not empty.
    Held,
    /// Done, and the job is complete.
    Complete,
    /// Done as far as the position; but the job stands below `min_rev`, or nowhere, with an empty buffer, so it cannot complete. It is still in progress.
    Behind,
    /// Done, and nobody holds the job any more: what [`Store::settle`] answers.
    Ended,
    /// Nothing was written: the job is gone, or another epoch has begun.
    Superseded,
}
