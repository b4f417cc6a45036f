//! The least that SQLite itself takes for the rows of a buffer: one thread, prepared statements, commits of as many as callers wait, and nothing else.

use std::path::Path;
use std::time::Instant;

use atproto_backfill::job::OpSet;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};

struct PutRow<'a> {
    seq: i64,
    job: i64,
    rev: &'a str,
    data: &'a [u8],
    body: &'a [u8],
}

impl QueryId for PutRow<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl RunQueryDsl<SqliteConnection> for PutRow<'_> {}

impl QueryFragment<Sqlite> for PutRow<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("INSERT INTO row (seq, job, rev, data, body) VALUES (");
        out.push_bind_param::<BigInt, _>(&self.seq)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, _>(&self.job)?;
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(self.rev)?;
        out.push_sql(", ");
        out.push_bind_param::<Binary, _>(self.data)?;
        out.push_sql(", ");
        out.push_bind_param::<Binary, _>(self.body)?;
        out.push_sql(")");
        Ok(())
    }
}

/// Puts `number` rows like that of `op_set` into a new database, in turn for each of `jobs`. Returns how many a second.
pub(crate) fn rows_a_second(path: &Path, op_set: &OpSet, number: u64, jobs: &[i64], at_once: u64) -> f64 {
    let mut connection = SqliteConnection::establish(path.to_str().expect("UTF-8")).expect("connect");
    let schema = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384; PRAGMA wal_autocheckpoint = 16000;
         CREATE TABLE row (seq INTEGER NOT NULL PRIMARY KEY, job BIGINT NOT NULL, rev TEXT NOT NULL, data BLOB, body BLOB NOT NULL);
         CREATE INDEX row_by_job ON row (job);";
    connection.batch_execute(schema).expect("schema");
    let (body, data) = (op_set.encode(), op_set.data.expect("data"));
    let mut jobs = jobs.iter().cycle();
    let began = Instant::now();
    for from in (0..number).step_by(at_once as usize) {
        let put = |connection: &mut SqliteConnection| {
            for n in from..number.min(from + at_once) {
                let job = *jobs.next().expect("a job");
                PutRow { seq: n as i64, job, rev: op_set.rev.as_str(), data: data.digest(), body: &body }.execute(connection)?;
            }
            QueryResult::Ok(())
        };
        connection.immediate_transaction(put).expect("commit");
    }
    number as f64 / began.elapsed().as_secs_f64()
}
