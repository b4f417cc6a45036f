use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::consumer::{Change, Delivery, Handler, HandlerError, Origin, Record};
use crate::job::{Account, UnavailableStatus};
use crate::repo::Link;
use crate::sim::World;
use crate::syntax::{Did, RecordPathRef, Rev};

/// The demo's consumer: keeps the CID of every record it is told of, and counts what comes out of order.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    repos: HashMap<Did, Repo>,
    out_of_order: u64,
}

#[derive(Debug, Default)]
struct Repo {
    rev: Option<Rev>,
    records: BTreeMap<Box<str>, Link>,
}

/// How what is held differs from the truth, in records.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Not held, or held in another version.
    pub(super) missing: u64,
    /// Held, but no more.
    pub(super) extra: u64,
}

impl Ledger {
    pub(super) fn out_of_order(&self) -> u64 {
        self.lock().out_of_order
    }

    pub(super) fn compare(&self, world: &World) -> Difference {
        let state = self.lock();
        let mut difference = Difference::default();
        let none = BTreeMap::new();
        for did in world.dids() {
            let Some(truth) = world.truth(&did) else { continue };
            let held = state.repos.get(&did).map_or(&none, |repo| &repo.records);
            let same = truth.records.iter().filter(|(path, (cid, _))| held.get(path.as_str()) == Some(cid)).count();
            let known = truth.records.keys().filter(|path| held.contains_key(path.as_str())).count();
            difference.missing += (truth.records.len() - same) as u64;
            difference.extra += (held.len() - known) as u64;
        }
        difference
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, did: &Did, path: RecordPathRef<'_>, cid: Option<Link>) {
        let mut state = self.lock();
        let records = &mut state.repos.entry(did.clone()).or_default().records;
        match cid {
            Some(cid) => _ = records.insert(path.as_str().into(), cid),
            None => _ = records.remove(path.as_str()),
        }
    }
}

impl Handler for Ledger {
    async fn create(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.put(did, record.path, Some(record.cid));
        Ok(())
    }

    async fn update(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.put(did, record.path, Some(record.cid));
        Ok(())
    }

    async fn delete(&self, did: &Did, _: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        self.put(did, path, None);
        Ok(())
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        if account == Account::Unavailable(UnavailableStatus::Deleted) {
            self.lock().repos.remove(did);
        }
        Ok(())
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        {
            let mut state = self.lock();
            let repo = state.repos.entry(delivery.did().clone()).or_default();
            // Several deliveries of one checkout are of one rev; those of commits rise.
            let back = repo.rev.is_some_and(|rev| match delivery.origin() {
                Origin::Checkout => delivery.rev() < rev,
                Origin::Live => delivery.rev() <= rev,
            });
            repo.rev = repo.rev.max(Some(delivery.rev()));
            state.out_of_order += u64::from(back);
        }
        for change in delivery.changes() {
            match change {
                Change::Create(record) | Change::Update(record) => self.put(delivery.did(), record.path, Some(record.cid)),
                Change::Delete(path) => self.put(delivery.did(), path, None),
            }
        }
        Ok(())
    }
}
