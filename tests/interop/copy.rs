//! A consumer that keeps everything it is given, notices whatever it should not be given, and can be made to wait in a checkout.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atproto_backfill::consumer::{Change, Delivery, Handler, HandlerError, Origin, Record};
use atproto_backfill::job::Account;
use atproto_backfill::repo::json;
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};
use tokio::sync::watch;

use crate::truth::Records;

/// Longer than a writer needs to come round to every repo.
const WAITS: Duration = Duration::from_secs(60);

/// The consumer's copy of all repos. Clones are the same copy.
#[derive(Clone)]
pub(crate) struct Copy {
    held: Arc<Mutex<Held>>,
    buffered: watch::Receiver<HashMap<Did, Rev>>,
}

#[derive(Default)]
struct Held {
    repos: HashMap<Did, Records>,
    revs: BTreeMap<Did, Rev>,
    violations: Vec<(Did, String)>,
    /// What was told of accounts, in order.
    accounts: Vec<(Did, Account)>,
}

impl Copy {
    /// `buffered`: the newest rev of each repo that was put into its buffer. No checkout is acknowledged before its repo has an op set
    /// there that is newer than the checkout, so that each has something to flush.
    pub(crate) fn new(buffered: watch::Receiver<HashMap<Did, Rev>>) -> Self {
        Self { held: Arc::default(), buffered }
    }

    /// What the consumer holds of a repo.
    pub(crate) fn records(&self, did: &Did) -> Records {
        self.held.lock().unwrap().repos.get(did).cloned().unwrap_or_default()
    }

    /// What came that should not have. A repo of which an attempt failed is excused: what the failed attempt may have brought, comes again.
    pub(crate) fn violations(&self, excused: &[&Did]) -> Vec<String> {
        let held = self.held.lock().unwrap();
        held.violations.iter().filter(|(did, _)| !excused.contains(&did)).map(|(did, what)| format!("{did}: {what}")).collect()
    }

    async fn newer_than(&self, did: &Did, rev: Rev) -> Result<(), HandlerError> {
        let mut buffered = self.buffered.clone();
        let newer = buffered.wait_for(|revs| revs.get(did).is_some_and(|newest| *newest > rev));
        tokio::time::timeout(WAITS, newer).await??;
        Ok(())
    }
}

impl Held {
    /// Where nothing fails or dies, every change is exactly what its name says.
    fn take(&mut self, did: &Did, rev: Rev, change: Change<'_>) {
        let records = self.repos.entry(did.clone()).or_default();
        let path = change.path().to_string();
        let known = records.contains_key(&path);
        let (expected, outcome) = match change {
            Change::Create(record) => (false, Some(entry(record))),
            Change::Update(record) => (true, Some(entry(record))),
            Change::Delete(_) => (true, None),
        };
        match outcome {
            Some(entry) => records.insert(path.clone(), entry),
            None => records.remove(&path),
        };
        if known != expected {
            self.violations.push((did.clone(), format!("{rev}: {:?} of {path}, known: {known}", change.action())));
        }
        let last = self.revs.entry(did.clone()).or_insert(rev);
        if *last > rev {
            self.violations.push((did.clone(), format!("rev {rev} after {last}")));
        }
        *last = rev;
    }
}

fn entry(record: Record<'_>) -> (String, serde_json::Value) {
    (record.cid.to_string(), json::to_value(record.bytes).expect("the library delivers only well-formed records"))
}

impl Handler for Copy {
    async fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.held.lock().unwrap().take(did, rev, Change::Create(record));
        Ok(())
    }

    async fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.held.lock().unwrap().take(did, rev, Change::Update(record));
        Ok(())
    }

    async fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        self.held.lock().unwrap().take(did, rev, Change::Delete(path));
        Ok(())
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        self.held.lock().unwrap().accounts.push((did.clone(), account));
        Ok(())
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        if delivery.origin() == Origin::Checkout {
            self.newer_than(delivery.did(), delivery.rev()).await?;
        }
        let mut held = self.held.lock().unwrap();
        delivery.changes().for_each(|change| held.take(delivery.did(), delivery.rev(), change));
        Ok(())
    }
}
