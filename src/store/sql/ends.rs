//! The ends of a buffer: what its first and its last row say of all of it, so that nothing is counted and no row of a job changes when an op set comes.

use diesel::dsl::sql;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::backend::{Connection, Db};
use super::fault::{Act, Fault};
use super::rows::position;
use crate::job::{JobId, Position};
use crate::syntax::Rev;

/// What is in the buffer of a job.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffer {
    pub(super) op_sets: u64,
    /// What the bodies take.
    pub(super) bytes: u64,
    /// That of the last op set; None when it is empty.
    pub(super) rev: Option<Rev>,
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

/// Two columns behind those of a job: its buffer's first and last row, each as its place, bytes, the length of its body and its rev, with blanks between. In one
/// value each, because what a job's row is selected with is found by one look into an index for each, on both databases; all of one moment.
pub(super) fn columns() -> (SqlLiteral<Nullable<Text>>, SqlLiteral<Nullable<Text>>) {
    const WORDS: &str = "(SELECT CAST(place AS TEXT) || ' ' || CAST(bytes AS TEXT) || ' ' || CAST(length(body) AS TEXT) || ' ' || rev \
                         FROM op_set WHERE op_set.job = job.id ORDER BY seq";
    (sql(&format!("{WORDS} LIMIT 1)")), sql(&format!("{WORDS} DESC LIMIT 1)")))
}

/// Reads [`columns`].
pub(super) fn of_columns(id: JobId, first: Option<&str>, last: Option<&str>) -> Act<Buffer> {
    let end = |text: &str| {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        let end = End { place: number()?, bytes: number()?, length: number()?, rev: Rev::new(words.next()?).ok()? };
        words.next().is_none().then_some(end)
    };
    let read = |text: &str| end(text).ok_or_else(|| Fault::corrupt(named(id), format!("not an op set's: {text:?}")));
    buffer(id, first.map(read).transpose()?.zip(last.map(read).transpose()?))
}

/// What a row at an end of a buffer says of all of it.
struct End {
    place: i64,
    bytes: i64,
    length: i64,
    rev: Rev,
}

/// A buffer from its ends, which are the same row when it holds one op set.
fn buffer(id: JobId, ends: Option<(End, End)>) -> Act<Buffer> {
    let Some((first, last)) = ends else { return Ok(Buffer::default()) };
    let number = |number: i64| u64::try_from(number).map_err(|error| Fault::corrupt(named(id), error));
    let op_sets = last.place.saturating_sub(first.place).saturating_add(1);
    let bytes = last.bytes.saturating_sub(first.bytes).saturating_add(first.length);
    Ok(Buffer { op_sets: number(op_sets)?, bytes: number(bytes)?, rev: Some(last.rev) })
}

fn named(id: JobId) -> String {
    format!("the buffer of job {}", id.0)
}

/// Reads what is in the buffer of a job, and its tail.
pub(super) fn read(connection: &mut Connection, id: JobId) -> Act<(Buffer, Option<Tail>)> {
    type Row = (i64, String, Option<Vec<u8>>, i64, i64, i64);
    let mut ends = Vec::with_capacity(2);
    let rows: Vec<Row> = FindEnds { job: id.0 }.load(connection)?;
    for (seq, rev, data, place, bytes, length) in rows {
        let position = position(seq, &rev, data.as_deref())?;
        ends.push((End { place, bytes, length, rev: position.rev }, Tail { position, place, bytes }));
    }
    let Some((last, tail)) = ends.pop() else { return Ok((Buffer::default(), None)) };
    let first = ends.pop().map_or(End { ..last }, |(first, _)| first);
    Ok((buffer(id, Some((first, last)))?, Some(tail)))
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
