//! A store in a database, by diesel. SQLite: one file, one process, one writing thread.
//!
//! Queries for one row say `get_result`, not `first`: that would bind a limit, and SQLite prepares a statement anew for each value of one.

mod accounts;
mod audit;
mod chunks;
mod claims;
mod fault;
mod jobs;
mod open;
mod readers;
mod reads;
mod rows;
mod schema;
mod statements;
mod writer;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use diesel::sqlite::SqliteConnection;
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};

pub use self::open::DieselOptions;

use self::chunks::Chunks;
use self::fault::Act;
use self::open::Place;
use self::writer::{Command, Tx, Writer};
use super::{
    AccountRoute, Advance, AuditId, AuditState, DueHosts, IntentId, Standing, Store, StoreError, StoreFuture, Totals, UpstreamId, Where,
};
use crate::firehose::SavedCursor;
use crate::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Route, Timestamp};
use crate::manifest::Chunk;
use crate::syntax::{Did, RecordPath, Seq};

/// A durable store in one SQLite file, held by one process at a time.
///
/// Dropping it waits until everything that was asked for is written.
pub struct DieselStore {
    path: PathBuf,
    writer: Option<mpsc::Sender<Box<dyn Command>>>,
    readers: Option<mpsc::Sender<readers::Read>>,
    threads: Vec<JoinHandle<()>>,
    _lock: File,
}

impl DieselStore {
    /// Opens the database at `path`, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it, [`StoreError::NewerSchema`], [`StoreError::Corrupt`] when it is not a database, and
    /// [`StoreError::Unavailable`] when it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, DieselOptions::default())
    }

    /// As [`DieselStore::open`], with options.
    ///
    /// # Errors
    /// As [`DieselStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: DieselOptions) -> Result<Self, StoreError> {
        let place = Place::new(path.as_ref(), options);
        let lock = place.lock()?;
        let mut connection = place.connect()?;
        open::migrate(&mut connection)?;
        let writer = Writer::new(place.clone(), connection)?;
        let (to_writer, queue) = mpsc::channel(writer::QUEUE);
        let mut threads = vec![spawn("store-writer", move || writer.run(queue))?];
        let (to_readers, queue) = mpsc::channel(readers::QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..readers::THREADS {
            let (queue, connection) = (Arc::clone(&queue), place.connect_reader()?);
            threads.push(spawn("store-reader", move || readers::run(&queue, connection))?);
        }
        Ok(Self { path: path.as_ref().to_owned(), writer: Some(to_writer), readers: Some(to_readers), threads, _lock: lock })
    }

    /// Has the writing thread do something, in a transaction, and waits for the commit.
    async fn write<T, F>(&self, action: &'static str, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Act<T> + Send + 'static,
    {
        let (command, answer) = writer::command(action, act);
        let writer = self.writer.as_ref().ok_or_else(|| gone(action))?;
        writer.send(command).await.map_err(|_| gone(action))?;
        answer.await.map_err(|_| gone(action))?
    }

    /// Has a reading thread read something.
    async fn read<T, F>(&self, action: &'static str, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut SqliteConnection) -> Act<T> + Send + 'static,
    {
        let (asker, answer) = oneshot::channel();
        let read = Box::new(move |connection: &mut SqliteConnection| {
            // Whoever asked may have gone.
            let _ = asker.send(act(connection).map_err(|fault| fault.into_error(action)));
        });
        let readers = self.readers.as_ref().ok_or_else(|| gone(action))?;
        readers.send(read).await.map_err(|_| gone(action))?;
        answer.await.map_err(|_| gone(action))?
    }
}

fn gone(action: &'static str) -> StoreError {
    StoreError::Unavailable { action, source: "the thread that works on the database has ended".into() }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let unavailable = |error| StoreError::Unavailable { action: "starting a thread", source: Box::new(error) };
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(unavailable)
}

impl Drop for DieselStore {
    fn drop(&mut self) {
        // With their queues closed, the threads end when these are empty; the database closes with the last of them, before the lock.
        self.writer = None;
        self.readers = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(path = %self.path.display(), "a thread of the store panicked");
            }
        }
    }
}

impl fmt::Debug for DieselStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DieselStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store for DieselStore {
    fn consumer<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ConsumerId> {
        let name = name.to_owned();
        self.write("naming a consumer", move |tx| tx.consumer(&name)).boxed()
    }

    fn consumers(&self) -> StoreFuture<'_, Vec<String>> {
        self.read("reading the names of consumers", reads::consumers).boxed()
    }

    fn enqueue<'a>(&'a self, consumer: ConsumerId, dids: &'a [Did]) -> StoreFuture<'a, u64> {
        let dids = dids.to_vec();
        self.write("enqueuing repos", move |tx| tx.enqueue(consumer, &dids)).boxed()
    }

    fn want<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool> {
        let did = did.clone();
        self.write("enqueuing a repo again", move |tx| tx.want(consumer, &did)).boxed()
    }

    fn purge<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, bool> {
        let did = did.clone();
        self.write("purging a job", move |tx| tx.purge(consumer, &did)).boxed()
    }

    fn job<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Option<Job>> {
        let did = did.clone();
        self.read("reading a job", move |connection| reads::job(connection, consumer, &did)).boxed()
    }

    fn jobs(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        self.read("reading jobs", move |connection| reads::jobs(connection, consumer, after, limit)).boxed()
    }

    fn totals(&self, consumer: ConsumerId) -> StoreFuture<'_, Totals> {
        self.read("reading totals", move |connection| reads::totals(connection, consumer)).boxed()
    }

    fn due<'a>(&'a self, place: Where<'a>, now: Timestamp, limit: usize) -> StoreFuture<'a, Vec<Did>> {
        let host = match place {
            Where::Unplaced => None,
            Where::Host(host) => Some(host.to_owned()),
        };
        let due = move |connection: &mut SqliteConnection| {
            let place = host.as_deref().map_or(Where::Unplaced, Where::Host);
            reads::due(connection, place, now, limit)
        };
        self.read("reading what is due", due).boxed()
    }

    fn due_hosts(&self, now: Timestamp) -> StoreFuture<'_, DueHosts> {
        self.read("reading which hosts are due", move |connection| reads::due_hosts(connection, now)).boxed()
    }

    fn place<'a>(&'a self, did: &'a Did, host: &'a str) -> StoreFuture<'a, ()> {
        let (did, host) = (did.clone(), host.to_owned());
        self.write("placing a repo", move |tx| tx.place(&did, &host)).boxed()
    }

    fn claim<'a>(&'a self, did: &'a Did, now: Timestamp) -> StoreFuture<'a, Vec<Job>> {
        let did = did.clone();
        self.write("claiming a repo", move |tx| tx.claim(&did, now)).boxed()
    }

    fn append<'a>(&'a self, consumer: ConsumerId, op_set: &'a OpSet, budget: u64) -> StoreFuture<'a, Route> {
        let OpSet { did, rev, since, data, prev_data, ops: _ } = op_set;
        let head = OpSet { did: did.clone(), rev: *rev, since: *since, data: *data, prev_data: *prev_data, ops: Vec::new() };
        let encoded = op_set.encode();
        self.write("buffering an op set", move |tx| tx.append(consumer, &head, &encoded, budget)).boxed()
    }

    fn gap<'a>(&'a self, consumer: ConsumerId, did: &'a Did) -> StoreFuture<'a, Route> {
        let did = did.clone();
        self.write("recording a gap", move |tx| tx.gap(consumer, &did)).boxed()
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
        self.write("recording an account event", move |tx| tx.account(consumer, &did, upstream, seq, account)).boxed()
    }

    fn told(&self, job: JobId, account: Account) -> StoreFuture<'_, ()> {
        self.write("recording that an account change was told", move |tx| tx.told(job, account)).boxed()
    }

    fn upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, (UpstreamId, Option<SavedCursor>)> {
        let name = name.to_owned();
        self.write("reading a cursor", move |tx| tx.upstream(&name)).boxed()
    }

    fn save_cursor(&self, upstream: UpstreamId, cursor: SavedCursor) -> StoreFuture<'_, ()> {
        self.write("saving a cursor", move |tx| tx.save_cursor(upstream, cursor)).boxed()
    }

    fn restart_upstream<'a>(&'a self, name: &'a str) -> StoreFuture<'a, UpstreamId> {
        let name = name.to_owned();
        self.write("forgetting a cursor", move |tx| tx.restart_upstream(&name)).boxed()
    }

    fn buffered(&self, job: JobId, max_bytes: u64) -> StoreFuture<'_, Vec<(BufferSeq, OpSet)>> {
        self.read("reading a buffer", move |connection| reads::buffered(connection, job, max_bytes)).boxed()
    }

    fn unflushed(&self, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        self.read("reading which buffers are not empty", move |connection| reads::unflushed(connection, after, limit)).boxed()
    }

    fn intend<'a>(&'a self, job: JobId, epoch: Epoch, paths: &'a [RecordPath]) -> StoreFuture<'a, Option<IntentId>> {
        let paths = paths.iter().cloned().collect();
        self.write("recording an intent", move |tx| tx.intend(job, epoch, paths)).boxed()
    }

    fn in_doubt(&self, job: JobId) -> StoreFuture<'_, Vec<RecordPath>> {
        self.read("reading intents", move |connection| reads::in_doubt(connection, job)).boxed()
    }

    fn manifest<'a>(&'a self, job: JobId, after: Option<&'a RecordPath>, limit: usize) -> StoreFuture<'a, Vec<Chunk>> {
        let after = after.cloned();
        self.read("reading a manifest", move |connection| Chunks { connection, job }.page(after.as_ref(), limit)).boxed()
    }

    fn advance(&self, advance: Advance) -> StoreFuture<'_, Standing> {
        self.write("advancing a job", move |tx| tx.advance(&advance)).boxed()
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
        self.write("settling a job", move |tx| tx.settle(job, epoch, &event, &failure, in_doubt)).boxed()
    }

    fn recover(&self) -> StoreFuture<'_, u64> {
        self.write("recovering jobs", |tx| tx.recover()).boxed()
    }

    fn audit_begin<'a>(&'a self, consumer: ConsumerId, reason: &'a str, now: Timestamp) -> StoreFuture<'a, AuditId> {
        let reason = reason.to_owned();
        self.write("beginning an audit", move |tx| tx.audit_begin(consumer, &reason, now)).boxed()
    }

    fn audit(&self, consumer: ConsumerId) -> StoreFuture<'_, Option<AuditState>> {
        self.read("reading how far an audit is", move |connection| audit::state(connection, consumer)).boxed()
    }

    fn audit_checkpoint(&self, consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> StoreFuture<'_, bool> {
        self.write("recording how far an audit is", move |tx| tx.audit_checkpoint(consumer, audit, after, passed)).boxed()
    }

    fn audit_end(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, bool> {
        self.write("ending an audit", move |tx| tx.audit_end(consumer, audit)).boxed()
    }
}
