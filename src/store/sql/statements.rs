//! Statements spelled out, because diesel does not keep its updates prepared, and preparing one costs more than running it.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};

use super::rows::BodyRow;

diesel::define_sql_function! {
    /// The length of a blob in bytes.
    fn length(bytes: Binary) -> BigInt;
}

/// A statement without values.
pub(super) struct Fixed(pub(super) &'static str);

/// Writes the columns of a job that the verbs change.
pub(super) struct KeepJob {
    pub(super) id: i64,
    pub(super) row: BodyRow,
}

/// Puts other entries into a chunk whose first path stays.
pub(super) struct KeepChunk<'a> {
    pub(super) job: i64,
    pub(super) first: &'a str,
    pub(super) entries: i64,
    pub(super) bytes: &'a [u8],
}

/// What is kept prepared is found by the text of the statement.
macro_rules! found_by_text {
    ($($statement:ty),+) => {$(
        impl QueryId for $statement {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
        impl RunQueryDsl<SqliteConnection> for $statement {}
    )+};
}
found_by_text!(Fixed, KeepJob, KeepChunk<'_>);

impl QueryFragment<Sqlite> for Fixed {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}

impl QueryFragment<Sqlite> for KeepJob {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let row = &self.row;
        out.push_sql("UPDATE job SET state = ");
        out.push_bind_param::<Text, _>(&row.state)?;
        out.push_sql(", due_at = ");
        out.push_bind_param::<Nullable<BigInt>, _>(&row.due_at)?;
        out.push_sql(", epoch = ");
        out.push_bind_param::<BigInt, _>(&row.epoch)?;
        out.push_sql(", rev = ");
        out.push_bind_param::<Nullable<Text>, _>(&row.rev)?;
        out.push_sql(", data = ");
        out.push_bind_param::<Nullable<Binary>, _>(&row.data)?;
        out.push_sql(", min_rev = ");
        out.push_bind_param::<Nullable<Text>, _>(&row.min_rev)?;
        out.push_sql(", older = ");
        out.push_bind_param::<Nullable<Text>, _>(&row.older)?;
        out.push_sql(", failures = ");
        out.push_bind_param::<BigInt, _>(&row.failures)?;
        out.push_sql(", failure = ");
        out.push_bind_param::<Text, _>(&row.failure)?;
        out.push_sql(", account = ");
        out.push_bind_param::<Nullable<Text>, _>(&row.account)?;
        out.push_sql(", untold = ");
        out.push_bind_param::<Nullable<Text>, _>(&row.untold)?;
        out.push_sql(", records = ");
        out.push_bind_param::<BigInt, _>(&row.records)?;
        out.push_sql(", buffered_op_sets = ");
        out.push_bind_param::<BigInt, _>(&row.buffered_op_sets)?;
        out.push_sql(", buffered_bytes = ");
        out.push_bind_param::<BigInt, _>(&row.buffered_bytes)?;
        out.push_sql(" WHERE id = ");
        out.push_bind_param::<BigInt, _>(&self.id)
    }
}

impl QueryFragment<Sqlite> for KeepChunk<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        out.push_sql("UPDATE manifest_chunk SET entries = ");
        out.push_bind_param::<BigInt, _>(&self.entries)?;
        out.push_sql(", bytes = ");
        out.push_bind_param::<Binary, _>(self.bytes)?;
        out.push_sql(" WHERE job = ");
        out.push_bind_param::<BigInt, _>(&self.job)?;
        out.push_sql(" AND first = ");
        out.push_bind_param::<Text, _>(self.first)
    }
}
