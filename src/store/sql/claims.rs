//! Verbs of whoever holds a job, and of the op sets that come to it.

use std::collections::BTreeSet;

use bytes::Bytes;
use diesel::prelude::*;

use super::chunks::Chunks;
use super::endings::Endings as _;
use super::fault::Act;
use super::rows::{position, signed};
use super::schema::{intent, op_set};
use super::statements::{PutIntent, PutOpSet, TakeOpSets};
use super::writer::Tx;
use crate::job::{ConsumerId, Epoch, JobEvent, JobId, OpSet, Position, Route};
use crate::manifest::{encode_paths, rewrite};
use crate::store::rules::{Body, BufferAct};
use crate::store::{Advance, IntentId, ManifestChange, Standing};
use crate::syntax::RecordPath;

impl Tx<'_> {
    /// `head` is the op set; its ops play no part, `encoded` holds them.
    pub(super) fn append(&mut self, of: ConsumerId, head: &OpSet, encoded: &[u8], budget: u64) -> Act<Route> {
        let Some((id, before)) = self.find(of, &head.did)? else { return Ok(Route::Unknown) };
        let tail = self.tail(id, &before)?;
        let mut after = before.clone();
        let (route, buffer) = after.append(tail, head, encoded.len() as u64, budget)?;
        if buffer == BufferAct::Push {
            // The row of the job is locked, so that the numbers grow in the order of the appends to it, whoever appends.
            let data = head.data.as_ref().map(|data| &data.digest()[..]);
            PutOpSet { seq: self.numbers.next(), job: id.0, rev: head.rev.as_str(), data, body: encoded }.execute(self.connection)?;
        }
        self.keep(id, of, &before, &after, buffer)?;
        if buffer == BufferAct::Push {
            self.known.set_tail(id, Position { rev: head.rev, data: head.data });
        }
        Ok(route)
    }

    /// The position after the last op set of a job's buffer.
    fn tail(&mut self, id: JobId, body: &Body) -> Act<Option<Position>> {
        if body.buffered_op_sets == 0 {
            return Ok(None);
        }
        if let Some(tail) = self.known.tail(id) {
            return Ok(Some(tail));
        }
        let last: Option<(i64, String, Option<Vec<u8>>)> = op_set::table
            .filter(op_set::job.eq(id.0))
            .order(op_set::seq.desc())
            .select((op_set::seq, op_set::rev, op_set::data))
            .one()
            .get_result(self.connection)
            .optional()?;
        last.map(|(seq, rev, data)| position(seq, &rev, data.as_deref())).transpose()
    }

    /// Turns the buffer of a job into an intent; returns how many op sets it held.
    pub(super) fn buffer_to_intent(&mut self, id: JobId, epoch: Epoch) -> Act<i64> {
        let of_job = op_set::table.filter(op_set::job.eq(id.0));
        let bodies: Vec<Vec<u8>> = diesel::delete(of_job).returning(op_set::body).load(self.connection)?;
        let dropped = signed(bodies.len() as u64);
        let mut paths = BTreeSet::new();
        for body in bodies {
            paths.extend(OpSet::decode_paths(Bytes::from(body))?);
        }
        self.insert_intent(id, epoch, &paths)?;
        Ok(dropped)
    }

    fn insert_intent(&mut self, id: JobId, epoch: Epoch, paths: &BTreeSet<RecordPath>) -> Act<IntentId> {
        let paths: Vec<RecordPath> = paths.iter().cloned().collect();
        let put = PutIntent { id: self.numbers.next(), job: id.0, epoch: epoch.0, paths: encode_paths(&paths)? };
        Ok(IntentId(put.get_result(self.connection)?))
    }

    pub(super) fn intend(&mut self, id: JobId, epoch: Epoch, paths: &BTreeSet<RecordPath>) -> Act<Option<IntentId>> {
        match self.body(id)? {
            Some((_, body)) if body.is_held_by(epoch) => self.insert_intent(id, epoch, paths).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    pub(super) fn advance(&mut self, advance: &Advance) -> Act<Standing> {
        let Some((of, before)) = self.body(advance.job)? else { return Ok(Standing::Superseded) };
        if !before.is_held_by(advance.epoch) {
            return Ok(Standing::Superseded);
        }
        let mut after = before.clone();
        let tail = if advance.accept_older { self.tail(advance.job, &before)? } else { None };
        after.advance(advance, tail)?;
        let mut chunks = Chunks { connection: self.connection, job: advance.job };
        let added = match &advance.manifest {
            ManifestChange::None => 0,
            ManifestChange::Append(new) => chunks.append(new)?,
            ManifestChange::Apply(edits) => rewrite(&mut chunks, edits)?,
        };
        after.records = after.records.saturating_add_signed(added);
        if let Some(flushed) = advance.flushed {
            self.flushed(advance.job, flushed.0, &mut after)?;
        }
        self.end_intents(advance)?;
        let standing = after.stand(advance.finish)?;
        self.keep(advance.job, of, &before, &after, BufferAct::Keep)?;
        Ok(standing)
    }

    /// Takes the rows up to and with `seq` out of the buffer.
    fn flushed(&mut self, id: JobId, seq: i64, body: &mut Body) -> Act<()> {
        let sizes: Vec<i64> = TakeOpSets { job: id.0, to: seq }.load(self.connection)?;
        let bytes: i64 = sizes.iter().sum();
        body.buffered_op_sets = body.buffered_op_sets.saturating_sub(sizes.len() as u64);
        body.buffered_bytes = body.buffered_bytes.saturating_sub(bytes.unsigned_abs());
        Ok(())
    }

    fn end_intents(&mut self, advance: &Advance) -> Act<()> {
        if let Some(IntentId(id)) = advance.intent {
            diesel::delete(intent::table.filter(intent::id.eq(id).and(intent::job.eq(advance.job.0)))).execute(self.connection)?;
        }
        if advance.position.is_some() {
            let older = intent::table.filter(intent::job.eq(advance.job.0).and(intent::epoch.lt(advance.epoch.0)));
            diesel::delete(older).execute(self.connection)?;
        }
        Ok(())
    }

    pub(super) fn settle(
        &mut self,
        id: JobId,
        epoch: Epoch,
        event: &JobEvent,
        failure: &str,
        in_doubt: &BTreeSet<RecordPath>,
    ) -> Act<Standing> {
        let Some((of, before)) = self.body(id)? else { return Ok(Standing::Superseded) };
        if before.epoch != epoch {
            return Ok(Standing::Superseded);
        }
        let mut after = before.clone();
        let buffer = after.settle(event, failure)?;
        if !in_doubt.is_empty() {
            self.insert_intent(id, epoch, in_doubt)?;
        }
        self.keep(id, of, &before, &after, buffer)?;
        Ok(after.settled())
    }
}
