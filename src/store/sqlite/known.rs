//! What the writing thread knows without asking the database: it is the only one that writes.

use std::collections::HashMap;
use std::mem;

use super::sql::Tail;
use crate::job::{ConsumerId, JobId};
use crate::store::rules::Body;
use crate::syntax::Did;

/// The most jobs of one generation; there are two.
const GENERATION: usize = 32 * 1024;

/// Jobs that were read or written lately, as they are in the transaction that is under way. Whatever undoes a part of it has all of them forgotten.
#[derive(Debug, Default)]
pub(super) struct KnownJobs {
    /// What was used since the last change of generations, and what only before.
    young: Generation,
    old: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    by_id: HashMap<i64, KnownJob>,
    by_repo: HashMap<Did, Vec<(ConsumerId, i64)>>,
}

#[derive(Debug)]
struct KnownJob {
    of: ConsumerId,
    body: Body,
    /// The last op set that went into the buffer; says nothing once that is empty.
    tail: Option<Tail>,
}

impl KnownJobs {
    /// The job of a repo for a consumer, and the tail of its buffer.
    pub(super) fn find(&mut self, of: ConsumerId, did: &Did) -> Option<(JobId, Body, Option<Tail>)> {
        let young = self.young.id(of, did);
        let id = young.or_else(|| self.old.id(of, did))?;
        let job = self.get(id)?;
        let found = (JobId(id), job.body.clone(), job.tail());
        if young.is_none() {
            self.name(of, did, JobId(id));
        }
        Some(found)
    }

    /// A job by its id, with its consumer and the tail of its buffer.
    pub(super) fn body(&mut self, id: JobId) -> Option<(ConsumerId, Body, Option<Tail>)> {
        self.get(id.0).map(|job| (job.of, job.body.clone(), job.tail()))
    }

    /// A job is so now.
    pub(super) fn keep(&mut self, id: JobId, of: ConsumerId, body: &Body) {
        match self.get(id.0) {
            Some(job) => job.body.clone_from(body),
            None => {
                self.make_room();
                self.young.by_id.insert(id.0, KnownJob { of, body: body.clone(), tail: None });
            }
        }
    }

    /// A job that is known is that of a repo.
    pub(super) fn name(&mut self, of: ConsumerId, did: &Did, id: JobId) {
        if self.young.id(of, did) != Some(id.0) {
            self.make_room();
            let jobs = self.young.by_repo.entry(did.clone()).or_default();
            jobs.retain(|(consumer, _)| *consumer != of);
            jobs.push((of, id.0));
        }
    }

    /// An op set has gone into a buffer.
    pub(super) fn set_tail(&mut self, id: JobId, tail: Tail) {
        if let Some(job) = self.get(id.0) {
            job.tail = Some(tail);
        }
    }

    /// A job is gone, or it is not certain how it is.
    pub(super) fn forget(&mut self, id: JobId) {
        self.young.by_id.remove(&id.0);
        self.old.by_id.remove(&id.0);
    }

    /// Something was undone.
    pub(super) fn forget_all(&mut self) {
        *self = Self::default();
    }

    /// A job, which is then among the young ones.
    fn get(&mut self, id: i64) -> Option<&mut KnownJob> {
        if let Some(job) = self.old.by_id.remove(&id) {
            self.make_room();
            self.young.by_id.insert(id, job);
        }
        self.young.by_id.get_mut(&id)
    }

    fn make_room(&mut self) {
        if self.young.by_id.len().max(self.young.by_repo.len()) >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
    }
}

impl KnownJob {
    fn tail(&self) -> Option<Tail> {
        self.tail.filter(|_| self.body.buffered_op_sets > 0)
    }
}

impl Generation {
    fn id(&self, of: ConsumerId, did: &Did) -> Option<i64> {
        self.by_repo.get(did)?.iter().find(|(consumer, _)| *consumer == of).map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: ConsumerId = ConsumerId(1);

    fn did(n: usize) -> Did {
        Did::new(&format!("did:web:repo{n}.test")).expect("a DID")
    }

    fn body(records: u64) -> Body {
        Body { records, ..Body::new() }
    }

    #[test]
    fn a_job_is_known_as_it_was_kept_last_until_something_is_undone() {
        let mut known = KnownJobs::default();
        known.keep(JobId(7), OF, &body(1));
        assert_eq!(known.find(OF, &did(1)), None, "nobody has said whose it is");
        known.name(OF, &did(1), JobId(7));
        known.keep(JobId(7), OF, &body(2));
        assert_eq!(known.find(OF, &did(1)), Some((JobId(7), body(2), None)));
        assert_eq!(known.find(ConsumerId(2), &did(1)), None);
        assert_eq!(known.body(JobId(7)), Some((OF, body(2), None)));
        known.forget_all();
        assert_eq!((known.find(OF, &did(1)), known.body(JobId(7))), (None, None));
    }

    #[test]
    fn a_repo_that_is_enqueued_again_after_a_purge_is_its_new_job() {
        let mut known = KnownJobs::default();
        for id in [JobId(1), JobId(2)] {
            known.keep(id, OF, &body(3));
            known.name(OF, &did(1), id);
            assert_eq!(known.find(OF, &did(1)).map(|(id, ..)| id), Some(id));
            known.forget(id);
            assert_eq!(known.find(OF, &did(1)), None);
        }
    }

    #[test]
    fn what_is_used_stays_and_the_number_of_all_is_bounded() {
        let mut known = KnownJobs::default();
        for n in 0..5 * GENERATION {
            known.keep(JobId(n as i64), OF, &body(n as u64));
            known.name(OF, &did(n), JobId(n as i64));
            assert!(known.find(OF, &did(0)).is_some(), "what is used all the time was forgotten, at {n}");
        }
        let held = [&known.young, &known.old].map(|generation| generation.by_id.len().max(generation.by_repo.len()));
        assert!(held.iter().all(|&held| held <= GENERATION), "{held:?}");
        assert_eq!(known.body(JobId(1)), None);
    }
}
