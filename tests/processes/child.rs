//! One of the processes: this program again, told by its environment what to do.

use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::{Backfiller, FollowOptions, Options};
use atproto_backfill::fetch::{Backoff, HttpOptions, Pace, PaceOptions, Rate};
use atproto_backfill::firehose::{ClientOptions, SavePolicy, Upstream};
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::store::{PostgresOptions, PostgresStore};
use atproto_backfill::syntax::Did;
use serde_json::{Value, json};

use crate::consumer::Told;
use crate::{HOST_IN_FLIGHT, HOST_RATE, LEASE};

/// What to do, as JSON.
const ORDER: &str = "BACKFILL_PROCESSES_ORDER";
/// How a process ends whose store has become unusable to it.
pub(crate) const BROKEN: u8 = 3;
/// Repos that are put in at once, and the pause between: others are at work meanwhile.
const PAGE: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// What a process has to know.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) db: String,
    pub(crate) plc: String,
    pub(crate) relay: String,
    pub(crate) consumer: String,
    pub(crate) dids: Vec<Did>,
}

impl Order {
    /// Starts the process. It ends in order once its stdin is closed.
    pub(crate) fn start(&self, log: &std::path::Path) -> Child {
        let Self { number, db, plc, relay, consumer, dids } = self;
        let dids: Vec<&str> = dids.iter().map(Did::as_str).collect();
        let order = json!({"number": number, "db": db, "plc": plc, "relay": relay, "consumer": consumer, "dids": dids});
        let log = std::fs::File::options().append(true).create(true).open(log).expect("a log");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(ORDER, order.to_string()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        command.spawn().expect("it starts")
    }

    fn read() -> Option<Self> {
        let order: Value = serde_json::from_str(&std::env::var(ORDER).ok()?).expect("an order");
        let text = |name: &str| order[name].as_str().expect("text").to_owned();
        let dids =
            order["dids"].as_array().expect("DIDs").iter().map(|did| Did::new(did.as_str().expect("text")).expect("a DID")).collect();
        let number = order["number"].as_u64().expect("a number");
        Some(Self { number, db: text("db"), plc: text("plc"), relay: text("relay"), consumer: text("consumer"), dids })
    }
}

/// Does what the environment says. None: it says nothing.
pub(crate) fn obey() -> Option<ExitCode> {
    let order = Order::read()?;
    let filter = "warn,atproto_backfill::engine::lease=info,atproto_backfill::engine::follow=info";
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let code = runtime.block_on(live(order));
    // A thread waits for stdin, whatever comes.
    runtime.shutdown_background();
    Some(code)
}

async fn live(order: Order) -> ExitCode {
    let options = PostgresOptions { lease: LEASE, ..PostgresOptions::default() };
    let store = PostgresStore::open_with(&order.db, options).expect("the database opens");
    let backfiller = backfiller(&order, Arc::new(store)).await;
    let began = backfiller.start().await;
    if backfiller.is_broken() {
        return ExitCode::from(BROKEN);
    }
    began.expect("it starts");
    let work = async {
        for page in order.dids.chunks(PAGE) {
            if backfiller.enqueue(page).await.is_err() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        std::future::pending::<()>().await
    };
    let broken = async {
        while !backfiller.is_broken() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let code = tokio::select! {
        () = told_to_end() => ExitCode::SUCCESS,
        () = broken => ExitCode::from(BROKEN),
        () = work => ExitCode::FAILURE,
    };
    if let Err(error) = backfiller.stop().await {
        tracing::error!(%error, "it does not stop");
        return ExitCode::FAILURE;
    }
    code
}

/// Waits until stdin is closed.
async fn told_to_end() {
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.expect("a thread").expect("stdin");
}

async fn backfiller(order: &Order, store: Arc<PostgresStore>) -> Backfiller {
    let fast = Rate::per_second(10_000.0).expect("a rate");
    let directory = PaceOptions { host_rate: fast, global_rate: fast, ..PaceOptions::default() };
    let pace = PaceOptions {
        host_rate: Rate::per_second(HOST_RATE).expect("a rate"),
        host_in_flight: HOST_IN_FLIGHT.try_into().expect("more than none"),
        global_rate: fast,
        ..PaceOptions::default()
    };
    let plc_url = order.plc.parse().expect("a URL");
    let resolver = HttpResolver::new(ResolverOptions { plc_url, development: true, pace: directory, ..ResolverOptions::default() });
    let resolver = CachedResolver::new(resolver.expect("a client"), CacheOptions { refresh: Duration::ZERO, ..CacheOptions::default() });
    let backoff = Backoff { first: Duration::from_millis(20), last: Duration::from_millis(200) };
    let client = ClientOptions { development: true, backoff, ..ClientOptions::default() };
    let save = SavePolicy { every: Duration::from_millis(50), events: 50 };
    Backfiller::builder("processes", store, Told { number: order.number, at: order.consumer.clone() })
        .options(Options { delivery_records: 16.try_into().expect("16"), stop_grace: Duration::from_secs(7), ..Options::default() })
        .pace(Pace::new(pace))
        .http(HttpOptions { development: true, ..HttpOptions::default() })
        .resolver(Arc::new(resolver))
        .follow(FollowOptions { client, save, ..FollowOptions::default() })
        .upstream(Upstream::relay(&order.relay).expect("a URL"))
        .build()
        .await
        .expect("a backfiller")
}
