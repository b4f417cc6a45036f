//! A store that forgets: for tests, for trying things out, and for consumers whose own data does not outlive the process either.

mod acts;
mod audit;
mod reads;
mod state;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::FutureExt;

use self::state::Memory;
use super::{AccountRoute, Advance, AuditId, AuditState, DueHosts, IntentId, Standing, Store, StoreFuture, Totals, UpstreamId, Where};
use crate::firehose::SavedCursor;
use crate::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Route, Timestamp};
use crate::manifest::Chunk;
use crate::syntax::{Did, RecordPath, Seq};

/// Keeps everything in memory, with the same rules as a durable store.
#[derive(Default)]
pub struct MemoryStore(Mutex<Memory>);

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // A panic of another thread within the lock leaves at worst one job half changed, and that thread had no upstream data that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn consumer<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ConsumerId> {
        async move { Ok(self.lock().consumer(name)) }.boxed()
    }

    fn consumers(&self) -> StoreFuture<'_, Vec<String>> {
        async move { Ok(self.lock().consumers()) }.boxed()
    }

    fn enqueue<'a>(&'a self, consumer: ConsumerId, dids: &'a [Did]) -> StoreFuture<'a, u64> {
        async move { Ok(self.lock().enqueue(consumer, dids)) }.boxed()
    }

    fn want<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool> {
        async move { self.lock().want(consumer, did) }.boxed()
    }

    fn purge<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool> {
        async move { Ok(self.lock().purge(consumer, did)) }.boxed()
    }

    fn job<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Option<Job>> {
        async move { Ok(self.lock().job(consumer, did)) }.boxed()
    }

    fn jobs(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        async move { Ok(self.lock().jobs(consumer, after, limit)) }.boxed()
    }

    fn totals(&self, consumer: ConsumerId) -> StoreFuture<'_, Totals> {
        async move { self.lock().totals(consumer) }.boxed()
    }

    fn due<'a>(&'a self, place: Where<'a>, now: Timestamp, limit: usize) -> StoreFuture<'a, Vec<Did>> {
        async move { Ok(self.lock().due(place, now, limit)) }.boxed()
    }

    fn due_hosts(&self, now: Timestamp) -> StoreFuture<'_, DueHosts> {
        async move { Ok(self.lock().due_hosts(now)) }.boxed()
    }

    fn place<'a>(&'a self, did: &'a Did, host: &'a str) -> StoreFuture<'a, ()> {
        async move {
            self.lock().place(did, host);
            Ok(())
        }
        .boxed()
    }

    fn claim<'a>(&'a self, did: &'a Did, now: Timestamp) -> StoreFuture<'a, Vec<Job>> {
        async move { self.lock().claim(did, now) }.boxed()
    }

    fn append<'a>(&'a self, consumer: ConsumerId, op_set: &'a OpSet, budget: u64) -> StoreFuture<'a, Route> {
        async move { self.lock().append(consumer, op_set, budget) }.boxed()
    }

    fn gap<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Route> {
        async move { self.lock().gap(consumer, did) }.boxed()
    }

    fn account<'a>(
        &'a self,
        consumer: ConsumerId,
        did: &'a Did,
        upstream: UpstreamId,
        seq: Seq,
        account: Account,
    ) -> StoreFuture<'a, AccountRoute> {
        async move { self.lock().account(consumer, did, upstream, seq, account) }.boxed()
    }

    fn told(&self, job: JobId, account: Account) -> StoreFuture<'_, ()> {
        async move { self.lock().told(job, account) }.boxed()
    }

    fn upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (UpstreamId, Option<SavedCursor>)> {
        async move { Ok(self.lock().upstream(name)) }.boxed()
    }

    fn save_cursor(&self, upstream: UpstreamId, cursor: SavedCursor) -> StoreFuture<'_, ()> {
        async move {
            self.lock().save_cursor(upstream, cursor);
            Ok(())
        }
        .boxed()
    }

    fn restart_upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, UpstreamId> {
        async move { Ok(self.lock().restart_upstream(name)) }.boxed()
    }

    fn buffered(&self, job: JobId, max_bytes: u64) -> StoreFuture<'_, Vec<(BufferSeq, OpSet)>> {
        async move { self.lock().buffered(job, max_bytes) }.boxed()
    }

    fn unflushed(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        async move { Ok(self.lock().unflushed(after, limit)) }.boxed()
    }

    fn intend<'a>(&'a self, job: JobId, epoch: Epoch, paths: &'a [RecordPath]) -> StoreFuture<'a, Option<IntentId>> {
        async move { Ok(self.lock().intend(job, epoch, paths)) }.boxed()
    }

    fn in_doubt(&self, job: JobId) -> StoreFuture<'_, Vec<RecordPath>> {
        async move { Ok(self.lock().in_doubt(job)) }.boxed()
    }

    fn manifest<'a>(&'a self, job: JobId, after: Option<&'a RecordPath>, limit: usize) -> StoreFuture<'a, Vec<Chunk>> {
        async move { Ok(self.lock().manifest(job, after, limit)) }.boxed()
    }

    fn advance(&self, advance: Advance) -> StoreFuture<'_, Standing> {
        async move { self.lock().advance(&advance) }.boxed()
    }

    fn settle<'a>(
        &'a self,
        job: JobId,
        epoch: Epoch,
        event: JobEvent,
        failure: &'a str,
        in_doubt: &'a [RecordPath],
    ) -> StoreFuture<'a, Standing> {
        async move { self.lock().settle(job, epoch, &event, failure, in_doubt) }.boxed()
    }

    fn recover(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        async move { self.lock().recover(now) }.boxed()
    }

    fn audit_begin<'a>(&'a self, consumer: ConsumerId, reason: &'a str, now: Timestamp) -> StoreFuture<'a, AuditId> {
        async move { Ok(self.lock().audit_begin(consumer, reason, now)) }.boxed()
    }

    fn audit(&self, consumer: ConsumerId) -> StoreFuture<'_, Option<AuditState>> {
        async move { Ok(self.lock().audit(consumer)) }.boxed()
    }

    fn audit_checkpoint(&self, consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> StoreFuture<'_, bool> {
        async move { Ok(self.lock().audit_checkpoint(consumer, audit, after, passed)) }.boxed()
    }

    fn audit_end(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, bool> {
        async move { Ok(self.lock().audit_end(consumer, audit)) }.boxed()
    }
}
