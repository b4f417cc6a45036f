//! Reads a whole database in one snapshot, and says what no history of acts leads to.

use std::collections::BTreeMap;

use bytes::Bytes;
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::prelude::*;

use super::accounts::cursor;
use super::backend::{Connection, SIZE, SNAPSHOT};
use super::chunks::Chunks;
use super::ends::Tail;
use super::fault::{Act, Fault};
use super::rows::{BodyRow, did, position};
use super::schema::{consumer, host, intent, job, manifest_chunk, op_set, repo, upstream};
use super::{ends, migrate, reads};
use crate::job::{ConsumerId, JobId, JobState, OpSet};
use crate::manifest::{Chunk, decode_paths};
use crate::store::rules::{Body, Tally};
use crate::store::{StoreCheck, StoreError, StoreStats};
use crate::syntax::{RecordPath, Rev};

/// Jobs read at once.
const JOBS: i64 = 512;
/// Chunks read at once.
const CHUNKS: usize = 64;
/// Op sets read at once.
const OP_SETS: i64 = 16;

/// Checks every row: that it can be read, that it goes with its job, and that the sums are true.
pub(crate) fn check(connection: &mut Connection) -> Result<StoreCheck, StoreError> {
    snapshot(connection, "checking the database", |connection, _| {
        let mut check = Check { connection, found: StoreCheck::default(), chunks: 0, tallies: BTreeMap::new(), all_read: true };
        check.jobs()?;
        check.strangers()?;
        check.sums()?;
        check.upstreams()?;
        Ok(check.found)
    })
}

/// Sums up what there is.
pub(crate) fn stats(connection: &mut Connection) -> Result<StoreStats, StoreError> {
    snapshot(connection, "reading the database", |connection, schema| {
        let named: Vec<(i64, String)> = consumer::table.order(consumer::id).load(connection)?;
        let mut consumers = Vec::with_capacity(named.len());
        for (id, name) in named {
            consumers.push((name, reads::totals(connection, ConsumerId(id))?));
        }
        let upstreams = upstream_rows(connection)?
            .into_iter()
            .map(|(id, name, seq, time)| Ok((name, cursor(id, seq, time)?)))
            .collect::<Act<Vec<_>>>()?;
        Ok(StoreStats {
            schema,
            bytes: number(diesel::sql_query(SIZE).get_result::<Size>(connection)?.n),
            repos: number(repo::table.count().get_result(connection)?),
            hosts: number(host::table.count().get_result(connection)?),
            consumers,
            upstreams,
        })
    })
}

#[derive(QueryableByName)]
struct Size {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    n: i64,
}

/// Reads in a transaction that sees one state of the database, and changes nothing. What reads is given the version of the schema.
fn snapshot<T>(
    connection: &mut Connection,
    action: &'static str,
    read: impl FnOnce(&mut Connection, String) -> Act<T>,
) -> Result<T, StoreError> {
    let schema = migrate::version(connection)?;
    let begun = AnsiTransactionManager::begin_transaction_sql(connection, SNAPSHOT).map_err(Fault::Sql);
    let outcome = begun.and_then(|()| read(connection, schema));
    // Nothing was written; what cannot be undone on a connection that is gone need not be.
    let _ = AnsiTransactionManager::rollback_transaction(connection);
    outcome.map_err(|fault| fault.into_error(action))
}

type UpstreamRow = (i64, String, Option<i64>, Option<i64>);

fn upstream_rows(connection: &mut Connection) -> Act<Vec<UpstreamRow>> {
    Ok(upstream::table.order(upstream::id).select((upstream::id, upstream::name, upstream::seq, upstream::time)).load(connection)?)
}

/// A job's row with what it refers to: id, consumer, host, the repo's DID and host.
type Row = (i64, i64, Option<i64>, Option<String>, Option<i64>, BodyRow);

struct Check<'a> {
    connection: &'a mut Connection,
    found: StoreCheck,
    /// Chunks that belong to jobs.
    chunks: u64,
    tallies: BTreeMap<i64, Tally>,
    /// Whether every job could be read, so that the sums can be.
    all_read: bool,
}

impl Check<'_> {
    fn jobs(&mut self) -> Act<()> {
        let mut after = i64::MIN;
        loop {
            let rows: Vec<Row> = job::table
                .left_join(repo::table.on(repo::id.eq(job::repo)))
                .filter(job::id.gt(after))
                .order(job::id)
                .limit(JOBS)
                .select((job::id, job::consumer, job::host, repo::did.nullable(), repo::host.nullable(), BodyRow::as_select()))
                .load(self.connection)?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = last.0;
            for row in rows {
                self.found.jobs += 1;
                let at = row.0;
                match self.job(row) {
                    Ok(()) => {}
                    Err(Fault::Store(StoreError::Corrupt { what })) => {
                        self.all_read = false;
                        let named = format!("job {at}: ");
                        self.found.fault(format_args!("{named}{}", what.strip_prefix(&named).unwrap_or(&what)));
                    }
                    Err(fault) => return Err(fault),
                }
            }
        }
    }

    fn job(&mut self, (id, of, host, text, repo_host, row): Row) -> Act<()> {
        let at = JobId(id);
        let body = row.body(at, &ends::read(self.connection, at)?.0)?;
        self.tallies.entry(of).or_default().count(&body, 1);
        if repo_host != host {
            self.found.fault(format_args!("job {id}: its host is not its repo's"));
        }
        self.manifest(at, &body)?;
        self.intents(at, &body)?;
        match text {
            Some(text) => self.buffer(at, &text, &body),
            None => {
                // Without a DID its buffer cannot be read.
                self.all_read = false;
                self.found.fault(format_args!("job {id}: it is of no repo"));
                Ok(())
            }
        }
    }

    /// What a state says about the buffer, and the rev at which the job will be once that is flushed (I3, I8).
    fn state(&mut self, id: JobId, body: &Body, last: Option<Rev>) {
        let is_held = matches!(body.state, JobState::InProgress | JobState::Complete);
        if !is_held && last.is_some() {
            self.found.fault(format_args!("job {}: {} with op sets in its buffer", id.0, body.state.to_text()));
        }
        if body.state == JobState::Complete && (body.rev.is_none() || body.rev.max(last) < body.min_rev) {
            let text = |rev: Option<Rev>| rev.map_or("no rev".to_owned(), |rev| rev.to_string());
            self.found.fault(format_args!("job {}: complete at {}, below {}", id.0, text(body.rev.max(last)), text(body.min_rev)));
        }
    }

    /// The manifest: its chunks can be read, are in order, and hold as many records as the job says (I7).
    fn manifest(&mut self, id: JobId, body: &Body) -> Act<()> {
        let (mut records, mut last): (u64, Option<RecordPath>) = (0, None);
        let mut first: Option<RecordPath> = None;
        loop {
            let page = Chunks { connection: self.connection, job: id }.page(first.as_ref(), CHUNKS)?;
            // All but the first page begin with the chunk that the one before ended with.
            let known = usize::from(first.is_some());
            for chunk in page.iter().skip(known) {
                self.chunks += 1;
                records += u64::from(chunk.entries);
                match read_chunk(chunk, last.take()) {
                    Ok(path) => last = path,
                    Err(what) => {
                        self.found.fault(format_args!("job {}: manifest chunk {:?}: {what}", id.0, chunk.first.as_str()));
                    }
                }
            }
            match page.last() {
                Some(chunk) if page.len() == CHUNKS => first = Some(chunk.first.clone()),
                _ => break,
            }
        }
        self.found.records += records;
        if records != body.records {
            self.found.fault(format_args!("job {}: {records} records in its manifest, {} by its row", id.0, body.records));
        }
        Ok(())
    }

    fn intents(&mut self, id: JobId, body: &Body) -> Act<()> {
        type IntentRow = (i64, i64, Vec<u8>);
        let columns = (intent::id, intent::epoch, intent::paths);
        let rows: Vec<IntentRow> = intent::table.filter(intent::job.eq(id.0)).order(intent::id).select(columns).load(self.connection)?;
        for (number, epoch, paths) in rows {
            self.found.intents += 1;
            if let Err(error) = decode_paths(&paths) {
                self.found.fault(format_args!("job {}: intent {number}: {error}", id.0));
            }
            if epoch > body.epoch.0 {
                self.found.fault(format_args!("job {}: intent {number} is of epoch {epoch}, which is still to come", id.0));
            }
        }
        Ok(())
    }

    /// The buffer: its op sets can be read, are in the order of their revs, and are as many as the job says (I1).
    fn buffer(&mut self, id: JobId, text: &str, body: &Body) -> Act<()> {
        type OpSetRow = (i64, String, Option<Vec<u8>>, i64, i64, Vec<u8>);
        let did = did(|| format!("job {}", id.0), text)?;
        let (mut op_sets, mut bytes, mut after, mut last, mut tail) = (0_u64, 0_u64, i64::MIN, None::<Rev>, None);
        loop {
            let rows: Vec<OpSetRow> = op_set::table
                .filter(op_set::job.eq(id.0).and(op_set::seq.gt(after)))
                .order(op_set::seq)
                .limit(OP_SETS)
                .select((op_set::seq, op_set::rev, op_set::data, op_set::place, op_set::bytes, op_set::body))
                .load(self.connection)?;
            let Some((seq, ..)) = rows.last() else { break };
            after = *seq;
            for (seq, rev, data, place, told, encoded) in rows {
                op_sets += 1;
                bytes += encoded.len() as u64;
                let position = position(seq, &rev, data.as_deref())?;
                let next = tail.map(|tail| Tail::next(Some(tail), position, &encoded));
                let found = Tail { position, place, bytes: told };
                if next.is_some_and(|next| next != found) {
                    self.found.fault(format_args!("job {}: op set {seq} does not count on from the one before in its buffer", id.0));
                }
                tail = Some(found);
                match OpSet::decode(did.clone(), Bytes::from(encoded)) {
                    Ok(op_set) if (op_set.rev, op_set.data) != (position.rev, position.data) => {
                        self.found.fault(format_args!("job {}: op set {seq} is not the one that its row names", id.0));
                    }
                    Ok(_) => {}
                    Err(error) => self.found.fault(format_args!("job {}: op set {seq}: {error}", id.0)),
                }
                if last.is_some_and(|last| last >= position.rev) {
                    self.found.fault(format_args!("job {}: op set {seq} is at {}, not above the one before", id.0, position.rev));
                }
                last = Some(position.rev);
            }
        }
        self.state(id, body, last);
        self.found.op_sets += op_sets;
        if (op_sets, bytes) != (body.buffered_op_sets, body.buffered_bytes) {
            let (told, told_bytes) = (body.buffered_op_sets, body.buffered_bytes);
            self.found
                .fault(format_args!("job {}: {op_sets} op sets of {bytes} bytes in its buffer, {told} of {told_bytes} by its ends", id.0));
        }
        Ok(())
    }

    /// Rows that belong to no job.
    fn strangers(&mut self) -> Act<()> {
        if !self.all_read {
            return Ok(());
        }
        let all = [
            ("op sets", number(op_set::table.count().get_result(self.connection)?), self.found.op_sets),
            ("intents", number(intent::table.count().get_result(self.connection)?), self.found.intents),
            ("manifest chunks", number(manifest_chunk::table.count().get_result(self.connection)?), self.chunks),
        ];
        for (what, all, of_jobs) in all {
            if all != of_jobs {
                self.found.fault(format_args!("{} {what} belong to no job", all.saturating_sub(of_jobs)));
            }
        }
        Ok(())
    }

    /// The sums over the jobs of each consumer.
    fn sums(&mut self) -> Act<()> {
        let consumers: Vec<i64> = consumer::table.select(consumer::id).load(self.connection)?;
        for of in self.tallies.keys().filter(|of| !consumers.contains(of)) {
            self.found.fault(format_args!("jobs are of consumer {of}, which is not there"));
        }
        for of in consumers.into_iter().filter(|_| self.all_read) {
            let counted = self.tallies.get(&of).copied().unwrap_or_default();
            match reads::totals(self.connection, ConsumerId(of)) {
                Ok(told) => {
                    let dropped_op_sets = i64::try_from(told.dropped_op_sets).unwrap_or(i64::MAX);
                    let counted = Tally { dropped_op_sets, ..counted }.totals();
                    if counted != Some(told) {
                        self.found.fault(format_args!("consumer {of}: its sums are {told:?}, its jobs make {counted:?}"));
                    }
                }
                Err(Fault::Store(StoreError::Corrupt { what })) => self.found.fault(what),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn upstreams(&mut self) -> Act<()> {
        for (id, _, seq, time) in upstream_rows(self.connection)? {
            match cursor(id, seq, time) {
                Ok(_) => {}
                Err(Fault::Store(error)) => self.found.fault(error),
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }
}

/// Reads a chunk whose paths are to lie behind `last`; returns its own last path.
fn read_chunk(chunk: &Chunk, mut last: Option<RecordPath>) -> Result<Option<RecordPath>, String> {
    let mut read = chunk.read();
    while let Some((path, _)) = read.entry().map_err(|error| error.to_string())? {
        if last.as_ref().is_some_and(|last| last.as_ref() >= path) {
            return Err(format!("{path} is not behind the path before"));
        }
        last = Some(path.to_owned());
    }
    Ok(last)
}

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
