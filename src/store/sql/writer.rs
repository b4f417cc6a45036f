//! The one thread that writes. Acts that wait in its queue are committed together, each in a savepoint of its own:
//! one that fails fails alone, and none is answered before its commit.

use std::collections::BTreeMap;

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::fault::{Act, from_sql};
use super::open::Place;
use super::schema::{intent, job, op_set, total};
use super::statements::Fixed;
use crate::job::ConsumerId;
use crate::store::StoreError;
use crate::store::rules::Tally;

/// The most acts in one commit.
const GROUP: usize = 512;
/// The most acts that wait; whoever comes then waits for room.
pub(super) const QUEUE: usize = 1024;

/// What an act works with: the connection in its transaction, and what the whole commit sums up.
pub(super) struct Tx<'a> {
    pub(super) connection: &'a mut SqliteConnection,
    pub(super) tallies: BTreeMap<ConsumerId, Tally>,
    last_id: &'a mut i64,
}

impl Tx<'_> {
    /// An id for a job, op set or intent that was not given before while this process has the database; above all that are in it.
    pub(super) fn next_id(&mut self) -> i64 {
        *self.last_id += 1;
        *self.last_id
    }
}

/// An act in the queue.
pub(super) trait Command: Send {
    /// Runs within a savepoint and keeps its outcome. An error undoes the savepoint.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), Undo>;

    /// Answers; with an error, when the commit failed.
    fn answer(self: Box<Self>, commit_failed: Option<String>);
}

/// That a savepoint is to be undone; why, the command keeps.
pub(super) struct Undo;

struct Waiting<T, F> {
    action: &'static str,
    act: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    asker: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnOnce(&mut Tx<'_>) -> Act<T> + Send> Command for Waiting<T, F> {
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), Undo> {
        let Some(act) = self.act.take() else { return Ok(()) };
        let outcome = act(tx).map_err(|fault| fault.into_error(self.action));
        let undo = if outcome.is_ok() { Ok(()) } else { Err(Undo) };
        self.outcome = Some(outcome);
        undo
    }

    fn answer(self: Box<Self>, commit_failed: Option<String>) {
        let unavailable = |why: String| Err(StoreError::Unavailable { action: self.action, source: why.into() });
        let outcome = match (self.outcome, commit_failed) {
            (Some(Ok(_)) | None, Some(why)) => unavailable(why),
            (Some(outcome), _) => outcome,
            (None, None) => unavailable("the act was not run".to_owned()),
        };
        // Whoever asked may have gone; what was done stays done.
        let _ = self.asker.send(outcome);
    }
}

/// An act for the queue, and where its answer will come.
pub(super) fn command<T, F>(action: &'static str, act: F) -> (Box<dyn Command>, oneshot::Receiver<Result<T, StoreError>>)
where
    T: Send + 'static,
    F: FnOnce(&mut Tx<'_>) -> Act<T> + Send + 'static,
{
    let (asker, answer) = oneshot::channel();
    (Box::new(Waiting { action, act: Some(act), outcome: None, asker }), answer)
}

/// The writing thread.
pub(super) struct Writer {
    place: Place,
    connection: Option<SqliteConnection>,
    last_id: i64,
}

impl Writer {
    pub(super) fn new(place: Place, mut connection: SqliteConnection) -> Result<Self, StoreError> {
        let last_id = last_id(&mut connection).map_err(|error| from_sql(error, "opening the database"))?;
        Ok(Self { place, connection: Some(connection), last_id })
    }

    /// Works until nobody can send any more, and the queue is empty.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Command>>) {
        while let Some(first) = queue.blocking_recv() {
            let mut done = Vec::new();
            let committed = self.commit(first, &mut queue, &mut done);
            let failed = committed.err();
            for command in done {
                command.answer(failed.clone());
            }
        }
    }

    fn commit(
        &mut self,
        first: Box<dyn Command>,
        queue: &mut mpsc::Receiver<Box<dyn Command>>,
        done: &mut Vec<Box<dyn Command>>,
    ) -> Result<(), String> {
        let connection = match self.connection.take().map_or_else(|| self.place.connect(), Ok) {
            Ok(connection) => self.connection.insert(connection),
            Err(error) => {
                done.push(first);
                return Err(with_cause(&error));
            }
        };
        let last_id = &mut self.last_id;
        let mut next = Some(first);
        let committed = connection.immediate_transaction(|connection| {
            let mut tallies = BTreeMap::new();
            while let Some(mut command) = next.take() {
                let ran = run_one(&mut *command, connection, last_id, &mut tallies);
                done.push(command);
                ran?;
                if done.len() < GROUP {
                    next = queue.try_recv().ok();
                }
            }
            tallies.iter().try_for_each(|(&consumer, tally)| add_to_total(connection, consumer, tally))
        });
        done.extend(next);
        if AnsiTransactionManager::transaction_manager_status_mut(connection).transaction_depth().is_ok_and(|depth| depth.is_none()) {
            return committed.map_err(|error| error.to_string());
        }
        // The database undid more than it was asked to, as it may when the disk is full; nothing is certain about this connection.
        self.connection = None;
        Err(committed.err().map_or_else(|| "the transaction is broken".to_owned(), |error| error.to_string()))
    }
}

/// Runs a command in a savepoint. An error means that the savepoint could not be undone, so that the whole transaction must be.
fn run_one(
    command: &mut dyn Command,
    connection: &mut SqliteConnection,
    last_id: &mut i64,
    sums: &mut BTreeMap<ConsumerId, Tally>,
) -> QueryResult<()> {
    Fixed("SAVEPOINT act").execute(connection)?;
    let mut tx = Tx { connection, tallies: BTreeMap::new(), last_id };
    if command.run(&mut tx).is_ok() {
        for (consumer, tally) in tx.tallies {
            sums.entry(consumer).or_default().add(&tally);
        }
    } else {
        Fixed("ROLLBACK TO act").execute(connection)?;
    }
    Fixed("RELEASE act").execute(connection).map(drop)
}

fn add_to_total(connection: &mut SqliteConnection, of: ConsumerId, tally: &Tally) -> QueryResult<()> {
    if *tally == Tally::default() {
        return Ok(());
    }
    diesel::update(total::table.find(of.0))
        .set((
            total::enqueued.eq(total::enqueued + tally.enqueued),
            total::in_progress.eq(total::in_progress + tally.in_progress),
            total::complete.eq(total::complete + tally.complete),
            total::failed.eq(total::failed + tally.failed),
            total::unavailable.eq(total::unavailable + tally.unavailable),
            total::records.eq(total::records + tally.records),
            total::buffered_op_sets.eq(total::buffered_op_sets + tally.buffered_op_sets),
            total::buffered_bytes.eq(total::buffered_bytes + tally.buffered_bytes),
            total::dropped_op_sets.eq(total::dropped_op_sets + tally.dropped_op_sets),
            total::untold.eq(total::untold + tally.untold),
        ))
        .execute(connection)
        .map(drop)
}

fn last_id(connection: &mut SqliteConnection) -> QueryResult<i64> {
    use diesel::dsl::max;
    let jobs: Option<i64> = job::table.select(max(job::id)).first(connection)?;
    let op_sets: Option<i64> = op_set::table.select(max(op_set::seq)).first(connection)?;
    let intents: Option<i64> = intent::table.select(max(intent::id)).first(connection)?;
    Ok(jobs.max(op_sets).max(intents).unwrap_or(0))
}

fn with_cause(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
