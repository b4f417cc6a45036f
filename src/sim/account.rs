use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rand_chacha::ChaCha8Rng;

use super::content::{self, Kind};
use super::history::Past;
use super::repo::Repo;
use super::{lock, names, seed};
use crate::repo::{Curve, SigningKey};
use crate::syntax::Did;

/// What a host says of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountStatus {
    /// All is well.
    Active,
    /// Switched off by its user.
    Deactivated,
    /// Taken down.
    Takendown,
    /// Suspended.
    Suspended,
    /// Deleted: the host has it no more and lists it no more, the directory answers 410.
    Deleted,
    /// The host does not have it, though the directory says so.
    NotFound,
}

impl AccountStatus {
    /// The word for it in `status` fields; none for an active account, nor for one that the host does not know.
    pub fn word(self) -> Option<&'static str> {
        match self {
            AccountStatus::Active | AccountStatus::NotFound => None,
            AccountStatus::Deactivated => Some("deactivated"),
            AccountStatus::Takendown => Some("takendown"),
            AccountStatus::Suspended => Some("suspended"),
            AccountStatus::Deleted => Some("deleted"),
        }
    }
}

/// One account: where it is, its key, and its repo, which is made when it is first asked for.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) world: u64,
    pub(super) index: u64,
    pub(super) did: Did,
    /// Records that the repo is made with.
    pub(super) planned: u64,
    collections: Arc<[String]>,
    first_key: OnceLock<SigningKey>,
    standing: Mutex<Standing>,
    repo: Mutex<Option<Repo>>,
}

#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) host: usize,
    pub(super) former_hosts: Vec<usize>,
    pub(super) status: AccountStatus,
    key: Option<SigningKey>,
    keys: u64,
    handle: Option<String>,
}

/// The repo of an account, held.
pub(super) struct Held<'a>(MutexGuard<'a, Option<Repo>>);

impl Account {
    pub(super) fn new(world: u64, index: u64, did: Did, host: usize, planned: u64, collections: Arc<[String]>) -> Self {
        let standing = Standing { host, former_hosts: Vec::new(), status: AccountStatus::Active, key: None, keys: 0, handle: None };
        let (first_key, standing, repo) = (OnceLock::new(), Mutex::new(standing), Mutex::new(None));
        Self { world, index, did, planned, collections, first_key, standing, repo }
    }

    pub(super) fn handle(&self) -> String {
        lock(&self.standing).handle.clone().unwrap_or_else(|| names::handle(self.index))
    }

    pub(super) fn set_handle(&self, handle: &str) {
        lock(&self.standing).handle = Some(handle.to_owned());
    }

    /// Each curve signs for half of the accounts.
    fn curve(&self) -> Curve {
        if seed::bytes(self.world, "curve", self.index)[0].is_multiple_of(2) { Curve::K256 } else { Curve::P256 }
    }

    /// The key that signs the next commit.
    pub(super) fn key(&self) -> SigningKey {
        if let Some(key) = &lock(&self.standing).key {
            return key.clone();
        }
        self.first_key.get_or_init(|| SigningKey::from_seed(self.curve(), &seed::bytes(self.world, "key", self.index))).clone()
    }

    /// A key of the account's curve that is not the account's.
    pub(super) fn foreign_key(&self) -> SigningKey {
        SigningKey::from_seed(self.curve(), &seed::bytes(self.world, "foreign key", self.index))
    }

    /// Gives the account another key. The commit that proves it is the caller's.
    pub(super) fn rotate_key(&self) {
        let mut standing = lock(&self.standing);
        standing.keys += 1;
        let seed = seed::bytes(self.world, &format!("key {}", standing.keys), self.index);
        standing.key = Some(SigningKey::from_seed(self.curve(), &seed));
    }

    pub(super) fn standing(&self) -> Standing {
        lock(&self.standing).clone()
    }

    pub(super) fn set_status(&self, status: AccountStatus) {
        lock(&self.standing).status = status;
    }

    pub(super) fn move_to(&self, host: usize) {
        let mut standing = lock(&self.standing);
        let former = std::mem::replace(&mut standing.host, host);
        standing.former_hosts.push(former);
        standing.former_hosts.retain(|former| *former != host);
    }

    pub(super) fn is_active(&self) -> bool {
        lock(&self.standing).status == AccountStatus::Active
    }

    /// The kind and the collection of a new record.
    pub(super) fn draw_collection(&self, rng: &mut ChaCha8Rng) -> (Kind, &str) {
        content::draw(&self.collections, rng)
    }

    /// Whether the repo is made, so that [`Self::repo`] is quick.
    pub(super) fn is_made(&self) -> bool {
        self.repo.try_lock().is_ok_and(|repo| repo.is_some())
    }

    /// The repo.
    pub(super) fn repo(&self) -> Held<'_> {
        let mut repo = lock(&self.repo);
        if repo.is_none() {
            let key = self.first_key.get_or_init(|| SigningKey::from_seed(self.curve(), &seed::bytes(self.world, "key", self.index)));
            let (did, collections) = (&self.did, &*self.collections);
            *repo = Some(Past { world: self.world, index: self.index, did, key, records: self.planned, collections }.make());
        }
        Held(repo)
    }
}

impl std::ops::Deref for Held<'_> {
    type Target = Repo;
    fn deref(&self) -> &Repo {
        self.0.as_ref().expect("made when it was locked")
    }
}

impl std::ops::DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Repo {
        self.0.as_mut().expect("made when it was locked")
    }
}
