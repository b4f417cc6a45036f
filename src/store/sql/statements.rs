//! Statements spelled out, because diesel does not keep its updates and inserts prepared, and preparing one costs more than running it.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text};

use super::backend::{Connection, Db, NEXT_CONSUMER, Number};
use super::rows::BodyRow;
use crate::store::rules::Tally;

/// Writes the columns of a job that the verbs change.
pub(super) struct KeepJob {
    pub(super) id: i64,
    pub(super) row: BodyRow,
}

/// Puts an op set behind the last one of a job.
pub(super) struct PutOpSet<'a> {
    pub(super) seq: Number,
    pub(super) job: i64,
    pub(super) rev: &'a str,
    pub(super) data: Option<&'a [u8]>,
    pub(super) place: i64,
    pub(super) bytes: i64,
    pub(super) body: &'a [u8],
}

/// Takes op sets up to and with one out of a buffer; gives the sizes of their bodies.
pub(super) struct TakeOpSets {
    pub(super) job: i64,
    pub(super) to: i64,
}

/// Adds an intent; gives its id.
pub(super) struct PutIntent {
    pub(super) id: Number,
    pub(super) job: i64,
    pub(super) epoch: i64,
    pub(super) paths: Vec<u8>,
}

/// Adds a chunk.
pub(super) struct PutChunk<'a> {
    pub(super) job: i64,
    pub(super) first: &'a str,
    pub(super) entries: i64,
    pub(super) bytes: &'a [u8],
}

/// Puts other entries into a chunk whose first path stays.
pub(super) struct KeepChunk<'a> {
    pub(super) job: i64,
    pub(super) first: &'a str,
    pub(super) entries: i64,
    pub(super) bytes: &'a [u8],
}

/// Adds to the sums of a consumer.
pub(super) struct AddToTotal<'a> {
    pub(super) consumer: i64,
    pub(super) tally: &'a Tally,
}

/// Finds the hosts that have a job which waits, from one to the next by the index of what is due: for each its name, whether a job may be claimed now, and when
/// the next failed one comes due, if any. A host costs the same, however many jobs it has.
pub(super) struct FindDueHosts {
    /// In milliseconds since the Unix epoch.
    pub(super) now: i64,
}

/// Adds a consumer, unless one of that name is there.
pub(super) struct PutConsumer<'a>(pub(super) &'a str);

/// What is kept prepared is found by the text of the statement, which is pieces of it with a value after each, and an end.
macro_rules! spelled {
    ($statement:ty, |$self:ident, $out:ident| $body:expr) => {
        impl QueryId for $statement {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }

        impl RunQueryDsl<Connection> for $statement {}

        impl QueryFragment<Db> for $statement {
            fn walk_ast<'b>(&'b $self, mut $out: AstPass<'_, 'b, Db>) -> QueryResult<()> {
                $body
            }
        }
    };
}
macro_rules! say {
    ($out:ident, $($sql:literal $of:ty = $value:expr),+; $end:literal) => {{
        $($out.push_sql($sql);
        $out.push_bind_param::<$of, _>($value)?;)+
        $out.push_sql($end);
        Ok(())
    }};
}

spelled!(KeepJob, |self, out| say!(out,
    "UPDATE job SET state = " Text = &self.row.state,
    ", due_at = " Nullable<BigInt> = &self.row.due_at,
    ", epoch = " BigInt = &self.row.epoch,
    ", rev = " Nullable<Text> = &self.row.rev,
    ", data = " Nullable<Binary> = &self.row.data,
    ", min_rev = " Nullable<Text> = &self.row.min_rev,
    ", older = " Nullable<Text> = &self.row.older,
    ", failures = " BigInt = &self.row.failures,
    ", failure = " Text = &self.row.failure,
    ", account = " Nullable<Text> = &self.row.account,
    ", untold = " Nullable<Text> = &self.row.untold,
    ", records = " BigInt = &self.row.records,
    " WHERE id = " BigInt = &self.id; ""
));

spelled!(PutOpSet<'_>, |self, out| {
    out.push_sql("INSERT INTO op_set (seq, job, rev, data, place, bytes, body) VALUES (");
    self.seq.say(&mut out)?;
    say!(out,
        ", " BigInt = &self.job,
        ", " Text = self.rev,
        ", " Nullable<Binary> = &self.data,
        ", " BigInt = &self.place,
        ", " BigInt = &self.bytes,
        ", " Binary = self.body; ")"
    )
});

spelled!(TakeOpSets, |self, out| say!(out,
    "DELETE FROM op_set WHERE job = " BigInt = &self.job,
    " AND seq <= " BigInt = &self.to; " RETURNING CAST(length(body) AS BIGINT)"
));

impl Query for TakeOpSets {
    type SqlType = BigInt;
}

spelled!(PutIntent, |self, out| {
    out.push_sql("INSERT INTO intent (id, job, epoch, paths) VALUES (");
    self.id.say(&mut out)?;
    say!(out,
        ", " BigInt = &self.job,
        ", " BigInt = &self.epoch,
        ", " Binary = &self.paths; ") RETURNING id"
    )
});

impl Query for PutIntent {
    type SqlType = BigInt;
}

spelled!(PutChunk<'_>, |self, out| say!(out,
    "INSERT INTO manifest_chunk (job, first, entries, bytes) VALUES (" BigInt = &self.job,
    ", " Text = self.first,
    ", " BigInt = &self.entries,
    ", " Binary = self.bytes; ")"
));

spelled!(KeepChunk<'_>, |self, out| say!(out,
    "UPDATE manifest_chunk SET entries = " BigInt = &self.entries,
    ", bytes = " Binary = self.bytes,
    " WHERE job = " BigInt = &self.job,
    " AND first = " Text = self.first; ""
));

spelled!(AddToTotal<'_>, |self, out| say!(out,
    "UPDATE total SET enqueued = enqueued + " BigInt = &self.tally.enqueued,
    ", in_progress = in_progress + " BigInt = &self.tally.in_progress,
    ", complete = complete + " BigInt = &self.tally.complete,
    ", failed = failed + " BigInt = &self.tally.failed,
    ", unavailable = unavailable + " BigInt = &self.tally.unavailable,
    ", records = records + " BigInt = &self.tally.records,
    ", buffered_op_sets = buffered_op_sets + " BigInt = &self.tally.buffered_op_sets,
    ", buffered_bytes = buffered_bytes + " BigInt = &self.tally.buffered_bytes,
    ", dropped_op_sets = dropped_op_sets + " BigInt = &self.tally.dropped_op_sets,
    ", untold = untold + " BigInt = &self.tally.untold,
    " WHERE consumer = " BigInt = &self.consumer; ""
));

spelled!(FindDueHosts, |self, out| say!(out,
    "WITH RECURSIVE place (host) AS ( \
     SELECT (SELECT host FROM job WHERE host IS NOT NULL AND due_at IS NOT NULL ORDER BY host, due_at LIMIT 1) \
     UNION ALL \
     SELECT (SELECT job.host FROM job WHERE job.host > place.host AND job.due_at IS NOT NULL ORDER BY job.host, job.due_at LIMIT 1) \
     FROM place WHERE place.host IS NOT NULL) \
     SELECT (SELECT name FROM host WHERE host.id = place.host), EXISTS (SELECT 1 FROM job WHERE job.host = place.host AND job.due_at <= "
    BigInt = &self.now,
    "), (SELECT job.due_at FROM job WHERE job.host = place.host AND job.due_at > " BigInt = &self.now;
    " ORDER BY job.due_at LIMIT 1) FROM place WHERE place.host IS NOT NULL"
));

impl Query for FindDueHosts {
    type SqlType = (Nullable<Text>, Bool, Nullable<BigInt>);
}

spelled!(PutConsumer<'_>, |self, out| {
    out.push_sql("INSERT INTO consumer (id, name) VALUES (");
    out.push_sql(NEXT_CONSUMER);
    say!(out, ", " Text = self.0; ") ON CONFLICT (name) DO NOTHING")
});
