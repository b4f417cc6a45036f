//! The trait, verb by verb: what the writing thread does, and what the reading ones.

use futures::FutureExt;

use super::super::Database;
use super::backend::{Connection, enqueue};
use super::chunks::Chunks;
use super::{audit, reads};
use crate::firehose::SavedCursor;
use crate::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Route, Timestamp};
use crate::manifest::Chunk;
use crate::store::{
    AccountRoute, Advance, AuditId, AuditState, DueHosts, Fleet, IntentId, Standing, Store, StoreFuture, Totals, UpstreamId, Where,
};
use crate::syntax::{Did, RecordPath, Seq};

impl Store for Database {
    fn fleet(&self) -> Option<&dyn Fleet> {
        self.as_fleet()
    }

    fn consumer<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ConsumerId> {
        let name = name.to_owned();
        self.threads.write("naming a consumer", move |tx| tx.consumer(&name)).boxed()
    }

    fn consumers(&self) -> StoreFuture<'_, Vec<String>> {
        self.threads.read("reading the names of consumers", reads::consumers).boxed()
    }

    fn enqueue<'a>(&'a self, consumer: ConsumerId, dids: &'a [Did]) -> StoreFuture<'a, u64> {
        let dids = dids.to_vec();
        self.threads.write("enqueuing repos", move |tx| enqueue(tx, consumer, &dids)).boxed()
    }

    fn want<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool> {
        let did = did.clone();
        self.threads.write("enqueuing a repo again", move |tx| tx.want(consumer, &did)).boxed()
    }

    fn purge<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool> {
        let did = did.clone();
        self.threads.write("purging a job", move |tx| tx.purge(consumer, &did)).boxed()
    }

    fn job<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Option<Job>> {
        let did = did.clone();
        self.threads.read("reading a job", move |connection| reads::job(connection, consumer, &did)).boxed()
    }

    fn jobs(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        self.threads.read("reading jobs", move |connection| reads::jobs(connection, consumer, after, limit)).boxed()
    }

    fn totals(&self, consumer: ConsumerId) -> StoreFuture<'_, Totals> {
        self.threads.read("reading totals", move |connection| reads::totals(connection, consumer)).boxed()
    }

    fn due<'a>(&'a self, place: Where<'a>, now: Timestamp, limit: usize) -> StoreFuture<'a, Vec<Did>> {
        let host = match place {
            Where::Unplaced => None,
            Where::Host(host) => Some(host.to_owned()),
        };
        let due = move |connection: &mut Connection| {
            let place = host.as_deref().map_or(Where::Unplaced, Where::Host);
            reads::due(connection, place, now, limit)
        };
        self.threads.read("reading what is due", due).boxed()
    }

    fn due_hosts(&self, now: Timestamp) -> StoreFuture<'_, DueHosts> {
        self.threads.read("reading which hosts are due", move |connection| reads::due_hosts(connection, now)).boxed()
    }

    fn place<'a>(&'a self, did: &'a Did, host: &'a str) -> StoreFuture<'a, ()> {
        let (did, host) = (did.clone(), host.to_owned());
        self.threads.write("placing a repo", move |tx| tx.place(&did, &host)).boxed()
    }

    fn claim<'a>(&'a self, did: &'a Did, now: Timestamp) -> StoreFuture<'a, Vec<Job>> {
        let did = did.clone();
        self.threads.write("claiming a repo", move |tx| tx.claim(&did, now)).boxed()
    }

    fn append<'a>(&'a self, consumer: ConsumerId, op_set: &'a OpSet, budget: u64) -> StoreFuture<'a, Route> {
        let OpSet { did, rev, since, data, prev_data, ops: _ } = op_set;
        let head = OpSet { did: did.clone(), rev: *rev, since: *since, data: *data, prev_data: *prev_data, ops: Vec::new() };
        let encoded = op_set.encode();
        self.threads.write("buffering an op set", move |tx| tx.append(consumer, &head, &encoded, budget)).boxed()
    }

    fn gap<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Route> {
        let did = did.clone();
        self.threads.write("recording a gap", move |tx| tx.gap(consumer, &did)).boxed()
    }

    fn account<'a>(
        &'a self,
        consumer: ConsumerId,
        did: &'a Did,
        upstream: UpstreamId,
        seq: Seq,
        account: Account,
    ) -> StoreFuture<'a, AccountRoute> {
        let did = did.clone();
        self.threads.write("recording an account event", move |tx| tx.account(consumer, &did, upstream, seq, account)).boxed()
    }

    fn told(&self, job: JobId, account: Account) -> StoreFuture<'_, ()> {
        self.threads.write("recording that an account change was told", move |tx| tx.told(job, account)).boxed()
    }

    fn upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (UpstreamId, Option<SavedCursor>)> {
        let name = name.to_owned();
        self.threads.write("reading a cursor", move |tx| tx.upstream(&name)).boxed()
    }

    fn save_cursor(&self, upstream: UpstreamId, cursor: SavedCursor) -> StoreFuture<'_, ()> {
        self.threads.write("saving a cursor", move |tx| tx.save_cursor(upstream, cursor)).boxed()
    }

    fn restart_upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, UpstreamId> {
        let name = name.to_owned();
        self.threads.write("forgetting a cursor", move |tx| tx.restart_upstream(&name)).boxed()
    }

    fn buffered(&self, job: JobId, max_bytes: u64) -> StoreFuture<'_, Vec<(BufferSeq, OpSet)>> {
        self.threads.read("reading a buffer", move |connection| reads::buffered(connection, job, max_bytes)).boxed()
    }

    fn unflushed(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        self.threads.read("reading which buffers are not empty", move |connection| reads::unflushed(connection, after, limit)).boxed()
    }

    fn intend<'a>(&'a self, job: JobId, epoch: Epoch, paths: &'a [RecordPath]) -> StoreFuture<'a, Option<IntentId>> {
        let paths = paths.iter().cloned().collect();
        self.threads.write("recording an intent", move |tx| tx.intend(job, epoch, &paths)).boxed()
    }

    fn in_doubt(&self, job: JobId) -> StoreFuture<'_, Vec<RecordPath>> {
        self.threads.read("reading intents", move |connection| reads::in_doubt(connection, job)).boxed()
    }

    fn manifest<'a>(&'a self, job: JobId, after: Option<&'a RecordPath>, limit: usize) -> StoreFuture<'a, Vec<Chunk>> {
        let after = after.cloned();
        self.threads.read("reading a manifest", move |connection| Chunks { connection, job }.page(after.as_ref(), limit)).boxed()
    }

    fn advance(&self, advance: Advance) -> StoreFuture<'_, Standing> {
        self.threads.write("advancing a job", move |tx| tx.advance(&advance)).boxed()
    }

    fn settle<'a>(
        &'a self,
        job: JobId,
        epoch: Epoch,
        event: JobEvent,
        failure: &'a str,
        in_doubt: &'a [RecordPath],
    ) -> StoreFuture<'a, Standing> {
        let (failure, in_doubt) = (failure.to_owned(), in_doubt.iter().cloned().collect());
        self.threads.write("settling a job", move |tx| tx.settle(job, epoch, &event, &failure, &in_doubt)).boxed()
    }

    fn recover(&self, now: Timestamp) -> StoreFuture<'_, u64> {
        self.threads.write("recovering jobs", move |tx| tx.recover(now)).boxed()
    }

    fn audit_begin<'a>(&'a self, consumer: ConsumerId, reason: &'a str, now: Timestamp) -> StoreFuture<'a, AuditId> {
        let reason = reason.to_owned();
        self.threads.write("beginning an audit", move |tx| tx.audit_begin(consumer, &reason, now)).boxed()
    }

    fn audit(&self, consumer: ConsumerId) -> StoreFuture<'_, Option<AuditState>> {
        self.threads.read("reading how far an audit is", move |connection| audit::state(connection, consumer)).boxed()
    }

    fn audit_checkpoint(&self, consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> StoreFuture<'_, bool> {
        self.threads.write("recording how far an audit is", move |tx| tx.audit_checkpoint(consumer, audit, after, passed)).boxed()
    }

    fn audit_end(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, bool> {
        self.threads.write("ending an audit", move |tx| tx.audit_end(consumer, audit)).boxed()
    }
}
