//! What a session asks the server about itself.

use diesel::pg::{Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text};

use super::sql::from_sql;
use crate::store::StoreError;

/// The oldest server that the store works with, as it says it.
const OLDEST: i32 = 140_000;

/// The process of the server that has a session.
#[derive(Debug, QueryableByName)]
pub(super) struct ServerProcess {
    #[diesel(sql_type = Integer)]
    pid: i32,
    /// Process ids are given again.
    #[diesel(sql_type = Text)]
    begun: String,
    #[diesel(sql_type = Integer)]
    version: i32,
    #[diesel(sql_type = Text)]
    encoding: String,
}

impl ServerProcess {
    /// That of a session; refuses a server that the store does not work with.
    pub(super) fn of(connection: &mut PgConnection) -> Result<Self, StoreError> {
        let query = "SELECT pid, backend_start::text AS begun, current_setting('server_version_num')::int AS version, \
                     current_setting('server_encoding') AS encoding FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let found: Self = diesel::sql_query(query).get_result(connection).map_err(|error| from_sql(error, "opening the database"))?;
        let refused = |why: String| StoreError::Unavailable { action: "opening the database", source: why.into() };
        if found.version < OLDEST {
            return Err(refused(format!("PostgreSQL 14 or later is needed, this is {}", found.version / 10_000)));
        }
        if found.encoding != "UTF8" {
            return Err(refused(format!("the encoding of the database is {}, not UTF8", found.encoding)));
        }
        Ok(found)
    }

    /// Ends it, if it is still there, and waits for that.
    pub(super) fn end(&self, connection: &mut PgConnection) -> QueryResult<()> {
        let end = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";
        diesel::sql_query(end).bind::<Integer, _>(self.pid).bind::<Text, _>(&self.begun).execute(connection).map(drop)
    }
}

/// Takes an advisory lock for the session, if nobody has it.
pub(super) fn lock(connection: &mut PgConnection, key: i64) -> QueryResult<bool> {
    diesel::dsl::sql::<Bool>("SELECT pg_try_advisory_lock(").bind::<BigInt, _>(key).sql(")").get_result(connection)
}

/// The number of the transaction that a session is in; none when it has written nothing.
pub(super) fn transaction(connection: &mut PgConnection) -> QueryResult<Option<String>> {
    TransactionNumber.get_result(connection)
}

/// What became of a transaction: "committed", "aborted" or "in progress"; none for one that the server does not remember.
pub(super) fn status(connection: &mut PgConnection, number: &str) -> QueryResult<Option<String>> {
    diesel::dsl::sql::<Nullable<Text>>("SELECT pg_xact_status(").bind::<Text, _>(number).sql("::xid8)").get_result(connection)
}

/// Asked at every commit, so it is kept prepared.
#[derive(Debug, QueryId)]
struct TransactionNumber;

impl Query for TransactionNumber {
    type SqlType = Nullable<Text>;
}

impl RunQueryDsl<PgConnection> for TransactionNumber {}

impl QueryFragment<Pg> for TransactionNumber {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT pg_current_xact_id_if_assigned()::text");
        Ok(())
    }
}
