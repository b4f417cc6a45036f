use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use super::{AccountStatus, World, lock};
use crate::consumer::{Change, Delivery, Handler, HandlerError, Origin, Record};
use crate::job::{Account, UnavailableStatus};
use crate::repo::Link;
use crate::syntax::{Did, RecordPath, RecordPathRef, Rev};

/// A handler that keeps what it is told, as the simplest consumer would, notes what it should never be told, and compares itself with the world.
///
/// It shows what a handler of yours is to end with, and takes its place where something else is tested: options, a store, a wrapper.
#[derive(Default)]
pub struct ConsumerCopy {
    repos: Mutex<BTreeMap<Did, RepoCopy>>,
    violations: Mutex<Vec<String>>,
}

/// What a [`ConsumerCopy`] holds of one repo.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoCopy {
    /// Path → CID.
    pub records: BTreeMap<RecordPath, Link>,
    /// The rev of the last delivery.
    pub rev: Option<Rev>,
    /// What was told of the account last.
    pub account: Option<Account>,
    /// All that came, in its order: `+`, `~` or `-` (create, update, delete) and the path; `=` and what the account is.
    pub log: Vec<String>,
}

impl ConsumerCopy {
    /// One that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What it holds of a repo; nothing of one that it was never told of.
    pub fn repo(&self, did: &Did) -> RepoCopy {
        lock(&self.repos).get(did).cloned().unwrap_or_default()
    }

    /// Forgets a repo, as a consumer does that has it purged.
    pub fn forget(&self, did: &Did) {
        lock(&self.repos).remove(did);
    }

    /// What came that should not have come, in words: a rev below the one before, a commit that had come already, bytes that are not of their CID.
    ///
    /// What was taken and not acknowledged may come again: after a crash, or a [`super::HandlerFault`]. [`Self::take_violations`] takes those away.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    /// The same, and forgets them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.violations))
    }

    /// In what it differs from the world now, in words: none is a true copy, if the consumer takes all collections.
    ///
    /// The records of an active account are those of its repo, and it was not told to be anything else; a deleted one has none; of one that is inactive
    /// otherwise only that is asked whether it was told.
    pub fn differences(&self, world: &World) -> Vec<String> {
        let repos = lock(&self.repos);
        let nothing = RepoCopy::default();
        let dids = world.dids();
        let of = |did: &Did| {
            let held = repos.get(did).unwrap_or(&nothing);
            let differs = match world.status(did)? {
                AccountStatus::Active => differs(world, did, held),
                _ => differs_inactive(held),
            };
            differs.map(|differs| format!("{did}: {differs}"))
        };
        let unknown = repos.keys().filter(|did| world.status(did).is_none()).map(|did| format!("{did} is not of this world"));
        dids.iter().filter_map(of).chain(unknown).collect()
    }

    fn note(&self, violation: String) {
        lock(&self.violations).push(violation);
    }

    fn tell(&self, did: &Did, account: Account) {
        let mut repos = lock(&self.repos);
        let repo = repos.entry(did.clone()).or_default();
        repo.log.push(format!("={account}"));
        repo.account = Some(account);
        if account == Account::Unavailable(UnavailableStatus::Deleted) {
            // Should it come back, its revs begin anew.
            repo.records.clear();
            repo.rev = None;
        }
    }

    fn begin(&self, did: &Did, rev: Rev, origin: Option<Origin>) {
        let mut repos = lock(&self.repos);
        let repo = repos.entry(did.clone()).or_default();
        if let Some(last) = repo.rev.filter(|last| rev < *last) {
            self.note(format!("{did} went back from {last} to {rev}"));
        }
        if origin == Some(Origin::Live) && repo.rev == Some(rev) {
            self.note(format!("{did} came twice at {rev}"));
        }
        repo.rev = Some(rev);
    }

    fn take(&self, did: &Did, change: &Change<'_>) {
        let (path, mut repos) = (change.path(), lock(&self.repos));
        let repo = repos.entry(did.clone()).or_default();
        let (sign, record) = match change {
            Change::Create(record) => ('+', Some(record)),
            Change::Update(record) => ('~', Some(record)),
            Change::Delete(_) => ('-', None),
        };
        repo.log.push(format!("{sign}{path}"));
        match record {
            Some(record) => {
                if Link::of(record.bytes) != record.cid {
                    self.note(format!("{did} {path}: bytes that are not of their CID"));
                }
                repo.records.insert(path.to_owned(), record.cid);
            }
            None => _ = repo.records.remove(&path.to_owned()),
        }
    }

    fn one(&self, did: &Did, rev: Rev, change: &Change<'_>) {
        self.begin(did, rev, None);
        self.take(did, change);
    }
}

fn differs(world: &World, did: &Did, held: &RepoCopy) -> Option<String> {
    let truth = world.truth(did)?;
    if let Some(account) = held.account.filter(|account| !account.is_active()) {
        return Some(format!("it is active, and was told to be {account}"));
    }
    let is_missing = |path: &&RecordPath| held.records.get(*path) != truth.records.get(*path).map(|(cid, _)| cid);
    let missing: Vec<_> = truth.records.keys().filter(is_missing).collect();
    let extra: Vec<_> = held.records.keys().filter(|path| !truth.records.contains_key(*path)).collect();
    (!missing.is_empty() || !extra.is_empty()).then(|| {
        let example = |paths: &[&RecordPath]| paths.first().map_or_else(String::new, |path| format!(" ({path})"));
        let (missing, extra) = ((missing.len(), example(&missing)), (extra.len(), example(&extra)));
        format!(
            "at {}, {}{} missing or old, {}{} too many; the copy is at {:?}",
            truth.rev, missing.0, missing.1, extra.0, extra.1, held.rev
        )
    })
}

fn differs_inactive(held: &RepoCopy) -> Option<String> {
    match held.account {
        None | Some(Account::Active) => Some("it is not active, and that was not told".to_owned()),
        Some(Account::Unavailable(UnavailableStatus::Deleted)) if !held.records.is_empty() => {
            Some(format!("it is deleted, and {} records are held", held.records.len()))
        }
        // Records are to be kept as they were.
        Some(Account::Unavailable(_)) => None,
    }
}

impl Handler for ConsumerCopy {
    async fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.one(did, rev, &Change::Create(record));
        Ok(())
    }

    async fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.one(did, rev, &Change::Update(record));
        Ok(())
    }

    async fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        self.one(did, rev, &Change::Delete(path));
        Ok(())
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        self.tell(did, account);
        Ok(())
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        // Lets other deliveries in between, as a handler that writes somewhere would.
        tokio::task::yield_now().await;
        self.begin(delivery.did(), delivery.rev(), Some(delivery.origin()));
        delivery.changes().for_each(|change| self.take(delivery.did(), &change));
        Ok(())
    }
}

impl fmt::Debug for ConsumerCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (repos, records) = {
            let repos = lock(&self.repos);
            (repos.len(), repos.values().map(|repo| repo.records.len()).sum::<usize>())
        };
        write!(f, "ConsumerCopy {{ repos: {repos}, records: {records}, violations: {} }}", lock(&self.violations).len())
    }
}
