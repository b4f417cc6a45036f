//! The verbs that change something.

use bytes::Bytes;

use super::state::{Entry, Memory};
use crate::firehose::SavedCursor;
use crate::job::{Account, BufferSeq, ConsumerId, Epoch, Job, JobEvent, JobId, OpSet, Position, Route, Timestamp};
use crate::manifest::{Chunk, rewrite};
use crate::store::rules::{Body, BufferAct, latest_retry};
use crate::store::{AccountRoute, Advance, IntentId, ManifestChange, Standing, StoreError, UpstreamId};
use crate::syntax::{Did, RecordPath, Seq};

impl Memory {
    pub(super) fn consumer(&mut self, name: &str) -> ConsumerId {
        if let Some(&id) = self.consumers.get(name) {
            return id;
        }
        let id = ConsumerId(self.next_id());
        self.consumers.insert(name.to_owned(), id);
        id
    }

    pub(super) fn enqueue(&mut self, consumer: ConsumerId, dids: &[Did]) -> u64 {
        let mut added = 0;
        for did in dids {
            if self.id_of(consumer, did).is_some() {
                continue;
            }
            let id = JobId(self.next_id());
            let entry = Entry::new(consumer, did.clone());
            self.totals.entry(consumer).or_default().count(&entry.body, 1);
            self.move_due(id, did, None, entry.body.due_at());
            self.jobs.insert(id, entry);
            self.by_repo.entry(did.clone()).or_default().insert(consumer, id);
            added += 1;
        }
        added
    }

    pub(super) fn want(&mut self, consumer: ConsumerId, did: &Did) -> Result<bool, StoreError> {
        let Some(id) = self.id_of(consumer, did) else { return Ok(false) };
        let wanted = self.change(id, |_, body| body.on(&JobEvent::Wanted).map(|buffer| ((), buffer)))?;
        Ok(wanted.is_some())
    }

    pub(super) fn purge(&mut self, consumer: ConsumerId, did: &Did) -> bool {
        let Some(id) = self.by_repo.get_mut(did).and_then(|jobs| jobs.remove(&consumer)) else { return false };
        let Some(entry) = self.jobs.remove(&id) else { return false };
        let tally = self.totals.entry(consumer).or_default();
        tally.count(&entry.body, -1);
        tally.dropped_op_sets += i64::try_from(entry.buffer.len()).unwrap_or(i64::MAX);
        self.move_due(id, did, entry.body.due_at(), None);
        true
    }

    pub(super) fn place(&mut self, did: &Did, host: &str) {
        let jobs: Vec<(JobId, Timestamp)> = self.jobs_of(did).filter_map(|id| Some((id, self.jobs.get(&id)?.body.due_at()?))).collect();
        if !self.by_repo.contains_key(did) {
            return;
        }
        let before = self.hosts.insert(did.clone(), host.to_owned());
        for (id, at) in jobs {
            self.due.remove(&(before.clone(), at, id));
            self.due.insert((Some(host.to_owned()), at, id));
        }
    }

    fn jobs_of(&self, did: &Did) -> impl Iterator<Item = JobId> {
        self.by_repo.get(did).into_iter().flatten().map(|(_, &id)| id)
    }

    pub(super) fn claim(&mut self, did: &Did, now: Timestamp) -> Result<Vec<Job>, StoreError> {
        let ids: Vec<JobId> = self.jobs_of(did).collect();
        let mut claimed = Vec::new();
        for id in ids {
            if self.jobs.get(&id).and_then(|entry| entry.body.due_at()).is_some_and(|at| at <= now) {
                self.change(id, |_, body| body.on(&JobEvent::Claimed).map(|buffer| ((), buffer)))?;
                claimed.extend(self.out(id));
            }
        }
        Ok(claimed)
    }

    pub(super) fn append(&mut self, consumer: ConsumerId, op_set: &OpSet, budget: u64) -> Result<Route, StoreError> {
        let Some(id) = self.id_of(consumer, &op_set.did) else { return Ok(Route::Unknown) };
        let bytes = Bytes::from(op_set.encode());
        let seq = BufferSeq(self.next_id());
        let routed = self.change(id, |entry, body| {
            let (route, act) = body.append(entry.tail(), op_set, bytes.len() as u64, budget)?;
            if act == BufferAct::Push {
                entry.buffer.insert(seq, (Position { rev: op_set.rev, data: op_set.data }, bytes));
            }
            Ok::<_, StoreError>((route, act))
        })?;
        Ok(routed.unwrap_or(Route::Unknown))
    }

    pub(super) fn gap(&mut self, consumer: ConsumerId, did: &Did) -> Result<Route, StoreError> {
        let Some(id) = self.id_of(consumer, did) else { return Ok(Route::Unknown) };
        let route = self.change(id, |_, body| body.gap())?;
        Ok(route.unwrap_or(Route::Unknown))
    }

    pub(super) fn account(
        &mut self,
        consumer: ConsumerId,
        did: &Did,
        upstream: UpstreamId,
        seq: Seq,
        account: Account,
    ) -> Result<AccountRoute, StoreError> {
        let Some(id) = self.id_of(consumer, did) else { return Ok(AccountRoute::Unknown) };
        let route = self.change(id, |_, body| body.account(upstream, seq, account))?;
        Ok(route.unwrap_or(AccountRoute::Unknown))
    }

    pub(super) fn told(&mut self, job: JobId, account: Account) -> Result<(), StoreError> {
        self.change(job, |_, body| {
            body.known.told(account);
            Ok::<_, StoreError>(((), BufferAct::Keep))
        })
        .map(drop)
    }

    pub(super) fn upstream(&mut self, name: &str) -> (UpstreamId, Option<SavedCursor>) {
        match self.upstreams.get(name) {
            Some(&found) => found,
            None => (self.restart_upstream(name), None),
        }
    }

    pub(super) fn save_cursor(&mut self, upstream: UpstreamId, saved: SavedCursor) {
        if let Some((_, cursor)) = self.upstreams.values_mut().find(|(id, _)| *id == upstream) {
            *cursor = Some(saved);
        }
    }

    pub(super) fn restart_upstream(&mut self, name: &str) -> UpstreamId {
        let id = UpstreamId(self.next_id());
        self.upstreams.insert(name.to_owned(), (id, None));
        id
    }

    pub(super) fn intend(&mut self, job: JobId, epoch: Epoch, paths: &[RecordPath]) -> Option<IntentId> {
        let id = IntentId(self.next_id());
        let entry = self.jobs.get_mut(&job).filter(|entry| entry.body.is_held_by(epoch))?;
        entry.intents.insert(id, (epoch, paths.to_vec()));
        Some(id)
    }

    pub(super) fn advance(&mut self, advance: &Advance) -> Result<Standing, StoreError> {
        let standing = self.change(advance.job, |entry, body| {
            if !body.is_held_by(advance.epoch) {
                return Ok((Standing::Superseded, BufferAct::Keep));
            }
            entry.advance(body, advance).map(|standing| (standing, BufferAct::Keep))
        })?;
        Ok(standing.unwrap_or(Standing::Superseded))
    }

    pub(super) fn settle(
        &mut self,
        job: JobId,
        epoch: Epoch,
        event: &JobEvent,
        failure: &str,
        in_doubt: &[RecordPath],
    ) -> Result<Standing, StoreError> {
        let intent = IntentId(self.next_id());
        let standing = self.change(job, |entry, body| {
            if body.epoch != epoch {
                return Ok((Standing::Superseded, BufferAct::Keep));
            }
            let buffer = body.settle(event, failure)?;
            if !in_doubt.is_empty() {
                entry.intents.insert(intent, (epoch, in_doubt.to_vec()));
            }
            Ok::<_, StoreError>((body.settled(), buffer))
        })?;
        Ok(standing.unwrap_or(Standing::Superseded))
    }

    pub(super) fn recover(&mut self, now: Timestamp) -> Result<u64, StoreError> {
        let in_progress = |entry: &Entry| matches!(entry.body.state, crate::job::JobState::InProgress);
        let ids: Vec<JobId> = self.jobs.iter().filter(|(_, entry)| in_progress(entry)).map(|(&id, _)| id).collect();
        for &id in &ids {
            self.change(id, |_, body| body.on(&JobEvent::Abandoned).map(|buffer| ((), buffer)))?;
        }
        let is_misdated = |entry: &Entry| entry.body.due_at().is_some_and(|due_at| due_at > latest_retry(now));
        let misdated: Vec<JobId> = self.jobs.iter().filter(|(_, entry)| is_misdated(entry)).map(|(&id, _)| id).collect();
        for id in misdated {
            self.change(id, |_, body| body.on(&JobEvent::Wanted).map(|buffer| ((), buffer)))?;
        }
        Ok(ids.len() as u64)
    }
}

impl Entry {
    /// Everything that can fail comes before the first change.
    fn advance(&mut self, body: &mut Body, advance: &Advance) -> Result<Standing, StoreError> {
        body.advance(advance, self.tail())?;
        let added = match &advance.manifest {
            ManifestChange::None => 0,
            ManifestChange::Append(chunks) => self.append_chunks(chunks)?,
            ManifestChange::Apply(edits) => rewrite(&mut self.manifest, edits)?,
        };
        body.records = body.records.saturating_add_signed(added);
        if let Some(flushed) = advance.flushed {
            let kept = self.buffer.split_off(&BufferSeq(flushed.0.saturating_add(1)));
            let gone = std::mem::replace(&mut self.buffer, kept);
            body.buffered_op_sets -= gone.len() as u64;
            body.buffered_bytes -= gone.values().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        }
        let positioned = advance.position.is_some();
        self.intents.retain(|id, (epoch, _)| Some(*id) != advance.intent && !(positioned && *epoch < advance.epoch));
        Ok(body.stand(advance.finish)?)
    }

    fn append_chunks(&mut self, chunks: &[Chunk]) -> Result<i64, StoreError> {
        let last = self.manifest.0.last_key_value().map(|(first, _)| first);
        let rising = last.into_iter().chain(chunks.iter().map(|chunk| &chunk.first)).is_sorted_by(|a, b| a < b);
        if !rising {
            return Err(StoreError::OutOfOrder { path: chunks.first().map_or_else(String::new, |chunk| chunk.first.to_string()) });
        }
        self.manifest.0.extend(chunks.iter().map(|chunk| (chunk.first.clone(), chunk.clone())));
        Ok(chunks.iter().map(|chunk| i64::from(chunk.entries)).sum())
    }
}
