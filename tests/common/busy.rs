//! A simulated network in which things go on happening, whatever a program that follows it goes through; and what that program has to end with.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;
use std::sync::Arc;

use atproto_backfill::job::{Job, JobState};
use atproto_backfill::sim::{
    AccountStatus, Change, EventFault, FirehoseOptions, Missing, Network, NetworkOptions, RandomWrites, Rule, Sizes, World,
};
use atproto_backfill::syntax::Did;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fold::Fold;

const HOSTS: usize = 3;
const REPOS: usize = 20;
const RECORDS: u64 = 2_500;
/// Accounts that may be deleted, and those that may come to be.
const DELETED: usize = 3;
const ADDED: usize = 6;
/// Records that one act deletes at most.
const DELETES: usize = 40;
/// Where the sequence of the relay begins, so that a sequence which begins anew is below whatever cursor was saved.
const FIRST_SEQ: u64 = 1_000_000;

/// What has been done to the world.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    pub(crate) commits: u64,
    pub(crate) deletes: u64,
    pub(crate) accounts: u64,
    pub(crate) identities: u64,
    pub(crate) faults: u64,
}

/// A world, its network, and what happens there, one act after the other.
pub(crate) struct Busy {
    pub(crate) world: Arc<World>,
    pub(crate) network: Network,
    random: StdRng,
    writes: RandomWrites,
    /// Accounts that are away for now.
    away: BTreeSet<Did>,
    deleted: BTreeSet<Did>,
    added: usize,
    restarted: bool,
    /// Whether the sequence may begin anew by chance.
    pub(crate) may_restart: bool,
    pub(crate) acts: Acts,
}

impl Busy {
    pub(crate) async fn start(seed: u64) -> Self {
        let world = World::builder().seed(seed).hosts(HOSTS).repos(REPOS).sizes(Sizes::Total(RECORDS)).build().expect("a world");
        world.make_all();
        let relay = FirehoseOptions { first_seq: FIRST_SEQ, ..FirehoseOptions::default() };
        let network = Network::start(&world, NetworkOptions { relay, ..NetworkOptions::default() }).await.expect("a network");
        let (random, writes) = (StdRng::seed_from_u64(seed), RandomWrites::new(seed));
        let (away, deleted) = (BTreeSet::new(), BTreeSet::new());
        Self { world, network, random, writes, away, deleted, added: 0, restarted: false, may_restart: true, acts: Acts::default() }
    }

    /// From 0 to `most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        self.random.random_range(0..=most)
    }

    /// One thing that people, hosts or the relay do. Some of what the relay does is wrong.
    pub(crate) fn act(&mut self) {
        let Some(did) = self.any_active() else { return self.come_back() };
        match self.random.random_range(0..1000) {
            0..800 => self.commit(&did),
            800..860 => self.delete_many(&did),
            860..890 => self.go_away(&did),
            890..925 => self.come_back(),
            925..945 => self.identity(|world| world.set_handle(&did, "other.test")),
            945..960 => self.identity(|world| _ = world.rotate_key(&did)),
            960..970 => {
                let host = self.random.random_range(0..HOSTS);
                self.identity(|world| _ = world.migrate(&did, host));
            }
            970..974 => self.add(),
            974..977 => self.delete_account(did),
            977..979 if self.may_restart => self.restart_sequence(),
            _ => self.tell_of_wrongly(&did),
        }
    }

    fn any_active(&mut self) -> Option<Did> {
        let active: Vec<Did> = self.world.dids().into_iter().filter(|did| self.is_active(did)).collect();
        (!active.is_empty()).then(|| active[self.random.random_range(0..active.len())].clone())
    }

    fn is_active(&self, did: &Did) -> bool {
        !self.away.contains(did) && !self.deleted.contains(did)
    }

    fn commit(&mut self, did: &Did) {
        self.writes.write_to(&self.world, did).expect("an account of the world");
        self.acts.commits += 1;
    }

    /// Some of which a consumer may have been given, and the store not been told yet.
    fn delete_many(&mut self, did: &Did) {
        let truth = self.world.truth(did).expect("an account of the world");
        let (step, most) = (self.random.random_range(1..4), self.random.random_range(1..=DELETES));
        let gone: Vec<Change> = truth.records.into_keys().step_by(step).take(most).map(Change::Delete).collect();
        self.acts.deletes += gone.len() as u64;
        self.world.write(did, gone).expect("it deletes what is there");
    }

    fn go_away(&mut self, did: &Did) {
        let status = [AccountStatus::Deactivated, AccountStatus::Takendown, AccountStatus::Suspended];
        self.world.set_status(did, status[self.random.random_range(0..status.len())]);
        self.away.insert(did.clone());
        self.acts.accounts += 1;
    }

    fn come_back(&mut self) {
        if let Some(did) = self.away.pop_first() {
            self.world.set_status(&did, AccountStatus::Active);
            self.acts.accounts += 1;
        }
    }

    fn identity(&mut self, act: impl FnOnce(&World)) {
        act(&self.world);
        self.acts.identities += 1;
    }

    fn add(&mut self) {
        if self.added < ADDED {
            self.added += 1;
            self.world.add_account(self.added);
        }
    }

    fn delete_account(&mut self, did: Did) {
        if self.deleted.len() < DELETED {
            self.world.set_status(&did, AccountStatus::Deleted);
            self.deleted.insert(did);
            self.acts.accounts += 1;
        }
    }

    /// Has the sequence of the relay begin anew. Once: a second time it might pass the saved cursor unseen, as no program can tell.
    pub(crate) fn restart_sequence(&mut self) {
        if !std::mem::replace(&mut self.restarted, true) {
            self.network.faults().inject(Rule::new(EventFault::Restart).times(1));
            self.acts.faults += 1;
        }
    }

    /// Has no more accounts come to be: a program that is told which to follow does not hear of them.
    pub(crate) fn add_none(&mut self) {
        self.added = ADDED;
    }

    /// Whether the sequence of the relay has never begun anew.
    pub(crate) fn has_one_sequence(&self) -> bool {
        !self.restarted
    }

    /// A commit is told wrongly.
    pub(crate) fn tell_wrongly(&mut self) {
        if let Some(did) = self.any_active() {
            self.tell_of_wrongly(&did);
            self.commit(&did);
        }
    }

    /// Some account goes away, or comes back.
    pub(crate) fn come_or_go(&mut self) {
        match self.any_active() {
            Some(did) if self.away.len() < REPOS / 4 => self.go_away(&did),
            _ => self.come_back(),
        }
    }

    /// The next commit of this repo is told wrongly.
    fn tell_of_wrongly(&mut self, did: &Did) {
        let fault = match self.random.random_range(0..6) {
            0 => EventFault::Drop,
            1 => EventFault::NoBlocks,
            2 => EventFault::TooBig,
            3 => EventFault::Without(Missing::Record),
            4 => EventFault::AsSync,
            _ => EventFault::Twice,
        };
        self.network.faults().inject(Rule::new(fault).did(did).times(1));
        self.acts.faults += 1;
    }

    /// Ends what happens: all but one of those who are away come back, nothing is told wrongly any more, and every repo gets a last commit, which shows what was missed.
    pub(crate) fn settle(&mut self) {
        while self.away.len() > 1 {
            self.come_back();
        }
        self.writes = RandomWrites::new(self.world.seed() ^ 1);
        for did in self.world.dids() {
            // The rules that wait for a commit of this repo strike first.
            for _ in 0..100 {
                let faults = self.network.faults().total();
                if self.is_active(&did) {
                    self.commit(&did);
                }
                if self.network.faults().total() == faults {
                    break;
                }
            }
        }
    }

    /// In what a reader does not hold what it should, in words.
    pub(crate) fn differences(&self, fold: &Fold) -> Vec<String> {
        self.world.dids().iter().filter_map(|did| self.difference(did, fold)).collect()
    }

    fn difference(&self, did: &Did, fold: &Fold) -> Option<String> {
        let (told, held) = (fold.account(did.as_str()), fold.records(did.as_str()));
        if !self.is_active(did) {
            return match told {
                None | Some("active") => Some(format!("{did} is {:?}, told: {told:?}", self.world.status(did))),
                Some("deleted") if !held.is_empty() => Some(format!("{did} is deleted, and {} records are held", held.len())),
                // Its records are to be kept, as they were when the program heard of it.
                Some(_) => None,
            };
        }
        if told.is_some_and(|told| told != "active") {
            return Some(format!("{did} is active, told: {told:?}"));
        }
        let truth = self.world.truth(did).expect("an account of the world").records;
        let true_cid = |path: &str| truth.iter().find(|(of, _)| of.as_str() == path).map(|(_, (cid, _))| cid.to_string());
        let missing = truth.iter().filter(|(path, (cid, _))| held.get(path.as_str()).is_none_or(|(held, _)| *held != cid.to_string()));
        let missing: Vec<&str> = missing.map(|(path, _)| path.as_str()).collect();
        let extra: Vec<&String> = held.keys().filter(|path| true_cid(path).is_none()).collect();
        (!missing.is_empty() || !extra.is_empty()).then(|| {
            let first = [missing.first().copied(), extra.first().map(|path| path.as_str())];
            format!("{did}: {} of {} missing or old, {} more than there are, such as {first:?}", missing.len(), truth.len(), extra.len())
        })
    }

    /// In what the jobs of a database do not stand where the world does, in words.
    pub(crate) fn misplaced(&self, jobs: &[Job]) -> Vec<String> {
        let wrong = |did: &Did| {
            let Some(job) = jobs.iter().find(|job| job.did == *did) else { return Some(format!("{did} has no job")) };
            let (rev, _, records) = self.world.head(did)?;
            let is_right = match &job.state {
                JobState::Complete => self.is_active(did) && (job.rev, job.records) == (Some(rev), records),
                JobState::Unavailable { .. } => !self.is_active(did),
                // Wanted once more when the program stopped, as an audit does that is not sure.
                JobState::Enqueued => !self.is_active(did) || (job.rev, job.records) == (Some(rev), records),
                JobState::InProgress | JobState::Failed { .. } => false,
            };
            let is_done = job.buffered_op_sets == 0 && job.untold.is_empty();
            (!is_right || !is_done).then(|| format!("{did} is at {rev} with {records} records: {job:?}"))
        };
        self.world.dids().iter().filter_map(wrong).collect()
    }
}
