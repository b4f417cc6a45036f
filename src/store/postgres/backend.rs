//! What is PostgreSQL's own of the store; the list is in the module `sql`.

use diesel::connection::{AnsiTransactionManager, SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel::query_builder::AstPass;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

pub(super) use super::enqueue::enqueue;
pub(super) use super::place::Place;
pub(super) use super::writing::{NotCommitted, Writing};
pub(super) use diesel::pg::{Pg as Db, PgConnection as Connection};

pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// Of more savepoints than 64 in one transaction the server keeps the numbers outside of its shared memory, and every reader pays for that.
pub(super) const GROUP: usize = 64;
pub(super) const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
pub(super) const SIZE: &str = "SELECT pg_database_size(current_database()) AS n";
pub(super) const FOR_CHANGE: &str = " FOR UPDATE OF job";
/// In this form no index on the consumer can be taken for it: while the tables are still empty that looks as good as the one on the repo, and the plan stays.
pub(super) const OF_CONSUMER: &str = "job.consumer + 0 = ";
pub(super) const NEXT_CONSUMER: &str = "nextval('consumer_number')";

/// Tells a damaged database from one that cannot be used now. The error's code does not come through diesel; the words are those of an English server,
/// and on another one damage is retried, and logged, until somebody looks.
pub(super) fn is_corruption(kind: &DatabaseErrorKind, information: &dyn DatabaseErrorInformation) -> bool {
    const WORDS: [&str; 3] = ["invalid page in block", "corrupt", "chunk number"];
    matches!(kind, DatabaseErrorKind::Unknown) && WORDS.iter().any(|words| information.message().contains(words))
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

/// The savepoint that each act has. One round trip to the next one, none to the first, which comes with the transaction.
pub(super) mod savepoint {
    use diesel::connection::SimpleConnection;
    use diesel::prelude::*;

    use super::Connection;

    /// For the first act of a transaction.
    #[allow(clippy::unnecessary_wraps, reason = "the other backend's can fail")]
    pub(in super::super) fn first(_: &mut Connection) -> QueryResult<()> {
        Ok(())
    }

    /// For another act.
    pub(in super::super) fn next(connection: &mut Connection) -> QueryResult<()> {
        connection.batch_execute("RELEASE act; SAVEPOINT act")
    }

    /// Undoes what the act has done.
    pub(in super::super) fn undo(connection: &mut Connection) -> QueryResult<()> {
        connection.batch_execute("ROLLBACK TO act")
    }
}
