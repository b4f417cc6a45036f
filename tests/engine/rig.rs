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
use atproto_backfill::engine::{Backfiller, Builder, FollowOptions, Options, Progress};
use atproto_backfill::fetch::{Backoff, HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::firehose::{ClientOptions, SavePolicy, Upstream};
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::job::{Account, UnavailableStatus};
use atproto_backfill::repo::Link;
use atproto_backfill::sim::{Endpoint, Network, NetworkOptions, World, WorldBuilder};
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

    /// A rig that follows these firehoses of its network; nothing needs to be handed in.
    pub(crate) async fn following(world: WorldBuilder, network: NetworkOptions, following: Following, store: Arc<dyn Store>) -> Self {
        let world = world.build().unwrap();
        println!("seed {}", world.seed());
        let network = Network::start(&world, network).await.unwrap();
        let folder = Arc::new(Folder::default());
        let backfiller = following.backfiller(&network, &folder, &store).await;
        Self { world, network, store, folder, backfiller }
    }

    /// A rig in memory that has copied its world, and follows.
    pub(crate) async fn copied(world: WorldBuilder, network: NetworkOptions, following: Following) -> Self {
        let rig = Self::following(world, network, following, Arc::new(MemoryStore::new())).await;
        rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
        rig.backfiller.start().await.unwrap();
        rig.idle().await;
        rig
    }

    /// Waits until the consumer holds these repos as they are now.
    pub(crate) async fn up_to_date(&self, dids: &[Did]) {
        let waiting = async {
            for did in dids {
                while self.backfiller.job(did).await.unwrap().unwrap().rev != Some(self.world.head(did).unwrap().0) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.expect("repos are held up");
    }

    /// Another backfiller that follows, on the same store and consumer, as after a restart.
    pub(crate) async fn restart_following(&mut self, following: Following) {
        self.backfiller = following.backfiller(&self.network, &self.folder, &self.store).await;
    }

    /// Waits until everything that the relay has told so far is settled, and nothing is left to do.
    pub(crate) async fn caught_up(&self) {
        self.settled_up_to(self.network.relay_head()).await;
        self.idle().await;
    }

    /// Waits until everything that the first upstream has told, up to this event, is settled.
    pub(crate) async fn settled_up_to(&self, head: u64) {
        self.until(|progress| {
            let settled = progress.follow.as_ref().and_then(|follow| follow.upstreams.first()?.settled);
            head == 0 || settled.is_some_and(|settled| settled.seq.get() >= head)
        })
        .await;
    }

    /// Waits until the progress is as it should be.
    pub(crate) async fn until(&self, is_so: impl Fn(&Progress) -> bool) {
        let waiting = async {
            while !is_so(&self.backfiller.progress().await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(LIMIT, waiting).await.is_err() {
            panic!("not in time: {:?}", self.backfiller.progress().await);
        }
    }

    /// How often repos were fetched from the hosts.
    pub(crate) fn checkouts(&self) -> u64 {
        (0..self.world.hosts()).map(|host| self.network.host(host).requests(Endpoint::GetRepo)).sum()
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
                + counts.op_sets_rearming
                + counts.op_sets_unknown,
            "{counts:?}"
        );
        assert_eq!(
            counts.events_received,
            counts.events_taken
                + counts.events_untracked
                + counts.events_repeated
                + counts.events_unknown
                + counts.events_malformed
                + counts.events_unreadable
                + counts.events_passed,
            "{counts:?}"
        );
        if let Some(follow) = progress.follow {
            let in_flight: usize = follow.upstreams.iter().map(|upstream| upstream.in_flight).sum();
            assert_eq!(
                counts.events_taken,
                counts.op_sets_received
                    + counts.events_known
                    + counts.events_dropped
                    + counts.events_lost
                    + counts.accounts_received
                    + counts.identities_received
                    + in_flight as u64,
                "{counts:?}"
            );
            assert_eq!(counts.events_dropped, follow.dropped.values().sum::<u64>(), "{follow:?}");
        }
        assert_eq!(
            counts.op_sets_buffered,
            counts.op_sets_flushed + counts.op_sets_overtaken + totals.buffered_op_sets + totals.dropped_op_sets,
            "{counts:?} {totals:?}"
        );
    }
}

/// Which firehoses a rig follows, and how.
#[derive(Debug, Clone)]
pub(crate) struct Following {
    pub(crate) options: Options,
    pub(crate) follow: FollowOptions,
    /// Those of these hosts instead of the relay's.
    pub(crate) hosts: Vec<usize>,
    /// The least time between two look-ups of one account.
    pub(crate) refresh: Duration,
}

impl Default for Following {
    fn default() -> Self {
        let backoff = Backoff { first: Duration::from_millis(20), last: Duration::from_millis(200) };
        let client = ClientOptions { development: true, backoff, ..ClientOptions::default() };
        let save = SavePolicy { every: Duration::from_millis(50), events: 50 };
        Self {
            options: Options::default(),
            follow: FollowOptions { client, save, ..FollowOptions::default() },
            hosts: Vec::new(),
            refresh: Duration::ZERO,
        }
    }
}

impl Following {
    async fn backfiller(self, network: &Network, folder: &Arc<Folder>, store: &Arc<dyn Store>) -> Backfiller {
        let mut builder = builder_at(network.plc_url(), folder, self.options, store, fast(), self.refresh).follow(self.follow);
        if self.hosts.is_empty() {
            builder = builder.upstream(Upstream::relay(network.relay_firehose_url()).unwrap());
        }
        for host in self.hosts {
            builder = builder.upstream(Upstream::host(network.host_firehose_url(host)).unwrap());
        }
        builder.build().await.unwrap()
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
    builder_at(plc_url, folder, options, store, pace, Duration::ZERO).build().await.unwrap()
}

fn builder_at(
    plc_url: &str,
    folder: &Arc<Folder>,
    options: Options,
    store: &Arc<dyn Store>,
    pace: PaceOptions,
    refresh: Duration,
) -> Builder {
    let plc_url = plc_url.parse().unwrap();
    let resolver = ResolverOptions { plc_url, development: true, pace: fast(), ..ResolverOptions::default() };
    let resolver = CachedResolver::new(HttpResolver::new(resolver).unwrap(), CacheOptions { refresh, ..CacheOptions::default() });
    Backfiller::builder("test", Arc::clone(store), Folding(Arc::clone(folder)))
        .options(options)
        .pace(Pace::new(pace))
        .http(HttpOptions { development: true, idle_timeout: Duration::from_secs(2), ..HttpOptions::default() })
        .resolver(Arc::new(resolver))
}
