//! What the tests of the engine share.
//!
//! ```text
//!   World (truth) ── Network: PLC + PDS hosts on loopback ──HTTP──► Backfiller ──► FaultyHandler ──► ConsumerCopy
//!     └── Writer / write() ── op sets, handed in ─────────────────────┘
//! ```
//! Only the network's far end is simulated: the HTTP client, the pace, the codec and the store are the real ones.

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::{Backfiller, FollowOptions, Options, Progress};
use atproto_backfill::fetch::{Backoff, HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::firehose::{ClientOptions, SavePolicy};
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, Resolver, ResolverOptions};
use atproto_backfill::sim::{ConsumerCopy, Endpoint, FaultyHandler, Network, NetworkOptions, WallClock, World, WorldBuilder};
use atproto_backfill::store::{MemoryStore, Store};
use atproto_backfill::syntax::Did;

/// The longest that any wait of a test may take. A test that runs into it has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The consumer of a rig: what it holds, behind what makes it fail.
pub(crate) type Consumer = FaultyHandler<Arc<ConsumerCopy>>;

/// A world, its network, and a backfiller that has not been started.
pub(crate) struct Rig {
    pub(crate) world: Arc<World>,
    pub(crate) network: Network,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) copy: Arc<ConsumerCopy>,
    pub(crate) handler: Arc<Consumer>,
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
        let (copy, handler) = consumer();
        let backfiller = backfiller(&network, &handler, options, &store).await;
        Self { world, network, store, copy, handler, backfiller }
    }

    /// Another backfiller on the same store and consumer, as after a restart.
    pub(crate) async fn restart(&mut self, options: Options) {
        self.backfiller = backfiller(&self.network, &self.handler, options, &self.store).await;
    }

    /// A rig that follows these firehoses of its network; nothing needs to be handed in.
    pub(crate) async fn following(world: WorldBuilder, network: NetworkOptions, following: Following, store: Arc<dyn Store>) -> Self {
        let world = world.build().unwrap();
        println!("seed {}", world.seed());
        let network = Network::start(&world, network).await.unwrap();
        let (copy, handler) = consumer();
        let backfiller = following.backfiller(&network, &handler, &store).await;
        Self { world, network, store, copy, handler, backfiller }
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
        self.backfiller = following.backfiller(&self.network, &self.handler, &self.store).await;
    }

    /// Waits until everything that was told so far is settled, and nothing is left to do: repos that failed wait for their time.
    pub(crate) async fn caught_up(&self) {
        self.settled().await;
        self.idle().await;
    }

    /// Waits until everything that was told so far is settled.
    pub(crate) async fn settled(&self) {
        if tokio::time::timeout(LIMIT, self.network.settled(&self.backfiller)).await.is_err() {
            panic!("not settled in time: {:?}", self.backfiller.progress().await);
        }
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
        assert_eq!(self.copy.violations(), Vec::<String>::new());
        assert_eq!(self.copy.differences(&self.world), Vec::<String>::new());
        let mut records = 0;
        for did in self.world.dids() {
            let (truth, job) = (self.world.truth(&did).unwrap(), self.backfiller.job(&did).await.unwrap().unwrap());
            assert_eq!((job.rev, job.records), (Some(truth.rev), truth.records.len() as u64), "{did}: {job:?}");
            records += truth.records.len();
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
    /// The clock of the machine.
    pub(crate) clock: WallClock,
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
            clock: WallClock::new(),
        }
    }
}

impl Following {
    async fn backfiller(self, network: &Network, handler: &Arc<Consumer>, store: &Arc<dyn Store>) -> Backfiller {
        let builder = network.backfiller("test", Arc::clone(store), Arc::clone(handler)).unwrap();
        let mut builder = builder
            .options(self.options)
            .follow(self.follow)
            .resolver(resolver(network.plc_url(), self.refresh))
            .time_of_day(move || self.clock.now());
        if self.hosts.is_empty() {
            builder = builder.upstream(network.relay_upstream());
        }
        for host in self.hosts {
            builder = builder.upstream(network.host_upstream(host));
        }
        builder.build().await.unwrap()
    }
}

fn consumer() -> (Arc<ConsumerCopy>, Arc<Consumer>) {
    let copy = Arc::new(ConsumerCopy::new());
    (Arc::clone(&copy), Arc::new(FaultyHandler::new(copy)))
}

/// A pace as fast as those that hosts are not asked at here, with the pauses of the usual one.
pub(crate) fn fast() -> PaceOptions {
    PaceOptions {
        host_rate: Rate::per_second(10_000.0).unwrap(),
        host_in_flight: 8.try_into().unwrap(),
        global_rate: Rate::per_second(10_000.0).unwrap(),
        ..PaceOptions::default()
    }
}

async fn backfiller(network: &Network, handler: &Arc<Consumer>, options: Options, store: &Arc<dyn Store>) -> Backfiller {
    backfiller_at(network.plc_url(), handler, options, store, fast()).await
}

/// A backfiller that looks identities up at this origin, and asks hosts at this pace.
pub(crate) async fn backfiller_at(
    plc_url: &str,
    handler: &Arc<Consumer>,
    options: Options,
    store: &Arc<dyn Store>,
    pace: PaceOptions,
) -> Backfiller {
    Backfiller::builder("test", Arc::clone(store), Arc::clone(handler))
        .options(options)
        .pace(Pace::new(pace))
        .http(HttpOptions { development: true, idle_timeout: Duration::from_secs(2), ..HttpOptions::default() })
        .resolver(resolver(plc_url, Duration::ZERO))
        .build()
        .await
        .unwrap()
}

fn resolver(plc_url: &str, refresh: Duration) -> Arc<dyn Resolver> {
    let options = ResolverOptions { plc_url: plc_url.parse().unwrap(), development: true, pace: fast(), ..ResolverOptions::default() };
    Arc::new(CachedResolver::new(HttpResolver::new(options).unwrap(), CacheOptions { refresh, ..CacheOptions::default() }))
}
