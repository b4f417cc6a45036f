//! What is SQLite's own of the store; the list is in the module `sql`.

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::prelude::*;
use diesel::query_builder::AstPass;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind};
use diesel::sql_types::BigInt;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::checkpoints::Checkpoints;
use super::sql::from_sql;
use super::sql::schema::{intent, job, op_set};
use crate::error_chain::error_chain;
use crate::store::StoreError;

pub(super) use super::enqueue::enqueue;
pub(super) use super::known::KnownJobs;
pub(super) use super::place::Place;
pub(super) use diesel::sqlite::{Sqlite as Db, SqliteConnection as Connection};

pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
/// The callers that wait at once are more than the queue holds; each page that several acts change is written once for all of them.
pub(super) const GROUP: usize = 2048;
/// Nobody stands in the way of anybody.
pub(super) const ALWAYS_APART: bool = false;
pub(super) const SNAPSHOT: &str = "BEGIN";
pub(super) const SIZE: &str = "SELECT page_count * page_size AS n FROM pragma_page_count(), pragma_page_size()";
/// Whoever writes is alone.
pub(super) const FOR_CHANGE: &str = "";
pub(super) const FOR_CLAIM: &str = "";
pub(super) const MAY_BE_CLAIMED: &str = "TRUE";
pub(super) const OF_CONSUMER: &str = "job.consumer = ";
pub(super) const NEXT_CONSUMER: &str = "(SELECT coalesce(max(id), 0) + 1 FROM consumer)";

/// Tells a damaged database from one that cannot be used now. SQLite gives the difference only in words.
pub(super) fn is_corruption(kind: &DatabaseErrorKind, information: &dyn DatabaseErrorInformation) -> bool {
    let message = information.message();
    matches!(kind, DatabaseErrorKind::Unknown) && (message.contains("malformed") || message.contains("not a database"))
}

/// Tells whether a store was ever made in the database.
pub(super) const IS_MADE: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = '__diesel_schema_migrations') AS made";

/// Whoever writes is alone.
pub(super) fn is_contended(_: &diesel::result::Error) -> bool {
    false
}

/// A connection to a file is not lost.
pub(super) fn is_lost(_: &mut Connection) -> bool {
    false
}

/// Ids are counted in memory: one process has the database, and its writer is one thread.
pub(super) struct Numbers(i64);

impl Numbers {
    pub(super) fn of(connection: &mut Connection) -> Result<Self, StoreError> {
        last_id(connection).map(Self).map_err(|error| from_sql(error, "opening the database"))
    }

    pub(super) fn next(&mut self) -> Number {
        self.0 += 1;
        Number(self.0)
    }
}

/// An id that is not in use yet.
pub(super) struct Number(pub(super) i64);

impl Number {
    pub(super) fn say<'b>(&'b self, out: &mut AstPass<'_, 'b, Db>) -> QueryResult<()> {
        out.push_bind_param::<BigInt, _>(&self.0)
    }
}

fn last_id(connection: &mut Connection) -> QueryResult<i64> {
    use diesel::dsl::max;
    let jobs: Option<i64> = job::table.select(max(job::id)).first(connection)?;
    let op_sets: Option<i64> = op_set::table.select(max(op_set::seq)).first(connection)?;
    let intents: Option<i64> = intent::table.select(max(intent::id)).first(connection)?;
    Ok(jobs.max(op_sets).max(intents).unwrap_or(0))
}

/// The savepoint that each act has.
pub(super) mod savepoint {
    use super::{Connection, Fixed, QueryResult, RunQueryDsl};

    /// For the first act of a transaction.
    pub(in super::super) fn first(connection: &mut Connection) -> QueryResult<()> {
        Fixed("SAVEPOINT act").execute(connection).map(drop)
    }

    /// For another act.
    pub(in super::super) fn next(connection: &mut Connection) -> QueryResult<()> {
        Fixed("RELEASE act").execute(connection)?;
        first(connection)
    }

    /// Undoes what the act has done.
    pub(in super::super) fn undo(connection: &mut Connection) -> QueryResult<()> {
        Fixed("ROLLBACK TO act").execute(connection).map(drop)
    }

    /// Before what comes behind the last act.
    #[allow(clippy::unnecessary_wraps, reason = "the other backend's can fail")]
    pub(in super::super) fn last(_: &mut Connection) -> QueryResult<()> {
        Ok(())
    }
}

/// Why a transaction was undone.
#[derive(Debug, Clone)]
pub(super) struct NotCommitted(String);

impl NotCommitted {
    pub(super) fn into_error(self, action: &'static str) -> StoreError {
        StoreError::Unavailable { action, source: self.0.into() }
    }
}

/// The connection that writes.
pub(super) struct Writing {
    // In this order: its connection is closed before the other, never at the same time.
    checkpoints: Checkpoints,
    place: Place,
    connection: Option<Connection>,
}

impl Writing {
    pub(super) fn new(place: Place, connection: Connection) -> Result<Self, StoreError> {
        Ok(Self { checkpoints: Checkpoints::start(&place)?, place, connection: Some(connection) })
    }

    /// Runs acts in a transaction. An error of theirs undoes all of it.
    pub(super) fn transact(&mut self, acts: impl FnOnce(&mut Connection) -> QueryResult<()>) -> Result<(), NotCommitted> {
        let connection = match self.connection.take().map_or_else(|| self.place.connect(), Ok) {
            Ok(connection) => self.connection.insert(connection),
            Err(error) => return Err(NotCommitted(error_chain(&error))),
        };
        let committed = connection.immediate_transaction(acts);
        self.checkpoints.committed();
        if AnsiTransactionManager::transaction_manager_status_mut(connection).transaction_depth().is_ok_and(|depth| depth.is_none()) {
            return committed.map_err(|error| NotCommitted(error.to_string()));
        }
        // The database undid more than it was asked to, as it may when the disk is full; nothing is certain about this connection.
        self.connection = None;
        Err(NotCommitted(committed.err().map_or_else(|| "the transaction is broken".to_owned(), |error| error.to_string())))
    }
}

/// A statement without values.
struct Fixed(&'static str);

impl diesel::query_builder::QueryId for Fixed {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl RunQueryDsl<Connection> for Fixed {}

impl diesel::query_builder::QueryFragment<Db> for Fixed {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Db>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}
