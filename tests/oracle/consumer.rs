//! A consumer that keeps what it is told, and notes what it should never be told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atproto_backfill::consumer::{Change, Delivery, Handler, HandlerError, Record};
use atproto_backfill::job::{Account, UnavailableStatus};
use atproto_backfill::repo::Link;
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};

use crate::trap::Trap;

#[derive(Debug, Default)]
pub(crate) struct Consumer {
    repos: Mutex<BTreeMap<Did, Repo>>,
    faults: Mutex<Vec<String>>,
    /// Deliveries that fail before the next one is taken, and whether a failure is a panic.
    pub(crate) failing: AtomicUsize,
    pub(crate) panicking: AtomicBool,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Repo {
    pub(crate) records: BTreeMap<String, Link>,
    pub(crate) account: Option<Account>,
    /// The rev of the last delivery by this process; none before the first.
    last: Option<Rev>,
    /// What the process before had recorded.
    recorded: Option<Rev>,
    /// Whether its host went back to a backup, so that its revs may go back.
    restored: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Consumer {
    pub(crate) fn repo(&self, did: &Did) -> Repo {
        lock(&self.repos).get(did).cloned().unwrap_or_default()
    }

    pub(crate) fn forget(&self, did: &Did) {
        lock(&self.repos).remove(did);
    }

    /// The host of a repo has gone back to a backup.
    pub(crate) fn restored(&self, did: &Did) {
        lock(&self.repos).entry(did.clone()).or_default().restored = true;
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        lock(&self.faults).clone()
    }

    /// Another process begins, with these revs in its store.
    pub(crate) fn restarted(&self, revs: impl IntoIterator<Item = (Did, Option<Rev>)>) {
        let mut repos = lock(&self.repos);
        repos.values_mut().for_each(|repo| (repo.last, repo.recorded) = (None, None));
        for (did, rev) in revs {
            repos.entry(did).or_default().recorded = rev;
        }
    }

    fn fail(&self) -> Result<(), HandlerError> {
        if self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return Ok(());
        }
        assert!(!self.panicking.load(Ordering::SeqCst), "the consumer was told to panic");
        Err("the consumer was told to fail".into())
    }

    fn begin(&self, did: &Did, rev: Rev) {
        let mut repos = lock(&self.repos);
        let repo = repos.entry(did.clone()).or_default();
        let before = repo.last.max(repo.recorded);
        if before.is_some_and(|before| rev < before) && !repo.restored {
            lock(&self.faults).push(format!("{did} came at {rev} after {before:?}"));
        }
        repo.last = Some(rev);
    }

    fn take(&self, did: &Did, change: &Change<'_>) {
        let mut repos = lock(&self.repos);
        let repo = repos.entry(did.clone()).or_default();
        let path = change.path().as_str().to_owned();
        match change {
            Change::Create(record) | Change::Update(record) => {
                if Link::of(record.bytes) != record.cid {
                    lock(&self.faults).push(format!("{did} {path}: bytes that are not of their CID"));
                }
                repo.records.insert(path, record.cid);
            }
            Change::Delete(_) => _ = repo.records.remove(&path),
        }
    }

    fn tell(&self, did: &Did, account: Account) {
        let mut repos = lock(&self.repos);
        let repo = repos.entry(did.clone()).or_default();
        repo.account = Some(account);
        if account == Account::Unavailable(UnavailableStatus::Deleted) {
            // Its revs begin anew: nothing is held of it.
            *repo = Repo { account: Some(account), restored: repo.restored, ..Repo::default() };
        }
    }
}

/// The consumer as one process has it.
#[derive(Debug, Clone)]
pub(crate) struct Taking {
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) trap: Trap,
}

impl Handler for Taking {
    async fn create(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }
    async fn update(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }
    async fn delete(&self, _: &Did, _: Rev, _: RecordPathRef<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        self.trap.reach("handler:nothing").await;
        self.consumer.fail()?;
        self.consumer.tell(did, account);
        self.trap.reach("handler:account").await;
        Ok(())
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        self.trap.reach("handler:nothing").await;
        self.consumer.fail()?;
        self.consumer.begin(delivery.did(), delivery.rev());
        for (at, change) in delivery.changes().enumerate() {
            if at == delivery.len() / 2 {
                self.trap.reach("handler:half").await;
            }
            self.consumer.take(delivery.did(), &change);
        }
        self.trap.reach("handler:all").await;
        Ok(())
    }
}
