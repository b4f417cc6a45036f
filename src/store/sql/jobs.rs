//! Verbs about which jobs there are, and who has them.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;

use super::backend::MAY_BE_CLAIMED;
use super::endings::Endings as _;
use super::ends::{self, Tail};
use super::fault::Act;
use super::of_consumer::OfConsumer;
use super::rows::{BodyRow, JobRow, did, job_of};
use super::schema::{consumer, host, job, repo, total};
use super::statements::{KeepJob, PutConsumer};
use super::writer::Tx;
use crate::job::{ConsumerId, Job, JobEvent, JobId, Timestamp};
use crate::store::rules::{Body, BufferAct, latest_retry};
use crate::syntax::Did;

impl Tx<'_> {
    pub(super) fn consumer(&mut self, name: &str) -> Act<ConsumerId> {
        let found = consumer::table.filter(consumer::name.eq(name)).select(consumer::id).get_result(self.connection).optional()?;
        if let Some(id) = found {
            return Ok(ConsumerId(id));
        }
        // Another process may be doing the same; then both go on with the one that came first.
        PutConsumer(name).execute(self.connection)?;
        let id: i64 = consumer::table.filter(consumer::name.eq(name)).select(consumer::id).get_result(self.connection)?;
        use total::dsl;
        let zeros = (
            (dsl::consumer.eq(id), dsl::enqueued.eq(0), dsl::in_progress.eq(0), dsl::complete.eq(0), dsl::failed.eq(0)),
            (dsl::unavailable.eq(0), dsl::records.eq(0), dsl::buffered_op_sets.eq(0), dsl::buffered_bytes.eq(0)),
            (dsl::dropped_op_sets.eq(0), dsl::untold.eq(0)),
        );
        diesel::insert_into(total::table).values(zeros).on_conflict(dsl::consumer).do_nothing().execute(self.connection)?;
        Ok(ConsumerId(id))
    }

    /// The job of a repo for a consumer, and the tail of its buffer.
    pub(super) fn find(&mut self, of: ConsumerId, did: &Did) -> Act<Option<(JobId, Body, Option<Tail>)>> {
        if let Some(found) = self.known.find(of, did) {
            return Ok(Some(found));
        }
        let found: Option<(i64, BodyRow)> = job::table
            .inner_join(repo::table.on(repo::id.eq(job::repo)))
            .filter(repo::did.eq(did.as_str()).and(OfConsumer(of)))
            .select((job::id, BodyRow::as_select()))
            .for_change()
            .get_result(self.connection)
            .optional()?;
        let Some((id, row)) = found else { return Ok(None) };
        let id = JobId(id);
        let (body, tail) = self.read(id, of, row)?;
        self.known.name(of, did, id);
        Ok(Some((id, body, tail)))
    }

    /// A job by id, with its consumer and the tail of its buffer.
    pub(super) fn body(&mut self, id: JobId) -> Act<Option<(ConsumerId, Body, Option<Tail>)>> {
        if let Some(found) = self.known.body(id) {
            return Ok(Some(found));
        }
        let found: Option<(i64, BodyRow)> =
            job::table.find(id.0).select((job::consumer, BodyRow::as_select())).for_change().get_result(self.connection).optional()?;
        let Some((of, row)) = found else { return Ok(None) };
        let of = ConsumerId(of);
        let (body, tail) = self.read(id, of, row)?;
        Ok(Some((of, body, tail)))
    }

    /// A job from its row, which is locked by now: what the buffer says is read behind that, so that it goes with the row.
    fn read(&mut self, id: JobId, of: ConsumerId, row: BodyRow) -> Act<(Body, Option<Tail>)> {
        let (buffer, tail) = ends::read(self.connection, id)?;
        let body = row.body(id, &buffer)?;
        self.known.keep(id, of, &body);
        if let Some(tail) = tail {
            self.known.set_tail(id, tail);
        }
        Ok((body, tail))
    }

    /// Writes a job that was changed, does to its buffer what is to be done, and keeps the sums.
    pub(super) fn keep(&mut self, id: JobId, of: ConsumerId, before: &Body, after: &Body, buffer: BufferAct) -> Act<()> {
        // What else an op set changes when it goes into the buffer is told by its own row.
        let is_told = buffer == BufferAct::Push && before.is_but_for_its_buffer(after);
        if before != after && !is_told {
            KeepJob { id: id.0, row: BodyRow::of(after) }.execute(self.connection)?;
        }
        if before != after {
            self.known.keep(id, of, after);
        }
        let dropped = match buffer {
            BufferAct::Keep | BufferAct::Push => 0,
            BufferAct::ToIntent(epoch) => self.buffer_to_intent(id, epoch)?,
            BufferAct::Erase => self.erase(id)?,
        };
        let tally = self.tallies.entry(of).or_default();
        tally.count(before, -1);
        tally.count(after, 1);
        tally.dropped_op_sets += dropped;
        Ok(())
    }

    pub(super) fn want(&mut self, of: ConsumerId, did: &Did) -> Act<bool> {
        let Some((id, before, _)) = self.find(of, did)? else { return Ok(false) };
        let mut after = before.clone();
        let buffer = after.on(&JobEvent::Wanted)?;
        self.keep(id, of, &before, &after, buffer)?;
        Ok(true)
    }

    pub(super) fn purge(&mut self, of: ConsumerId, did: &Did) -> Act<bool> {
        let Some((id, body, _)) = self.find(of, did)? else { return Ok(false) };
        let dropped = self.erase(id)?;
        diesel::delete(job::table.find(id.0)).execute(self.connection)?;
        self.known.forget(id);
        let tally = self.tallies.entry(of).or_default();
        tally.count(&body, -1);
        tally.dropped_op_sets += dropped;
        Ok(true)
    }

    pub(super) fn place(&mut self, did: &Did, at: &str) -> Act<()> {
        let host_id = match self.host(at)? {
            Some(id) => id,
            None => {
                // Unless another process has added it meanwhile.
                diesel::insert_into(host::table).values(host::name.eq(at)).on_conflict(host::name).do_nothing().execute(self.connection)?;
                self.host(at)?.ok_or(diesel::result::Error::NotFound)?
            }
        };
        let known =
            repo::table.filter(repo::did.eq(did.as_str())).select((repo::id, repo::host)).get_result::<(i64, Option<i64>)>(self.connection);
        let Some((repo_id, before)) = known.optional()? else { return Ok(()) };
        if before != Some(host_id) {
            diesel::update(repo::table.find(repo_id)).set(repo::host.eq(host_id)).execute(self.connection)?;
            diesel::update(job::table.filter(job::repo.eq(repo_id))).set(job::host.eq(host_id)).execute(self.connection)?;
        }
        Ok(())
    }

    fn host(&mut self, name: &str) -> Act<Option<i64>> {
        Ok(host::table.filter(host::name.eq(name)).select(host::id).get_result(self.connection).optional()?)
    }

    pub(super) fn claim(&mut self, of: &Did, now: Timestamp) -> Act<Vec<Job>> {
        let rows: Vec<(i64, Option<String>, i64, BodyRow)> = job::table
            .inner_join(repo::table.on(repo::id.eq(job::repo)))
            .left_join(host::table.on(host::id.nullable().eq(job::host)))
            .filter(repo::did.eq(of.as_str()).and(job::due_at.le(now.0)).and(sql::<Bool>(MAY_BE_CLAIMED)))
            .order(job::id)
            .select((job::id, host::name.nullable(), job::consumer, BodyRow::as_select()))
            .for_claim()
            .load(self.connection)?;
        let mut claimed = Vec::with_capacity(rows.len());
        for (id, host, consumer, row) in rows {
            let (before, _) = self.read(JobId(id), ConsumerId(consumer), row)?;
            let mut after = before.clone();
            let buffer = after.on(&JobEvent::Claimed)?;
            self.keep(JobId(id), ConsumerId(consumer), &before, &after, buffer)?;
            claimed.push(after.into_job(JobId(id), of.clone(), host));
        }
        Ok(claimed)
    }

    pub(super) fn recover(&mut self, now: Timestamp) -> Act<u64> {
        // Spelled out, because the index holds only these rows and a bound value could be another.
        let ids: Vec<i64> = job::table.filter(sql::<Bool>("state = 'in_progress'")).select(job::id).load(self.connection)?;
        // By host, as the index is.
        let placed = job::host.eq_any(host::table.select(host::id.nullable()));
        let late = || job::table.filter(job::due_at.gt(latest_retry(now).0)).select(job::id);
        let mut misdated: Vec<i64> = late().filter(placed).load(self.connection)?;
        misdated.extend(late().filter(job::host.is_null()).load::<i64>(self.connection)?);
        self.each_on(&misdated, &JobEvent::Wanted)?;
        self.each_on(&ids, &JobEvent::Abandoned)
    }

    /// Moves jobs by an event. Returns how many.
    pub(in crate::store) fn each_on(&mut self, ids: &[i64], event: &JobEvent) -> Act<u64> {
        for &id in ids {
            let Some((of, before, _)) = self.body(JobId(id))? else { continue };
            let mut after = before.clone();
            let buffer = after.on(event)?;
            self.keep(JobId(id), of, &before, &after, buffer)?;
        }
        Ok(ids.len() as u64)
    }
}

/// Makes jobs of rows.
pub(super) fn jobs_of(rows: Vec<JobRow>) -> Act<Vec<Job>> {
    rows.into_iter().map(job_of).collect()
}

/// Makes DIDs of rows.
pub(in crate::store) fn dids_of(rows: impl IntoIterator<Item = String>) -> Act<Vec<Did>> {
    rows.into_iter().map(|text| did(|| "repo".to_owned(), &text)).collect()
}
