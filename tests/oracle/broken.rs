//! Stores that do not keep a promise: each has to be found out, or the oracle proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atproto_backfill::firehose::SavedCursor;
use atproto_backfill::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Route, Timestamp};
use atproto_backfill::manifest::Chunk;
use atproto_backfill::store::{
    AccountRoute, Advance, AuditId, AuditState, DueHosts, IntentId, ManifestChange, Standing, Store, StoreFuture, Totals, UpstreamId, Where,
};
use atproto_backfill::syntax::{Did, RecordPath, Seq};
use futures::FutureExt;

/// Which promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Of a delivery that was not recorded nothing is known: no path is ever in doubt.
    ForgetsIntents,
    /// An op set is appended wherever it starts: no gap is ever seen.
    SeesNoGap,
    /// The cursor that is saved is ahead of what is settled.
    SavesAhead,
    /// What was lost of a repo is not recorded.
    ForgetsGaps,
    /// What a process left in progress stays so.
    DoesNotRecover,
    /// An audit is forgotten as soon as it is due.
    ForgetsAudits,
    /// The manifest keeps what a flush deleted.
    KeepsDeleted,
    /// An account is told to the consumer by what was said first.
    ForgetsAccounts,
}

impl Breach {
    pub(crate) const ALL: [Self; 8] = [
        Self::ForgetsIntents,
        Self::SeesNoGap,
        Self::SavesAhead,
        Self::ForgetsGaps,
        Self::DoesNotRecover,
        Self::ForgetsAudits,
        Self::KeepsDeleted,
        Self::ForgetsAccounts,
    ];
}

#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) breach: Breach,
    /// Acts that were not done as they should be.
    pub(crate) breaches: Arc<AtomicU64>,
}

impl Broken {
    fn breaks(&self, breach: Breach) -> bool {
        let breaks = self.breach == breach;
        self.breaches.fetch_add(u64::from(breaks), Ordering::Relaxed);
        breaks
    }
}

verbs! {
    Broken:
    around {}
    plain {
        consumer(name: &'a str) -> ConsumerId;
        consumers() -> Vec<String>;
        enqueue(consumer: ConsumerId, dids: &'a [Did]) -> u64;
        want(consumer: ConsumerId, did: &'a Did) -> bool;
        purge(consumer: ConsumerId, did: &'a Did) -> bool;
        job(consumer: ConsumerId, did: &'a Did) -> Option<Job>;
        jobs(consumer: ConsumerId, after: Option<JobId>, limit: usize) -> Vec<Job>;
        totals(consumer: ConsumerId) -> Totals;
        due(place: Where<'a>, now: Timestamp, limit: usize) -> Vec<Did>;
        due_hosts(now: Timestamp) -> DueHosts;
        place(did: &'a Did, host: &'a str) -> ();
        claim(did: &'a Did, now: Timestamp) -> Vec<Job>;
        told(job: JobId, account: Account) -> ();
        upstream(name: &'a str) -> (UpstreamId, Option<SavedCursor>);
        restart_upstream(name: &'a str) -> UpstreamId;
        buffered(job: JobId, max_bytes: u64) -> Vec<(BufferSeq, OpSet)>;
        unflushed(after: Option<JobId>, limit: usize) -> Vec<Job>;
        intend(job: JobId, epoch: Epoch, paths: &'a [RecordPath]) -> Option<IntentId>;
        manifest(job: JobId, after: Option<&'a RecordPath>, limit: usize) -> Vec<Chunk>;
        settle(job: JobId, epoch: Epoch, event: JobEvent, failure: &'a str, in_doubt: &'a [RecordPath]) -> Standing;
        audit_begin(consumer: ConsumerId, reason: &'a str, now: Timestamp) -> AuditId;
        audit_checkpoint(consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> bool;
        audit_end(consumer: ConsumerId, audit: AuditId) -> bool;
    }
    own {
        fn in_doubt(&self, job: JobId) -> StoreFuture<'_, Vec<RecordPath>> {
            if self.breaks(Breach::ForgetsIntents) {
                return async { Ok(Vec::new()) }.boxed();
            }
            self.store.in_doubt(job)
        }

        fn append<'a>(&'a self, consumer: ConsumerId, op_set: &'a OpSet, budget: u64) -> StoreFuture<'a, Route> {
            if !self.breaks(Breach::SeesNoGap) {
                return self.store.append(consumer, op_set, budget);
            }
            async move {
                let job = self.store.job(consumer, &op_set.did).await?;
                let newest = match &job {
                    Some(job) => self.store.buffered(job.id, u64::MAX).await?.pop().map(|(_, op_set)| (op_set.rev, op_set.data)),
                    None => None,
                };
                let at = newest.or_else(|| job.and_then(|job| job.position()).map(|position| (position.rev, position.data)));
                let (since, prev_data) = at.map_or((op_set.since, op_set.prev_data), |(rev, data)| (Some(rev), data));
                let chained = OpSet { since, prev_data, ..op_set.clone() };
                self.store.append(consumer, &chained, budget).await
            }
            .boxed()
        }

        fn save_cursor(&self, upstream: UpstreamId, cursor: SavedCursor) -> StoreFuture<'_, ()> {
            if !self.breaks(Breach::SavesAhead) {
                return self.store.save_cursor(upstream, cursor);
            }
            let ahead = SavedCursor { seq: Seq::new(cursor.seq.get() + 4).unwrap_or(cursor.seq), ..cursor };
            self.store.save_cursor(upstream, ahead)
        }

        fn gap<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Route> {
            if self.breaks(Breach::ForgetsGaps) {
                return async { Ok(Route::Gap) }.boxed();
            }
            self.store.gap(consumer, did)
        }

        fn recover(&self, now: Timestamp) -> StoreFuture<'_, u64> {
            if self.breaks(Breach::DoesNotRecover) {
                return async { Ok(0) }.boxed();
            }
            self.store.recover(now)
        }

        fn audit(&self, consumer: ConsumerId) -> StoreFuture<'_, Option<AuditState>> {
            if self.breaks(Breach::ForgetsAudits) {
                return async { Ok(None) }.boxed();
            }
            self.store.audit(consumer)
        }

        fn account<'a>(
            &'a self,
            consumer: ConsumerId,
            did: &'a Did,
            upstream: UpstreamId,
            seq: Seq,
            account: Account,
        ) -> StoreFuture<'a, AccountRoute> {
            if self.breaks(Breach::ForgetsAccounts) {
                return async { Ok(AccountRoute::Unchanged) }.boxed();
            }
            self.store.account(consumer, did, upstream, seq, account)
        }

        fn advance(&self, advance: Advance) -> StoreFuture<'_, Standing> {
            let is_flush = advance.flushed.is_some();
            let manifest = match advance.manifest {
                ManifestChange::Apply(edits) if is_flush && self.breaks(Breach::KeepsDeleted) => {
                    ManifestChange::Apply(edits.into_iter().filter(|edit| edit.cid.is_some()).collect())
                }
                manifest => manifest,
            };
            self.store.advance(Advance { manifest, ..advance })
        }
    }
}
