//! Verbs of whoever holds a job, and of the op sets that come to it.

use std::collections::BTreeSet;

use bytes::Bytes;
use diesel::prelude::*;

use super::chunks::Chunks;
use super::ends::Tail;
use super::fault::Act;
use super::rows::signed;
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
        let Some((id, before, tail)) = self.find(of, &head.did)? else { return Ok(Route::Unknown) };
        let mut after = before.clone();
        let (route, buffer) = after.append(tail.map(|tail| tail.position), head, encoded.len() as u64, budget)?;
        self.keep(id, of, &before, &after, buffer)?;
        if buffer == BufferAct::Push {
            self.push(id, head, encoded, tail)?;
        }
        Ok(route)
    }

    /// Puts an op set behind the tail of a buffer.
    fn push(&mut self, id: JobId, head: &OpSet, encoded: &[u8], tail: Option<Tail>) -> Act<()> {
        let tail = Tail::next(tail, Position { rev: head.rev, data: head.data }, encoded);
        let data = head.data.as_ref().map(|data| &data.digest()[..]);
        // The row of the job is locked, so that the numbers grow in the order of the appends to it, whoever appends.
        let seq = self.numbers.next();
        let Tail { place, bytes, .. } = tail;
        PutOpSet { seq, job: id.0, rev: head.rev.as_str(), data, place, bytes, body: encoded }.execute(self.connection)?;
        self.known.set_tail(id, tail);
        Ok(())
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
            Some((_, body, _)) if body.is_held_by(epoch) => self.insert_intent(id, epoch, paths).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    pub(super) fn advance(&mut self, advance: &Advance) -> Act<Standing> {
        let Some((of, before, tail)) = self.body(advance.job)? else { return Ok(Standing::Superseded) };
        if !before.is_held_by(advance.epoch) {
            return Ok(Standing::Superseded);
        }
        let mut after = before.clone();
        after.advance(advance, tail.map(|tail| tail.position))?;
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
        let Some((of, before, _)) = self.body(id)? else { return Ok(Standing::Superseded) };
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
