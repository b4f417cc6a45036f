//! What a session asks the server about itself.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::pg::{Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Double, Integer, Text};

use super::sql::from_sql;
use crate::store::StoreError;

/// Names the advisory lock of whoever brings the schema up to date: "backfill" in ASCII.
const MIGRATING: i64 = 0x6261_636b_6669_6c6c;
/// How long a statement waits for another process before its act makes way: each may have locked what the other waits for.
pub(super) const LOCK_TIMEOUT: &str = "SET lock_timeout = '200ms'";
/// How long a host is left alone when it passes from one process to another, so that both together keep its pace.
pub(super) const HAND_OVER: &str = "interval '1 second'";
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

    /// Ends it, if it is still there; `true` once it is gone.
    pub(super) fn end(&self, connection: &mut PgConnection) -> QueryResult<bool> {
        diesel::dsl::sql::<Bool>("SELECT coalesce(bool_and(pg_terminate_backend(pid, 2000)), TRUE) FROM pg_stat_activity WHERE pid = ")
            .bind::<Integer, _>(self.pid)
            .sql(" AND backend_start::text = ")
            .bind::<Text, _>(&self.begun)
            .get_result(connection)
    }
}

/// Has others wait that bring the schema up to date, or waits for them.
pub(super) fn alone<T>(
    connection: &mut PgConnection,
    act: impl FnOnce(&mut PgConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let failed = |error| from_sql(error, "opening the database");
    let lock = |verb: &str| diesel::sql_query(format!("SELECT pg_advisory_{verb}({MIGRATING})"));
    connection.batch_execute("SET lock_timeout = 0").map_err(failed)?;
    lock("lock").execute(connection).map_err(failed)?;
    let done = act(connection);
    lock("unlock").execute(connection).map_err(failed)?;
    connection.batch_execute(LOCK_TIMEOUT).map_err(failed)?;
    done
}

/// Makes this process known, with a lease; answers by what number.
pub(super) fn join(connection: &mut PgConnection, place: &str, lease: Duration) -> QueryResult<i64> {
    diesel::dsl::sql::<BigInt>("INSERT INTO process (place, expires, working, commits) VALUES (")
        .bind::<Text, _>(place)
        .sql(", clock_timestamp() + make_interval(secs => ")
        .bind::<Double, _>(lease.as_secs_f64())
        .sql("), FALSE, 0) RETURNING id")
        .get_result(connection)
}

/// Has the session say for which process it works.
pub(super) fn work_for(connection: &mut PgConnection, process: i64) -> QueryResult<()> {
    connection.batch_execute(&format!("SET backfill.process = '{process}'"))
}

/// Forgets this process. What it held is free, hosts after a pause.
pub(super) fn part(connection: &mut PgConnection, process: i64) -> QueryResult<()> {
    connection.batch_execute(&format!(
        "BEGIN; UPDATE host SET free_at = clock_timestamp() + {HAND_OVER} WHERE holder = {process}; DELETE FROM process WHERE id = {process}; COMMIT"
    ))
}

/// How many commits of a process were done; none when it is not known any more.
pub(super) fn commits(connection: &mut PgConnection, process: i64) -> QueryResult<Option<i64>> {
    let commits = diesel::dsl::sql::<BigInt>("SELECT commits FROM process WHERE id = ").bind::<BigInt, _>(process);
    commits.get_result(connection).optional()
}

/// Numbers the commit of a transaction; no row for a process that is not known any more. One that is stays known until the transaction ends: nobody takes what it
/// holds. Part of every transaction, so it is kept prepared.
#[derive(Debug, QueryId)]
pub(super) struct CountCommit(pub(super) i64);

impl Query for CountCommit {
    type SqlType = BigInt;
}

impl RunQueryDsl<PgConnection> for CountCommit {}

impl QueryFragment<Pg> for CountCommit {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("UPDATE process SET commits = commits + 1 WHERE id = ");
        out.push_bind_param::<BigInt, _>(&self.0)?;
        out.push_sql(" RETURNING commits");
        Ok(())
    }
}
