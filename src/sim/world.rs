use std::collections::{BTreeMap, HashMap};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};

use bytes::Bytes;

use super::account::Account;
use super::clock::SimClock;
use super::firehose::Log;
use super::repo::Repo;
use super::{AccountStatus, WorldBuilder, read};
use crate::repo::{Link, PublicKey};
use crate::syntax::{Did, RecordPath, Rev};

/// All accounts of a simulated network and their repos: the truth that a consumer's copy is compared with.
///
/// The same builder makes the same world, byte for byte, whatever is done to it in which order until the first write. A repo is made when
/// it is first asked for ([`Self::make_all`] makes them ahead, on all cores). All methods may be called from any thread; those of one
/// repo take turns.
pub struct World {
    pub(super) seed: u64,
    hosts: usize,
    clock: SimClock,
    pub(super) collections: Arc<[String]>,
    pub(super) accounts: RwLock<Accounts>,
    pub(super) records: AtomicU64,
    web: Vec<(Did, TcpListener)>,
    /// Who is told what happens.
    pub(super) logs: RwLock<Vec<Weak<Log>>>,
}

#[derive(Default)]
pub(super) struct Accounts {
    pub(super) all: Vec<Arc<Account>>,
    by_did: HashMap<Did, usize>,
}

impl Accounts {
    pub(super) fn add(&mut self, account: Account) -> Arc<Account> {
        let account = Arc::new(account);
        self.by_did.insert(account.did.clone(), self.all.len());
        self.all.push(Arc::clone(&account));
        account
    }
}

/// What a repo truly holds at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truth {
    /// The rev.
    pub rev: Rev,
    /// The root of the tree.
    pub data: Link,
    /// The signed commit.
    pub commit: Link,
    /// Path → CID and DAG-CBOR bytes of the record.
    pub records: BTreeMap<RecordPath, (Link, Bytes)>,
}

/// A repo as it once was, to go back to.
#[derive(Debug, Clone)]
pub struct Snapshot(pub(super) Repo);

impl World {
    /// Describes a world.
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }

    pub(super) fn new(builder: &WorldBuilder, web: Vec<(Did, TcpListener)>) -> Self {
        let mut accounts = Accounts::default();
        let collections: Arc<[String]> = builder.collections.clone().into();
        let sizes = builder.sizes.plan(builder.seed, builder.repos + web.len());
        for (index, planned) in sizes.iter().enumerate() {
            let did = match index.checked_sub(builder.repos) {
                Some(of_web) => web[of_web].0.clone(),
                None => super::names::plc(builder.seed, index as u64),
            };
            accounts.add(Account::new(builder.seed, index as u64, did, index % builder.hosts, *planned, Arc::clone(&collections)));
        }
        Self {
            seed: builder.seed,
            hosts: builder.hosts,
            clock: SimClock::new(builder.seed),
            collections,
            accounts: RwLock::new(accounts),
            records: AtomicU64::new(sizes.iter().sum()),
            web,
            logs: RwLock::default(),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many hosts there are; they are numbered from 0.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// The clock that dates the commits.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// All accounts, in the order in which they came to be.
    pub fn dids(&self) -> Vec<Did> {
        read(&self.accounts).all.iter().map(|account| account.did.clone()).collect()
    }

    /// Records in all repos now, those of inactive accounts included.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// What a repo holds now; none if there is no such account.
    pub fn truth(&self, did: &Did) -> Option<Truth> {
        let account = self.account(did)?;
        let repo = account.repo();
        let records = repo.leaves.iter().map(|(path, leaf)| (path.clone(), (leaf.link(), leaf.record()))).collect();
        Some(Truth { rev: repo.rev, data: repo.data, commit: repo.commit, records })
    }

    /// Where a repo stands: its rev, the root of its tree, the number of its records.
    pub fn head(&self, did: &Did) -> Option<(Rev, Link, u64)> {
        let account = self.account(did)?;
        let repo = account.repo();
        Some((repo.rev, repo.data, repo.leaves.len() as u64))
    }

    /// The export of a repo now, in the order of the reference implementation.
    pub fn export(&self, did: &Did) -> Option<Bytes> {
        Some(self.account(did)?.repo().export().to_bytes())
    }

    /// The same blocks in the order of a streamable CAR.
    pub fn streamable_export(&self, did: &Did) -> Option<Bytes> {
        Some(self.account(did)?.repo().streamable().to_bytes())
    }

    /// The key that the account's commits are signed with now.
    pub fn key(&self, did: &Did) -> Option<PublicKey> {
        Some(self.account(did)?.key().public().clone())
    }

    /// The number of the host that an account is at.
    pub fn host_of(&self, did: &Did) -> Option<usize> {
        Some(self.account(did)?.standing().host)
    }

    /// What the host says of an account.
    pub fn status(&self, did: &Did) -> Option<AccountStatus> {
        Some(self.account(did)?.standing().status)
    }

    /// Makes all repos that are not made yet, on all cores. Takes a second for some 200 thousand records.
    pub fn make_all(&self) {
        let accounts = self.accounts();
        let next = AtomicU64::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(account) = accounts.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                        drop(account.repo());
                    }
                });
            }
        });
    }

    pub(super) fn account(&self, did: &Did) -> Option<Arc<Account>> {
        let accounts = read(&self.accounts);
        accounts.by_did.get(did).map(|&index| Arc::clone(&accounts.all[index]))
    }

    /// The account at a place that `pick` finds, given how many there are; none if there are none.
    pub(super) fn account_at(&self, pick: impl FnOnce(usize) -> usize) -> Option<Arc<Account>> {
        let all = &read(&self.accounts).all;
        if all.is_empty() { None } else { all.get(pick(all.len())).map(Arc::clone) }
    }

    pub(super) fn accounts(&self) -> Vec<Arc<Account>> {
        read(&self.accounts).all.clone()
    }

    pub(super) fn web(&self) -> &[(Did, TcpListener)] {
        &self.web
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let repos = read(&self.accounts).all.len();
        write!(f, "World {{ seed: {}, hosts: {}, repos: {repos}, records: {} }}", self.seed, self.hosts, self.records())
    }
}
