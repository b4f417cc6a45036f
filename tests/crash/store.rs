//! A store with a trap before and after each verb that writes.

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::firehose::SavedCursor;
use atproto_backfill::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Route, Timestamp};
use atproto_backfill::manifest::Chunk;
use atproto_backfill::store::{
    AccountRoute, Advance, AuditId, AuditState, DueHosts, Fleet, IntentId, ManifestChange, Renewal, Share, Standing, Store, StoreFuture,
    Totals, UpstreamId, Where,
};
use atproto_backfill::syntax::{Did, RecordPath, Seq};
use futures::FutureExt;

use crate::trap::Trap;

#[derive(Debug)]
pub(crate) struct Trapped {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) trap: Trap,
}

impl Trapped {
    fn around<'a, T: Send + 'a>(&'a self, verb: &'static str, act: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        async move {
            self.trap.reach(&format!("before:{verb}")).await;
            let done = act.await;
            self.trap.reach(&format!("after:{verb}")).await;
            done
        }
        .boxed()
    }
}

/// What an advance records.
fn name(advance: &Advance) -> &'static str {
    match advance {
        Advance { flushed: Some(_), .. } => "flush",
        Advance { position: Some(_), .. } => "position",
        Advance { finish: true, .. } => "finish",
        Advance { manifest: ManifestChange::Append(_) | ManifestChange::Apply(_), .. } | Advance { intent: Some(_), .. } => "batch",
        _ => "advance",
    }
}

/// Implements [`Store`] for what has a store: verbs with something around them, verbs that are handed on, and verbs of its own.
macro_rules! verbs {
    (
        $for:ty:
        around { $($name:ident($($argument:ident: $of:ty),*) -> $out:ty;)* }
        plain { $($read:ident($($read_argument:ident: $read_of:ty),*) -> $read_out:ty;)* }
        own { $($own:tt)* }
    ) => {
        impl Store for $for {
            $(fn $name<'a>(&'a self, $($argument: $of),*) -> StoreFuture<'a, $out> {
                self.around(stringify!($name), self.store.$name($($argument),*))
            })*
            $(fn $read<'a>(&'a self, $($read_argument: $read_of),*) -> StoreFuture<'a, $read_out> {
                self.store.$read($($read_argument),*)
            })*
            $($own)*
        }
    };
}

verbs! {
    Trapped:
    around {
        consumer(name: &'a str) -> ConsumerId;
        enqueue(consumer: ConsumerId, dids: &'a [Did]) -> u64;
        want(consumer: ConsumerId, did: &'a Did) -> bool;
        purge(consumer: ConsumerId, did: &'a Did) -> bool;
        place(did: &'a Did, host: &'a str) -> ();
        claim(did: &'a Did, now: Timestamp) -> Vec<Job>;
        append(consumer: ConsumerId, op_set: &'a OpSet, budget: u64) -> Route;
        gap(consumer: ConsumerId, did: &'a Did) -> Route;
        account(consumer: ConsumerId, did: &'a Did, upstream: UpstreamId, seq: Seq, account: Account) -> AccountRoute;
        told(job: JobId, account: Account) -> ();
        upstream(name: &'a str) -> (UpstreamId, Option<SavedCursor>);
        save_cursor(upstream: UpstreamId, cursor: SavedCursor) -> ();
        restart_upstream(name: &'a str) -> UpstreamId;
        intend(job: JobId, epoch: Epoch, paths: &'a [RecordPath]) -> Option<IntentId>;
        settle(job: JobId, epoch: Epoch, event: JobEvent, failure: &'a str, in_doubt: &'a [RecordPath]) -> Standing;
        recover(now: Timestamp) -> u64;
        audit_begin(consumer: ConsumerId, reason: &'a str, now: Timestamp) -> AuditId;
        audit_checkpoint(consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> bool;
        audit_end(consumer: ConsumerId, audit: AuditId) -> bool;
    }
    plain {
        consumers() -> Vec<String>;
        job(consumer: ConsumerId, did: &'a Did) -> Option<Job>;
        jobs(consumer: ConsumerId, after: Option<JobId>, limit: usize) -> Vec<Job>;
        totals(consumer: ConsumerId) -> Totals;
        due(place: Where<'a>, now: Timestamp, limit: usize) -> Vec<Did>;
        due_hosts(now: Timestamp) -> DueHosts;
        buffered(job: JobId, max_bytes: u64) -> Vec<(BufferSeq, OpSet)>;
        unflushed(after: Option<JobId>, limit: usize) -> Vec<Job>;
        in_doubt(job: JobId) -> Vec<RecordPath>;
        manifest(job: JobId, after: Option<&'a RecordPath>, limit: usize) -> Vec<Chunk>;
        audit(consumer: ConsumerId) -> Option<AuditState>;
    }
    own {
        fn fleet(&self) -> Option<&dyn Fleet> {
            self.store.fleet().map(|_| self as &dyn Fleet)
        }

        fn advance(&self, advance: Advance) -> StoreFuture<'_, Standing> {
            self.around(name(&advance), self.store.advance(advance))
        }
    }
}

impl Trapped {
    /// Asked for only where the store has one.
    fn its_fleet(&self) -> &dyn Fleet {
        self.store.fleet().expect("a store that others may share")
    }
}

impl Fleet for Trapped {
    fn lease(&self) -> Duration {
        self.its_fleet().lease()
    }
    fn renew<'a>(&'a self, upstreams: &'a [String]) -> StoreFuture<'a, Renewal> {
        self.around("renew", self.its_fleet().renew(upstreams))
    }
    fn give_up<'a>(&'a self, hosts: &'a [(String, Duration)]) -> StoreFuture<'a, ()> {
        self.around("give_up", self.its_fleet().give_up(hosts))
    }
    fn leave(&self) -> StoreFuture<'_, ()> {
        self.around("leave", self.its_fleet().leave())
    }
    fn wake(&self, job: JobId) -> StoreFuture<'_, ()> {
        self.its_fleet().wake(job)
    }
    fn newcomers(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        self.its_fleet().newcomers(consumer, after, limit)
    }
    fn known<'a>(&'a self, upstream: &'a str) -> StoreFuture<'a, Option<JobId>> {
        self.its_fleet().known(upstream)
    }
    fn know(&self, job: JobId) -> StoreFuture<'_, ()> {
        self.around("know", self.its_fleet().know(job))
    }
    fn unaudited(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, Vec<Share>> {
        self.its_fleet().unaudited(consumer, audit)
    }
    fn audited<'a>(&'a self, consumer: ConsumerId, audit: AuditId, shares: &'a [Share]) -> StoreFuture<'a, bool> {
        self.around("audited", self.its_fleet().audited(consumer, audit, shares))
    }
}
