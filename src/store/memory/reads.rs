//! The verbs that only read.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use super::state::{Entry, Memory};
use crate::job::{BufferSeq, ConsumerId, Job, JobId, JobState, OpSet, Timestamp};
use crate::manifest::Chunk;
use crate::store::{DueHosts, StoreError, Totals, Where};
use crate::syntax::{Did, RecordPath};

impl Memory {
    pub(super) fn job(&self, consumer: ConsumerId, did: &Did) -> Option<Job> {
        self.out(self.id_of(consumer, did)?)
    }

    pub(super) fn jobs(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> Vec<Job> {
        self.page(after, limit, |entry| entry.consumer == consumer)
    }

    pub(super) fn unflushed(&self, after: Option<JobId>, limit: usize) -> Vec<Job> {
        self.page(after, limit, |entry| {
            (entry.body.state == JobState::Complete && !entry.buffer.is_empty()) || !entry.body.known.untold.is_empty()
        })
    }

    fn page(&self, after: Option<JobId>, limit: usize, wanted: impl Fn(&Entry) -> bool) -> Vec<Job> {
        let from = after.map_or(Unbounded, Excluded);
        let ids = self.jobs.range((from, Unbounded)).filter(|(_, entry)| wanted(entry)).map(|(&id, _)| id);
        ids.take(limit).filter_map(|id| self.out(id)).collect()
    }

    pub(super) fn consumers(&self) -> Vec<String> {
        self.consumers.keys().cloned().collect()
    }

    pub(super) fn totals(&self, consumer: ConsumerId) -> Result<Totals, StoreError> {
        let tally = self.totals.get(&consumer).copied().unwrap_or_default();
        tally.totals().ok_or_else(|| StoreError::Corrupt { what: format!("totals of consumer {} below zero: {tally:?}", consumer.0) })
    }

    pub(super) fn due(&self, place: Where<'_>, now: Timestamp, limit: usize) -> Vec<Did> {
        let host = match place {
            Where::Unplaced => None,
            Where::Host(host) => Some(host.to_owned()),
        };
        let due = self.due.range((host.clone(), Timestamp(i64::MIN), JobId(i64::MIN))..=(host, now, JobId(i64::MAX)));
        let mut dids: Vec<Did> = Vec::new();
        let mut seen = BTreeSet::new();
        for (_, _, id) in due {
            if dids.len() == limit {
                break;
            }
            dids.extend(self.jobs.get(id).map(|entry| entry.did.clone()).filter(|did| seen.insert(did.clone())));
        }
        dids
    }

    pub(super) fn due_hosts(&self, now: Timestamp) -> DueHosts {
        let mut answer = DueHosts::default();
        let mut hosts = BTreeSet::new();
        for (host, at, _) in &self.due {
            match host {
                _ if *at > now => answer.next_retry = Some(answer.next_retry.map_or(*at, |next| next.min(*at))),
                Some(host) => _ = hosts.insert(host.clone()),
                None => answer.unplaced = true,
            }
        }
        answer.hosts = hosts.into_iter().collect();
        answer
    }

    pub(super) fn buffered(&self, job: JobId, max_bytes: u64) -> Result<Vec<(BufferSeq, OpSet)>, StoreError> {
        let Some(entry) = self.jobs.get(&job) else { return Ok(Vec::new()) };
        let mut op_sets = Vec::new();
        let mut total = 0;
        for (&seq, (_, bytes)) in &entry.buffer {
            total += bytes.len() as u64;
            if total > max_bytes && !op_sets.is_empty() {
                break;
            }
            let op_set = entry.decode(bytes).map_err(|error| StoreError::Corrupt { what: error.to_string() })?;
            op_sets.push((seq, op_set));
        }
        Ok(op_sets)
    }

    pub(super) fn in_doubt(&self, job: JobId) -> Vec<RecordPath> {
        let paths = self.jobs.get(&job).into_iter().flat_map(|entry| entry.intents.values()).flat_map(|(_, paths)| paths);
        paths.cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(super) fn manifest(&self, job: JobId, after: Option<&RecordPath>, limit: usize) -> Vec<Chunk> {
        let Some(entry) = self.jobs.get(&job) else { return Vec::new() };
        let chunks = &entry.manifest.0;
        let from = after.and_then(|after| chunks.range(..=after).next_back()).or_else(|| chunks.first_key_value());
        let Some((first, _)) = from else { return Vec::new() };
        chunks.range(first..).take(limit).map(|(_, chunk)| chunk.clone()).collect()
    }
}
