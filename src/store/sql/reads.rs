//! The verbs that only read.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;
use diesel::expression::SqlLiteral;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};

use super::backend::{Connection, Db};
use super::endings::Endings as _;
use super::ends;
use super::fault::{Act, Fault};
use super::jobs::{dids_of, jobs_of};
use super::of_consumer::OfConsumer;
use super::rows::{BodyRow, JobRow, did, position};
use super::schema::{consumer, host, intent, job, op_set, repo, total};
use super::statements::FindDueHosts;
use crate::job::{BufferSeq, ConsumerId, Job, JobId, OpSet, Position, Timestamp};
use crate::manifest::decode_paths;
use crate::store::rules::Tally;
use crate::store::{DueHosts, Totals, Where};
use crate::syntax::{Did, RecordPath};

/// Jobs with the names that they refer to.
#[diesel::dsl::auto_type]
fn named_jobs() -> _ {
    job::table.inner_join(repo::table.on(repo::id.eq(job::repo))).left_join(host::table.on(host::id.nullable().eq(job::host)))
}

type Ends = SqlLiteral<Nullable<Text>>;
type JobColumns = (job::id, repo::did, diesel::dsl::Nullable<host::name>, diesel::helper_types::AsSelect<BodyRow, Db>, Ends, Ends);

fn job_columns() -> JobColumns {
    let (first, last) = ends::columns();
    (job::id, repo::did, host::name.nullable(), BodyRow::as_select(), first, last)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn consumers(connection: &mut Connection) -> Act<Vec<String>> {
    Ok(consumer::table.select(consumer::name).load(connection)?)
}

pub(super) fn job(connection: &mut Connection, of: ConsumerId, did: &Did) -> Act<Option<Job>> {
    let row: Option<JobRow> =
        named_jobs().filter(repo::did.eq(did.as_str()).and(OfConsumer(of))).select(job_columns()).get_result(connection).optional()?;
    row.map(super::rows::job_of).transpose()
}

pub(in crate::store) fn jobs(connection: &mut Connection, of: ConsumerId, after: Option<JobId>, limit: usize) -> Act<Vec<Job>> {
    let after = after.map_or(i64::MIN, |after| after.0);
    let rows: Vec<JobRow> = named_jobs()
        .filter(job::consumer.eq(of.0).and(job::id.gt(after)))
        .order(job::id)
        .limit(count(limit))
        .select(job_columns())
        .load(connection)?;
    jobs_of(rows)
}

pub(super) fn unflushed(connection: &mut Connection, after: Option<JobId>, limit: usize) -> Act<Vec<Job>> {
    let mut found = Vec::new();
    let mut after = after.map_or(i64::MIN, |after| after.0);
    while found.len() < limit {
        // From job to job by the index, however many op sets each has.
        let buffered: Option<i64> =
            op_set::table.filter(op_set::job.gt(after)).order(op_set::job).select(op_set::job).one().get_result(connection).optional()?;
        let untold: Option<i64> = job::table
            .filter(job::id.gt(after).and(job::untold.is_not_null()))
            .order(job::id)
            .select(job::id)
            .one()
            .get_result(connection)
            .optional()?;
        let Some(id) = buffered.into_iter().chain(untold).min() else { break };
        let ripe = job::state.eq("complete").or(job::untold.is_not_null());
        let row: Option<JobRow> = named_jobs().filter(job::id.eq(id).and(ripe)).select(job_columns()).get_result(connection).optional()?;
        found.extend(row.map(super::rows::job_of).transpose()?);
        after = id;
    }
    Ok(found)
}

pub(super) fn totals(connection: &mut Connection, of: ConsumerId) -> Act<Totals> {
    type Columns = (i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);
    let row: Option<Columns> = total::table.find(of.0).get_result(connection).optional()?;
    let Some((_, enqueued, in_progress, complete, failed, unavailable, records, buffered_op_sets, buffered_bytes, dropped_op_sets, untold)) =
        row
    else {
        return Ok(Totals::default());
    };
    let tally =
        Tally { enqueued, in_progress, complete, failed, unavailable, records, buffered_op_sets, buffered_bytes, dropped_op_sets, untold };
    tally.totals().ok_or_else(|| Fault::corrupt(format!("totals of consumer {}", of.0), format!("below zero: {tally:?}")))
}

pub(super) fn due(connection: &mut Connection, place: Where<'_>, now: Timestamp, limit: usize) -> Act<Vec<Did>> {
    let host_id = match place {
        Where::Unplaced => None,
        Where::Host(name) => match host::table.filter(host::name.eq(name)).select(host::id).get_result::<i64>(connection).optional()? {
            Some(id) => Some(id),
            None => return Ok(Vec::new()),
        },
    };
    let mut dids = Vec::new();
    let mut seen = HashSet::new();
    let mut offset = 0;
    // Several jobs of one repo are one answer, so a page may fall short of the limit.
    while dids.len() < limit {
        let page = due_page(connection, host_id, now, limit, offset)?;
        let full = page.len() == limit;
        offset += page.len();
        dids.extend(page.into_iter().filter(|did| seen.insert(did.clone())).take(limit - dids.len()));
        if !full {
            break;
        }
    }
    dids_of(dids)
}

fn due_page(connection: &mut Connection, host_id: Option<i64>, now: Timestamp, limit: usize, offset: usize) -> Act<Vec<String>> {
    let page = job::table
        .inner_join(repo::table.on(repo::id.eq(job::repo)))
        .filter(job::due_at.le(now.0))
        .order((job::due_at, job::id))
        .limit(count(limit))
        .offset(count(offset))
        .select(repo::did);
    Ok(match host_id {
        Some(id) => page.filter(job::host.eq(id)).load(connection)?,
        None => page.filter(job::host.is_null()).load(connection)?,
    })
}

pub(super) fn due_hosts(connection: &mut Connection, now: Timestamp) -> Act<DueHosts> {
    let unplaced = || job::table.filter(job::host.is_null()).order(job::due_at).select(job::due_at);
    let is_due = unplaced().filter(job::due_at.le(now.0)).one().get_result::<Option<i64>>(connection).optional()?;
    let later: Option<Option<i64>> = unplaced().filter(job::due_at.gt(now.0)).one().get_result(connection).optional()?;
    let placed: Vec<(Option<String>, bool, Option<i64>)> = FindDueHosts { now: now.0 }.load(connection)?;
    let retries = placed.iter().filter_map(|(_, _, retry)| *retry).chain(later.flatten());
    let next_retry = retries.min().map(Timestamp);
    let due = placed.into_iter().filter(|(_, is_due, _)| *is_due);
    let hosts =
        due.map(|(name, ..)| name.ok_or_else(|| Fault::corrupt("a job that is due", "its host is not there"))).collect::<Act<_>>()?;
    Ok(DueHosts { hosts, unplaced: is_due.is_some(), next_retry })
}

/// Number, op set, and the rev and data that it is kept for.
type BufferRow = (i64, Vec<u8>, String, Option<Vec<u8>>);

pub(super) fn buffered(connection: &mut Connection, of: JobId, max_bytes: u64) -> Act<Vec<(BufferSeq, OpSet)>> {
    /// Rows are read a few at a time, so that no more than about `max_bytes` is ever in memory.
    const ROWS: i64 = 16;
    let text: Option<String> = job::table
        .inner_join(repo::table.on(repo::id.eq(job::repo)))
        .filter(job::id.eq(of.0))
        .select(repo::did)
        .get_result(connection)
        .optional()?;
    let Some(text) = text else { return Ok(Vec::new()) };
    let did = did(|| format!("job {}", of.0), &text)?;
    let mut op_sets = Vec::new();
    let (mut after, mut total) = (i64::MIN, 0);
    loop {
        let rows: Vec<BufferRow> = op_set::table
            .filter(op_set::job.eq(of.0).and(op_set::seq.gt(after)))
            .order(op_set::seq)
            .limit(ROWS)
            .select((op_set::seq, op_set::body, op_set::rev, op_set::data))
            .load(connection)?;
        let last_page = count(rows.len()) < ROWS;
        for (seq, body, rev, data) in rows {
            total += body.len() as u64;
            if total > max_bytes && !op_sets.is_empty() {
                return Ok(op_sets);
            }
            let at = || format!("op set {seq} of job {}", of.0);
            let op_set = OpSet::decode(did.clone(), Bytes::from(body)).map_err(|error| Fault::corrupt(at(), error))?;
            // What follows is chained by these: before the row is gone, it has to be known that they are wrong.
            if position(seq, &rev, data.as_deref())? != (Position { rev: op_set.rev, data: op_set.data }) {
                return Err(Fault::corrupt(at(), format!("it is kept for {rev}, or for other data, and is of {}", op_set.rev)));
            }
            op_sets.push((BufferSeq(seq), op_set));
            after = seq;
        }
        if last_page {
            return Ok(op_sets);
        }
    }
}

pub(super) fn in_doubt(connection: &mut Connection, of: JobId) -> Act<Vec<RecordPath>> {
    let rows: Vec<(i64, Vec<u8>)> = intent::table.filter(intent::job.eq(of.0)).select((intent::id, intent::paths)).load(connection)?;
    let mut paths = BTreeSet::new();
    for (id, bytes) in rows {
        paths.extend(decode_paths(&bytes).map_err(|error| Fault::corrupt(format!("intent {id} of job {}", of.0), error))?);
    }
    Ok(paths.into_iter().collect())
}
