//! What is PostgreSQL's own of the store; the list is in the module `sql`.

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::query_builder::AstPass;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::sql::Tail;
use crate::job::{ConsumerId, JobId};
use crate::store::rules::Body;
use crate::syntax::Did;

pub(super) use super::enqueue::enqueue;
pub(super) use super::place::Place;
pub(super) use super::writing::{NotCommitted, Writing};
pub(super) use diesel::pg::{Pg as Db, PgConnection as Connection};

pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// Of more savepoints than 64 in one transaction the server keeps the numbers outside of its shared memory, and every reader pays for that.
pub(super) const GROUP: usize = 64;
/// An act that another process stands in the way of is undone alone.
pub(super) const ALWAYS_APART: bool = true;
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
pub(super) const SIZE: &str = "SELECT pg_database_size(current_database()) AS n";
pub(super) const FOR_CHANGE: &str = " FOR UPDATE OF job";
/// What another process is changing is not to be had now.
pub(super) const FOR_CLAIM: &str = " FOR UPDATE OF job SKIP LOCKED";
/// That the host of a job, or the duty for jobs without one, is not another process's; and that whoever follows an upstream knows of its repo, so that no event is
/// passed over from the claim on.
pub(super) const MAY_BE_CLAIMED: &str = "NOT EXISTS (SELECT FROM host AS its WHERE its.id = job.host AND its.holder <> current_setting('backfill.process')::bigint) \
     AND (job.host IS NOT NULL OR NOT EXISTS (SELECT FROM duty WHERE duty.name = 'unplaced' AND duty.holder <> current_setting('backfill.process')::bigint)) \
     AND NOT EXISTS (SELECT FROM duty WHERE duty.name <> 'unplaced' AND duty.holder IS NOT NULL AND coalesce(duty.known, 0) < job.id)";
/// In this form no index on the consumer can be taken for it: while the tables are still empty that looks as good as the one on the repo, and the plan stays.
pub(super) const OF_CONSUMER: &str = "job.consumer + 0 = ";
pub(super) const NEXT_CONSUMER: &str = "nextval('consumer_number')";

/// Tells a damaged database from one that cannot be used now. The error's code does not come through diesel; the words are those of an English server,
/// and on another one damage is retried, and logged, until somebody looks.
pub(super) fn is_corruption(kind: &DatabaseErrorKind, information: &dyn DatabaseErrorInformation) -> bool {
    const WORDS: [&str; 3] = ["invalid page in block", "corrupt", "chunk number"];
    matches!(kind, DatabaseErrorKind::Unknown) && WORDS.iter().any(|words| information.message().contains(words))
}

/// Tells whether a store was ever made in the database.
pub(super) const IS_MADE: &str = "SELECT to_regclass('__diesel_schema_migrations') IS NOT NULL AS made";

/// Whether another process stands in the way, for longer than it commonly takes to commit. The error's code does not come through diesel: on a server that does
/// not speak English the act fails, as one that can be done again.
pub(super) fn is_contended(error: &diesel::result::Error) -> bool {
    const WORDS: [&str; 2] = ["due to lock timeout", "deadlock detected"];
    match error {
        diesel::result::Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
        diesel::result::Error::DatabaseError(_, information) => WORDS.iter().any(|words| information.message().contains(words)),
        _ => false,
    }
}

/// Whether a connection, which is in no transaction, can be used no more. To be asked when something has failed: diesel does not notice a loss that a
/// statement runs into while it is prepared, so that it has to be tried.
pub(super) fn is_lost(connection: &mut Connection) -> bool {
    AnsiTransactionManager::is_broken_transaction_manager(connection) || connection.batch_execute("SELECT 1").is_err()
}

/// Ids come from a sequence of the database.
pub(super) struct Numbers;

impl Numbers {
    pub(super) fn next(&mut self) -> Number {
        Number
    }
}

/// An id that the statement draws.
pub(super) struct Number;

impl Number {
    pub(super) fn say<'b>(&'b self, out: &mut AstPass<'_, 'b, Db>) -> QueryResult<()> {
        out.push_sql("nextval('number')");
        Ok(())
    }
}

/// Other processes change jobs too, so none is known without asking.
#[derive(Debug, Default)]
pub(super) struct KnownJobs(());

#[allow(clippy::unused_self, reason = "the other backend's know something")]
impl KnownJobs {
    pub(super) fn find(&mut self, _: ConsumerId, _: &Did) -> Option<(JobId, Body, Option<Tail>)> {
        None
    }

    pub(super) fn body(&mut self, _: JobId) -> Option<(ConsumerId, Body, Option<Tail>)> {
        None
    }

    pub(super) fn keep(&mut self, _: JobId, _: ConsumerId, _: &Body) {}

    pub(super) fn name(&mut self, _: ConsumerId, _: &Did, _: JobId) {}

    pub(super) fn set_tail(&mut self, _: JobId, _: Tail) {}

    pub(super) fn forget(&mut self, _: JobId) {}

    pub(super) fn forget_all(&mut self) {}
}

/// The savepoint that each act has. One round trip to the next one. The first comes behind the look whether this process is still known, whose lock must stay
/// when the act is undone.
pub(super) mod savepoint {
    use diesel::connection::SimpleConnection;
    use diesel::prelude::*;

    use super::Connection;

    /// For the first act of a transaction.
    pub(in super::super) fn first(connection: &mut Connection) -> QueryResult<()> {
        connection.batch_execute("SAVEPOINT act")
    }

    /// For another act.
    pub(in super::super) fn next(connection: &mut Connection) -> QueryResult<()> {
        connection.batch_execute("RELEASE act; SAVEPOINT act")
    }

    /// Undoes what the act has done.
    pub(in super::super) fn undo(connection: &mut Connection) -> QueryResult<()> {
        connection.batch_execute("ROLLBACK TO act")
    }

    /// Before what comes behind the last act: who waits there has all that he needs but that, so that it can be waited for.
    pub(in super::super) fn last(connection: &mut Connection) -> QueryResult<()> {
        connection.batch_execute("RELEASE act; SET LOCAL lock_timeout = 0")
    }
}
