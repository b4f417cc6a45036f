use std::sync::Arc;

use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::account::Account;
use super::content::{self, Kind};
use super::repo::{Change, Repo};
use super::{World, names, seed};
use crate::job::OpSet;
use crate::repo::Link;
use crate::syntax::{Did, RecordPath, Rev};

/// A seeded source of commits as people make them: three in five ops create, one in five updates, one in five deletes; some of the
/// creates bring back a path that was deleted. No op is without effect. Four in five commits have one op, the others up to eight.
#[derive(Debug, Clone)]
pub struct RandomWrites {
    rng: ChaCha8Rng,
}

impl RandomWrites {
    /// The same seed makes the same writes to the same world.
    pub fn new(seed: u64) -> Self {
        Self { rng: seed::stream(seed, "writes", 0) }
    }

    /// Writes one commit to any active account; none if there is none among the hundred first tried.
    pub fn write(&mut self, world: &World) -> Option<OpSet> {
        for _ in 0..100 {
            let account = world.account_at(|accounts| self.rng.random_range(0..accounts))?;
            if account.is_active() {
                return self.write_account(world, &account);
            }
        }
        None
    }

    /// Writes one commit to this account, whatever its status; none if there is no such account.
    pub fn write_to(&mut self, world: &World, did: &Did) -> Option<OpSet> {
        self.write_account(world, &world.account(did)?)
    }

    fn write_account(&mut self, world: &World, account: &Arc<Account>) -> Option<OpSet> {
        let ops = if self.rng.random_range(0..5) < 4 { 1 } else { self.rng.random_range(2..=8) };
        let decide = |repo: &Repo| {
            let mut changes: Vec<Change> = Vec::with_capacity(ops);
            for _ in 0..ops {
                let change = self.change(world, account, repo);
                if changes.iter().all(|other| other.path() != change.path()) {
                    changes.push(change);
                }
            }
            (world.clock().tick(), changes)
        };
        // The changes are made to fit under the lock of the repo; only a clock that was set back can make this fail.
        world.write_with(&account.did, decide).ok()
    }

    fn change(&mut self, world: &World, account: &Account, repo: &Repo) -> Change {
        match self.rng.random_range(0..10) {
            0 => repo.deleted.front().map(|path| self.create(world, path.clone())),
            1 | 2 => self.update(world, account, repo),
            3 | 4 => self.any_leaf(world, account, repo).map(|(path, _)| Change::Delete(path)),
            _ => None,
        }
        .unwrap_or_else(|| self.create_new(world, account, repo))
    }

    fn update(&mut self, world: &World, account: &Account, repo: &Repo) -> Option<Change> {
        let (path, leaf) = self.any_leaf(world, account, repo)?;
        let record = self.record(world, path.collection());
        (Link::of(&record) != leaf).then_some(Change::Update(path, record))
    }

    fn create(&mut self, world: &World, path: RecordPath) -> Change {
        let record = self.record(world, path.collection());
        Change::Create(path, record)
    }

    fn create_new(&mut self, world: &World, account: &Account, repo: &Repo) -> Change {
        let (kind, collection) = account.draw_collection(&mut self.rng);
        loop {
            let key = if kind == Kind::Note {
                let ordinal = self.rng.random_range(1_000..1_000_000_000);
                names::unusual_key(&mut self.rng, ordinal)
            } else {
                Rev::from_parts(world.clock().micros(), self.rng.random_range(0..1024)).to_string()
            };
            let path = RecordPath::new(&format!("{collection}/{key}")).expect("the simulator makes valid paths");
            if !repo.leaves.contains_key(&path) {
                return self.create(world, path);
            }
            world.clock().tick();
        }
    }

    fn record(&mut self, world: &World, collection: &str) -> Bytes {
        let mut record = Vec::with_capacity(256);
        content::write(&mut record, Kind::of(collection), collection, world.clock().micros(), &mut self.rng);
        record.into()
    }

    /// A record of the repo: the first at or after a path drawn from where records are.
    fn any_leaf(&mut self, world: &World, account: &Account, repo: &Repo) -> Option<(RecordPath, Link)> {
        let (_, collection) = account.draw_collection(&mut self.rng);
        let oldest = repo.since;
        let micros = self.rng.random_range(oldest..=world.clock().micros().max(oldest));
        let from = RecordPath::new(&format!("{collection}/{}", Rev::from_parts(micros, 0))).expect("a TID is a record key");
        let found = repo.leaves.range(from..).next().or_else(|| repo.leaves.iter().next());
        found.map(|(path, leaf)| (path.clone(), leaf.link()))
    }
}
