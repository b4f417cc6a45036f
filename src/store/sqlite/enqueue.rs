use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::sqlite::Sqlite;

use super::backend::{Connection, Number};
use super::sql::schema::{job, repo};
use super::sql::{Act, BodyRow, Tx};
use crate::job::ConsumerId;
use crate::store::rules::Body;
use crate::syntax::Did;

/// Adds jobs that are not there yet, one after the other. Returns how many were added.
pub(super) fn enqueue(tx: &mut Tx<'_>, of: ConsumerId, dids: &[Did]) -> Act<u64> {
    let body = Body::new();
    let mut added = 0;
    for did in dids {
        let found = repo::table.filter(repo::did.eq(did.as_str())).select((repo::id, repo::host)).get_result(tx.connection).optional()?;
        let (repo, host): (i64, Option<i64>) = match found {
            // A repo that is known may have a job of this consumer.
            Some((id, _)) if has_job(tx, of, id)? => continue,
            Some(found) => found,
            None => (PutRepo(did.as_str()).get_result(tx.connection)?, None),
        };
        PutJob { id: tx.numbers.next(), consumer: of.0, repo, host, row: BodyRow::of(&body) }.execute(tx.connection)?;
        added += 1;
    }
    tx.tallies.entry(of).or_default().count(&body, i64::try_from(added).unwrap_or(i64::MAX));
    Ok(added)
}

fn has_job(tx: &mut Tx<'_>, of: ConsumerId, repo: i64) -> Act<bool> {
    let there = job::table.filter(job::repo.eq(repo).and(job::consumer.eq(of.0))).select(job::id);
    Ok(there.get_result::<i64>(tx.connection).optional()?.is_some())
}

/// Adds a repo; gives its id. Spelled out, as the statement below, so that it is kept prepared.
struct PutRepo<'a>(&'a str);

/// Adds a job.
struct PutJob {
    id: Number,
    consumer: i64,
    repo: i64,
    host: Option<i64>,
    row: BodyRow,
}

impl Query for PutRepo<'_> {
    type SqlType = BigInt;
}

impl QueryFragment<Sqlite> for PutRepo<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("INSERT INTO repo (did) VALUES (");
        out.push_bind_param::<Text, _>(self.0)?;
        out.push_sql(") RETURNING id");
        Ok(())
    }
}

impl QueryFragment<Sqlite> for PutJob {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql(
            "INSERT INTO job (id, consumer, repo, host, state, due_at, epoch, rev, data, min_rev, older, failures, failure, account, untold, records) \
             VALUES (",
        );
        self.id.say(&mut out)?;
        macro_rules! values {
            ($($of:ty = $value:expr),+ $(,)?) => {
                $(out.push_sql(", ");
                out.push_bind_param::<$of, _>($value)?;)+
            };
        }
        values!(BigInt = &self.consumer, BigInt = &self.repo, Nullable<BigInt> = &self.host);
        values!(Text = &self.row.state, Nullable<BigInt> = &self.row.due_at, BigInt = &self.row.epoch);
        values!(Nullable<Text> = &self.row.rev, Nullable<Binary> = &self.row.data, Nullable<Text> = &self.row.min_rev);
        values!(Nullable<Text> = &self.row.older, BigInt = &self.row.failures, Text = &self.row.failure);
        values!(Nullable<Text> = &self.row.account, Nullable<Text> = &self.row.untold, BigInt = &self.row.records);
        out.push_sql(")");
        Ok(())
    }
}

macro_rules! kept_prepared {
    ($statement:ty) => {
        impl QueryId for $statement {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }

        impl RunQueryDsl<Connection> for $statement {}
    };
}
kept_prepared!(PutRepo<'_>);
kept_prepared!(PutJob);
