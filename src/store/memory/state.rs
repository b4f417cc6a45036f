use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use crate::firehose::SavedCursor;
use crate::job::{BufferSeq, ConsumerId, Epoch, Job, JobId, OpSet, OpSetError, Position, Timestamp};
use crate::manifest::{Chunk, ChunkMap, ManifestError};
use crate::store::rules::{Body, BufferAct, Tally};
use crate::store::{AuditState, IntentId, UpstreamId};
use crate::syntax::{Did, RecordPath};

/// All that the store holds.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) consumers: HashMap<String, ConsumerId>,
    pub(super) jobs: BTreeMap<JobId, Entry>,
    pub(super) by_repo: HashMap<Did, BTreeMap<ConsumerId, JobId>>,
    pub(super) hosts: HashMap<Did, String>,
    /// Claimable jobs by host (none: not known), then by the moment they come due.
    pub(super) due: BTreeSet<(Option<String>, Timestamp, JobId)>,
    pub(super) totals: HashMap<ConsumerId, Tally>,
    pub(super) audits: HashMap<ConsumerId, AuditState>,
    pub(super) upstreams: HashMap<String, (UpstreamId, Option<SavedCursor>)>,
    pub(super) last_id: i64,
}

/// One job with all that is kept for it.
pub(super) struct Entry {
    pub(super) consumer: ConsumerId,
    pub(super) did: Did,
    pub(super) body: Body,
    pub(super) buffer: BTreeMap<BufferSeq, (Position, Bytes)>,
    pub(super) intents: BTreeMap<IntentId, (Epoch, Vec<RecordPath>)>,
    pub(super) manifest: Chunks,
}

/// The chunks of one manifest by first path.
#[derive(Default)]
pub(super) struct Chunks(pub(super) BTreeMap<RecordPath, Chunk>);

impl Memory {
    pub(super) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// Runs `act` on a copy of a job's body, and keeps the copy with sums and index when it succeeds.
    /// The act returns what is to happen to the buffer beside its answer.
    pub(super) fn change<T, E>(
        &mut self,
        id: JobId,
        act: impl FnOnce(&mut Entry, &mut Body) -> Result<(T, BufferAct), E>,
    ) -> Result<Option<T>, E> {
        let Some(entry) = self.jobs.get_mut(&id) else { return Ok(None) };
        let before = entry.body.clone();
        let mut after = before.clone();
        let (answer, buffer) = act(entry, &mut after)?;
        let tally = self.totals.entry(entry.consumer).or_default();
        tally.count(&before, -1);
        tally.count(&after, 1);
        entry.body = after;
        let did = entry.did.clone();
        let dropped = i64::try_from(entry.buffer.len()).unwrap_or(i64::MAX);
        match buffer {
            BufferAct::Keep | BufferAct::Push => {}
            BufferAct::ToIntent(epoch) => {
                tally.dropped_op_sets += dropped;
                let paths = entry.take_buffered_paths();
                self.last_id += 1;
                entry.intents.insert(IntentId(self.last_id), (epoch, paths));
            }
            BufferAct::Erase => {
                tally.dropped_op_sets += dropped;
                (entry.buffer, entry.intents, entry.manifest) = Default::default();
            }
        }
        let after = entry.body.due_at();
        self.move_due(id, &did, before.due_at(), after);
        Ok(Some(answer))
    }

    pub(super) fn move_due(&mut self, id: JobId, did: &Did, before: Option<Timestamp>, after: Option<Timestamp>) {
        if before == after {
            return;
        }
        let host = self.hosts.get(did).cloned();
        if let Some(before) = before {
            self.due.remove(&(host.clone(), before, id));
        }
        if let Some(after) = after {
            self.due.insert((host, after, id));
        }
    }

    pub(super) fn id_of(&self, consumer: ConsumerId, did: &Did) -> Option<JobId> {
        self.by_repo.get(did)?.get(&consumer).copied()
    }

    pub(super) fn out(&self, id: JobId) -> Option<Job> {
        let entry = self.jobs.get(&id)?;
        Some(entry.body.clone().into_job(id, entry.did.clone(), self.hosts.get(&entry.did).cloned()))
    }
}

impl Entry {
    pub(super) fn new(consumer: ConsumerId, did: Did) -> Self {
        let (buffer, intents, manifest) = Default::default();
        Self { consumer, did, body: Body::new(), buffer, intents, manifest }
    }

    pub(super) fn tail(&self) -> Option<Position> {
        self.buffer.last_key_value().map(|(_, (position, _))| *position)
    }

    pub(super) fn decode(&self, bytes: &Bytes) -> Result<OpSet, OpSetError> {
        OpSet::decode(self.did.clone(), bytes.clone())
    }

    fn take_buffered_paths(&mut self) -> Vec<RecordPath> {
        let rows = std::mem::take(&mut self.buffer);
        let paths: BTreeSet<RecordPath> = rows.into_values().filter_map(|(_, bytes)| OpSet::decode_paths(bytes).ok()).flatten().collect();
        paths.into_iter().collect()
    }
}

impl ChunkMap for Chunks {
    type Error = ManifestError;

    fn covering(&mut self, path: &RecordPath) -> Result<Option<Chunk>, ManifestError> {
        Ok(self.0.range(..=path).next_back().or_else(|| self.0.first_key_value()).map(|(_, chunk)| chunk.clone()))
    }

    fn behind(&mut self, first: &RecordPath) -> Result<Option<Chunk>, ManifestError> {
        use std::ops::Bound::{Excluded, Unbounded};
        Ok(self.0.range((Excluded(first), Unbounded)).next().map(|(_, chunk)| chunk.clone()))
    }

    fn replace(&mut self, old: &[Chunk], new: &[Chunk]) -> Result<(), ManifestError> {
        for chunk in old {
            self.0.remove(&chunk.first);
        }
        self.0.extend(new.iter().map(|chunk| (chunk.first.clone(), chunk.clone())));
        Ok(())
    }
}
