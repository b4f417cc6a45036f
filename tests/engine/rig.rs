//! What the tests of the engine share.
//!
//! ```text
//!   World (truth) ── Network: PLC + PDS hosts on loopback ──HTTP──► Backfiller ──► Folder (what a consumer would hold)
//!     └── Writer / write() ── op sets, handed in ─────────────────────┘
//! ```
//! Only the network's far end is simulated: the HTTP client, the pace, the codec and the store are the real ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atproto_backfill::consumer::{Change, Delivery, Handler, HandlerError, Origin, Record};
use atproto_backfill::engine::{Backfiller, Options};
use atproto_backfill::fetch::{HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::job::{Account, UnavailableStatus};
use atproto_backfill::repo::Link;
use atproto_backfill::sim::{Network, NetworkOptions, World, WorldBuilder};
use atproto_backfill::store::{MemoryStore, Store};
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};

/// The longest that any wait of a test may take. A test that runs into it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A consumer that keeps what it is told, and notes what it should never be told.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    repos: Mutex<BTreeMap<Did, Folded>>,
    pub(crate) faults: Mutex<Vec<String>>,
    /// Deliveries that fail before the next one is taken.
    pub(crate) failing: AtomicUsize,
    /// Whether a failure is a panic.
    pub(crate) panicking: AtomicBool,
    /// Deliveries that were taken.
    pub(crate) deliveries: AtomicUsize,
    /// Whether the handler keeps silent about what it has taken.
    pub(crate) hanging: AtomicBool,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Folded {
    pub(crate) records: BTreeMap<String, Link>,
    pub(crate) rev: Option<Rev>,
    /// What it was told of the account last.
    pub(crate) account: Option<Account>,
    /// Every change in the order in which it came: `+` create, `~` update, `-` delete, and the path; `=` and what the account is.
    pub(crate) log: Vec<String>,
}

impl Folder {
    pub(crate) fn repo(&self, did: &Did) -> Folded {
        self.repos.lock().unwrap().get(did).cloned().unwrap_or_default()
    }

    /// Forgets a repo, as a consumer does that has purged it.
    pub(crate) fn forget(&self, did: &Did) {
        self.repos.lock().unwrap().remove(did);
    }

    fn tell(&self, did: &Did, account: Account) {
        let mut repos = self.repos.lock().unwrap();
        let repo = repos.entry(did.clone()).or_default();
        repo.log.push(format!("={account}"));
        repo.account = Some(account);
        if account == Account::Unavailable(UnavailableStatus::Deleted) {
            repo.records.clear();
        }
    }

    fn fold(&self, delivery: &Delivery) {
        let mut repos = self.repos.lock().unwrap();
        let repo = repos.entry(delivery.did().clone()).or_default();
        if repo.rev.is_some_and(|rev| delivery.rev() < rev) {
            self.faults.lock().unwrap().push(format!("{} went back from {:?} to {}", delivery.did(), repo.rev, delivery.rev()));
        }
        if delivery.origin() == Origin::Live && repo.rev == Some(delivery.rev()) {
            self.faults.lock().unwrap().push(format!("{} came twice at {}", delivery.did(), delivery.rev()));
        }
        repo.rev = Some(delivery.rev());
        for change in delivery.changes() {
            let path = change.path().as_str().to_owned();
            let (sign, cid) = match change {
                Change::Create(record) => ('+', Some(record)),
                Change::Update(record) => ('~', Some(record)),
                Change::Delete(_) => ('-', None),
            };
            repo.log.push(format!("{sign}{path}"));
            match cid {
                Some(record) => {
                    assert_eq!(Link::of(record.bytes), record.cid, "{path}: bytes that are not of their CID");
                    repo.records.insert(path, record.cid);
                }
                None => _ = repo.records.remove(&path),
            }
        }
    }
}

/// The handler of a rig: a [`Folder`] behind a pointer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folding(pub(crate) Arc<Folder>);

impl Handler for Folding {
    async fn create(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("the folder takes batches")
    }
    async fn update(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("the folder takes batches")
    }
    async fn delete(&self, _: &Did, _: Rev, _: RecordPathRef<'_>) -> Result<(), HandlerError> {
        unreachable!("the folder takes batches")
    }
    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        if self.0.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err("the folder was told to fail".into());
        }
        self.0.tell(did, account);
        Ok(())
    }
    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        // Lets other deliveries in between, as a handler that writes somewhere would.
        tokio::task::yield_now().await;
        if self.0.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            assert!(!self.0.panicking.load(Ordering::SeqCst), "the folder was told to panic");
            return Err("the folder was told to fail".into());
        }
        self.0.fold(delivery);
        self.0.deliveries.fetch_add(1, Ordering::SeqCst);
        if self.0.hanging.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// A world, its network, and a backfiller that has not been started.
pub(crate) struct Rig {
    pub(crate) world: Arc<World>,
    pub(crate) network: Network,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) folder: Arc<Folder>,
    pub(crate) backfiller: Backfiller,
}

impl Rig {
    pub(crate) async fn new(world: WorldBuilder) -> Self {
        Self::with(world, NetworkOptions::default(), Options::default(), Arc::new(MemoryStore::new())).await
    }

    pub(crate) async fn with(world: WorldBuilder, network: NetworkOptions, options: Options, store: Arc<dyn Store>) -> Self {
        let world = world.build().unwrap();
        println!("seed {}", world.seed());
        let network = Network::start(&world, network).await.unwrap();
        let folder = Arc::new(Folder::default());
        let backfiller = backfiller(&network, &folder, options, &store).await;
        Self { world, network, store, folder, backfiller }
    }

    /// Another backfiller on the same store and consumer, as after a restart.
    pub(crate) async fn restart(&mut self, options: Options) {
        self.backfiller = backfiller(&self.network, &self.folder, options, &self.store).await;
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn idle(&self) {
        tokio::time::timeout(LIMIT, self.backfiller.idle()).await.expect("not idle in time").unwrap();
    }

    /// Asserts that the consumer holds exactly what the world does, that every job is complete, and I9.
    pub(crate) async fn assert_truth(&self) {
        self.assert_truth_after_restart().await;
        self.assert_conserved().await;
    }

    /// The same without I9, whose counters begin anew with a process.
    pub(crate) async fn assert_truth_after_restart(&self) {
        assert_eq!(*self.folder.faults.lock().unwrap(), Vec::<String>::new());
        let mut records = 0;
        for did in self.world.dids() {
            let truth = self.world.truth(&did).unwrap();
            let held = self.folder.repo(&did).records;
            let expected: BTreeMap<String, Link> = truth.records.iter().map(|(path, (cid, _))| (path.as_str().to_owned(), *cid)).collect();
            let job = self.backfiller.job(&did).await.unwrap().unwrap();
            assert_eq!(held, expected, "{did}: {job:?}");
            assert_eq!(job.rev, Some(truth.rev), "{did}: {job:?}");
            assert_eq!(job.records, truth.records.len() as u64, "{did}");
            records += expected.len();
        }
        assert!(records > 0, "an empty world proves nothing");
    }

    /// I9: every op set handed in to this process is accounted for. Only for rigs whose store began empty.
    pub(crate) async fn assert_conserved(&self) {
        let progress = self.backfiller.progress().await.unwrap();
        let (counts, totals) = (progress.counts, progress.totals);
        assert_eq!(
            counts.op_sets_received,
            counts.op_sets_buffered
                + counts.op_sets_stale
                + counts.op_sets_discarded
                + counts.op_sets_gap
                + counts.op_sets_unavailable
                + counts.op_sets_unknown,
            "{counts:?}"
        );
        assert_eq!(
            counts.op_sets_buffered,
            counts.op_sets_flushed + counts.op_sets_overtaken + totals.buffered_op_sets + totals.dropped_op_sets,
            "{counts:?} {totals:?}"
        );
    }
}

/// A fast pace: these tests are about other things.
pub(crate) fn fast() -> PaceOptions {
    PaceOptions {
        host_rate: Rate::per_second(10_000.0).unwrap(),
        host_in_flight: 8.try_into().unwrap(),
        global_rate: Rate::per_second(10_000.0).unwrap(),
        ..PaceOptions::default()
    }
}

pub(crate) async fn backfiller(network: &Network, folder: &Arc<Folder>, options: Options, store: &Arc<dyn Store>) -> Backfiller {
    backfiller_at(network.plc_url(), folder, options, store, fast()).await
}

/// A backfiller that looks identities up at this origin, and asks hosts at this pace.
pub(crate) async fn backfiller_at(
    plc_url: &str,
    folder: &Arc<Folder>,
    options: Options,
    store: &Arc<dyn Store>,
    pace: PaceOptions,
) -> Backfiller {
    let plc_url = plc_url.parse().unwrap();
    let resolver = ResolverOptions { plc_url, development: true, pace: fast(), ..ResolverOptions::default() };
    let resolver =
        CachedResolver::new(HttpResolver::new(resolver).unwrap(), CacheOptions { refresh: Duration::ZERO, ..CacheOptions::default() });
    Backfiller::builder("test", Arc::clone(store), Folding(Arc::clone(folder)))
        .options(options)
        .pace(Pace::new(pace))
        .http(HttpOptions { development: true, idle_timeout: Duration::from_secs(2), ..HttpOptions::default() })
        .resolver(Arc::new(resolver))
        .build()
        .await
        .unwrap()
}
