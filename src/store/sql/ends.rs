//! The ends of a buffer: what its first and its last row say of all of it, so that nothing is counted and no row of a job changes when an op set comes.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::backend::{Connection, Db};
use super::fault::{Act, Fault};
use super::rows::position;
use crate::job::{JobId, Position};

/// What is in the buffer of a job.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffer {
    pub(super) op_sets: u64,
    /// What the bodies take.
    pub(super) bytes: u64,
    /// None when it is empty.
    pub(super) tail: Option<Tail>,
}

/// The last op set of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The position after it.
    pub(in crate::store) position: Position,
    /// Which it is of those that came since the buffer was empty, from 1 on.
    pub(in crate::store) place: i64,
    /// What the bodies of those take.
    pub(in crate::store) bytes: i64,
}

impl Tail {
    /// The tail once an op set has come behind this one.
    pub(super) fn next(before: Option<Self>, position: Position, body: &[u8]) -> Self {
        let (place, bytes) = before.map_or((0, 0), |tail| (tail.place, tail.bytes));
        Self { position, place: place + 1, bytes: bytes.saturating_add(super::rows::signed(body.len() as u64)) }
    }
}

/// The columns of an end: seq, rev, data, place, bytes, and the length of its body.
pub(super) type End = (i64, String, Option<Vec<u8>>, i64, i64, i64);

/// A buffer from its ends, which are the same row when it holds one op set.
pub(super) fn buffer(id: JobId, ends: Option<(End, End)>) -> Act<Buffer> {
    let Some(((_, _, _, first, first_bytes, length), (seq, rev, data, last, last_bytes, _))) = ends else { return Ok(Buffer::default()) };
    let number = |number: i64| u64::try_from(number).map_err(|error| Fault::corrupt(format!("the buffer of job {}", id.0), error));
    let tail = Tail { position: position(seq, &rev, data.as_deref())?, place: last, bytes: last_bytes };
    Ok(Buffer { op_sets: number(last - first + 1)?, bytes: number(last_bytes - first_bytes + length)?, tail: Some(tail) })
}

/// Reads what is in the buffer of a job.
pub(super) fn read(connection: &mut Connection, id: JobId) -> Act<Buffer> {
    let mut rows: Vec<End> = FindEnds { job: id.0 }.load(connection)?;
    let last = rows.pop();
    let first = rows.pop().or_else(|| last.clone());
    buffer(id, first.zip(last))
}

/// Finds the first and the last row of a buffer, by its index.
struct FindEnds {
    job: i64,
}

impl QueryId for FindEnds {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for FindEnds {
    type SqlType = (BigInt, Text, Nullable<Binary>, BigInt, BigInt, BigInt);
}

impl RunQueryDsl<Connection> for FindEnds {}

impl QueryFragment<Db> for FindEnds {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Db>) -> QueryResult<()> {
        out.push_sql("SELECT seq, rev, data, place, bytes, CAST(length(body) AS BIGINT) FROM op_set WHERE seq IN ((SELECT min(seq) FROM op_set WHERE job = ");
        out.push_bind_param::<BigInt, _>(&self.job)?;
        out.push_sql("), (SELECT max(seq) FROM op_set WHERE job = ");
        out.push_bind_param::<BigInt, _>(&self.job)?;
        out.push_sql(")) ORDER BY seq");
        Ok(())
    }
}
