//! Two processes on one PostgreSQL database, of which one is killed and replaced every few seconds, while the repos are written to: in the end the consumer holds what
//! the world does; no repo was ever brought to it by two at once; and no host was ever asked faster than its pace.
//!
//! `BACKFILL_FULL=1`: for a minute. `BACKFILL_PROCESSES_SEED`: that of a failed run, which is printed.
#![allow(clippy::print_stderr, reason = "seeds and figures are printed")]

mod child;
mod consumer;
#[path = "../common/postgres.rs"]
mod database;
#[path = "../common/runner.rs"]
mod runner;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::sim::{Network, NetworkOptions, RandomWrites, Sizes, World};
use atproto_backfill::store::PostgresStore;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;

use child::{BROKEN, Order};
use consumer::Consumer;
use database::Database;
use runner::Case;

const SEED: &str = "BACKFILL_PROCESSES_SEED";
const HOSTS: usize = 24;
const REPOS: usize = 1_000;
const RECORDS: u64 = 12_000;
/// Requests per second and in flight that each host is asked at most, by all processes together.
pub(crate) const HOST_RATE: f64 = 5.0;
pub(crate) const HOST_IN_FLIGHT: u32 = 2;
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Between two ends of a process.
const LIFE: Duration = Duration::from_secs(3);
/// Every so manieth process is not killed, but held up for longer than its lease.
const HELD_UP: usize = 4;
const WRITE_EVERY: Duration = Duration::from_millis(8);
const CATCHES_UP: Duration = Duration::from_secs(90);
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOG_SHOWN: usize = 4 << 10;

fn main() -> ExitCode {
    if let Some(code) = child::obey() {
        return code;
    }
    let seed = std::env::var(SEED).map_or_else(|_| RandomState::new().build_hasher().finish(), |seed| seed.parse().expect("a seed"));
    eprintln!("{SEED}={seed}");
    let ends = if std::env::var_os("BACKFILL_FULL").is_some() { 20 } else { 5 };
    let run = move || {
        let Some(database) = Database::create("processes_that_are_killed_and_replaced_lose_nothing") else { return };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(async { Scene::new(database, seed).await.play(ends).await });
    };
    runner::run(vec![Case::new("processes_that_are_killed_and_replaced_lose_nothing", run)], 1)
}

struct Scene {
    database: Database,
    folder: tempfile::TempDir,
    world: Arc<World>,
    network: Network,
    consumer: Consumer,
    at: String,
    random: StdRng,
    started: u64,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for number in 1..=self.started {
                let log = std::fs::read(self.log(number)).unwrap_or_default();
                eprintln!("the log of process {number}:\n{}", String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN)..]));
            }
        }
    }
}

impl Scene {
    async fn new(database: Database, seed: u64) -> Self {
        let world = World::builder().seed(seed).hosts(HOSTS).repos(REPOS).sizes(Sizes::Total(RECORDS)).build().expect("a world");
        world.make_all();
        let network = Network::start(&world, NetworkOptions::default()).await.expect("a network");
        let consumer = Consumer::default();
        let at = consumer.listen().await;
        let (folder, random) = (tempfile::tempdir().expect("a folder"), StdRng::seed_from_u64(seed));
        Self { database, folder, world, network, consumer, at, random, started: 0 }
    }

    fn start(&mut self) -> Child {
        self.started += 1;
        let mut dids = self.world.dids();
        dids.shuffle(&mut self.random);
        let order = Order {
            number: self.started,
            db: self.database.url.clone(),
            plc: self.network.plc_url().to_owned(),
            relay: self.network.relay_firehose_url(),
            consumer: self.at.clone(),
            dids,
        };
        order.start(&self.log(self.started))
    }

    fn log(&self, number: u64) -> std::path::PathBuf {
        self.folder.path().join(format!("log{number}"))
    }

    async fn play(mut self, ends: usize) {
        let (world, seed) = (Arc::clone(&self.world), self.random.random());
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let writing = tokio::spawn(async move {
            let (mut writes, mut random, dids) = (RandomWrites::new(seed), StdRng::seed_from_u64(seed), world.dids());
            let mut written = 0;
            while !*stopped.borrow_and_update() {
                writes.write_to(&world, &dids[random.random_range(0..dids.len())]).expect("an account of the world");
                written += 1;
                sleep(WRITE_EVERY).await;
            }
            written
        });
        let mut pair = [self.start(), self.start()];
        for end in 0..ends {
            sleep(LIFE).await;
            let victim = &mut pair[end % 2];
            if end % HELD_UP == HELD_UP - 1 {
                hold_up(victim).await;
            } else {
                victim.kill().expect("it can be killed");
                victim.wait().expect("it has ended");
            }
            pair[end % 2] = self.start();
        }
        stop.send_replace(true);
        let written: u64 = writing.await.expect("the writer ends");
        self.catch_up().await;
        for process in pair {
            end_in_order(process).await;
        }
        self.judge(ends, written);
    }

    async fn catch_up(&self) {
        let began = Instant::now();
        loop {
            let differing = self.consumer.differing(&self.world);
            let stats = PostgresStore::stats(&self.database.url).expect("a database");
            let left =
                stats.consumers.iter().map(|(_, totals)| totals.enqueued + totals.in_progress + totals.failed + totals.buffered_op_sets);
            if differing.is_empty() && left.sum::<u64>() == 0 {
                eprintln!("caught up after {:?}", began.elapsed());
                return;
            }
            if began.elapsed() >= CATCHES_UP {
                for did in differing.iter().take(3) {
                    eprintln!("{}", self.consumer.describe(&self.world, did));
                }
                panic!("{} repos differ; the relay is at {}: {stats:?}", differing.len(), self.network.relay_head());
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    fn judge(&self, ends: usize, written: u64) {
        assert_eq!(self.consumer.differing(&self.world), [], "after all was well, more came");
        let check = PostgresStore::check(&self.database.url).expect("a database");
        assert!(check.is_sound(), "{:?}", check.faults);
        let state = self.consumer.state();
        let hosts = (0..HOSTS).map(|host| self.network.host(host));
        let busiest: Vec<u64> = hosts.clone().map(|host| host.busiest(Duration::from_secs(1))).collect();
        let in_flight = hosts.map(|host| host.in_flight_max()).max();
        eprintln!(
            "{ends} ends, {written} commits; deliveries by process: {:?}; passed on {} times; busiest seconds of hosts: {busiest:?}, in flight {in_flight:?}",
            state.deliveries, state.passed_on
        );
        assert_eq!(state.faults, Vec::<String>::new());
        // One more than in a whole second may fall into a window that is one.
        assert!(busiest.iter().all(|most| *most <= HOST_RATE as u64 + 1), "{busiest:?}");
        assert!(in_flight <= Some(u64::from(HOST_IN_FLIGHT)), "{in_flight:?}");
        assert!(state.deliveries.len() as u64 * 3 >= self.started * 2, "most processes did nothing");
        assert!(state.passed_on > 100, "hardly a repo ever passed from one process to another");
    }
}

/// Holds a process up until its lease has run out; then it has to end by itself.
async fn hold_up(process: &mut Child) {
    signal(process, "STOP");
    sleep(LEASE * 2).await;
    signal(process, "CONT");
    let status = ended(process).await;
    assert_eq!(status.code(), Some(i32::from(BROKEN)), "a process that has lost its lease goes on: {status}");
}

fn signal(process: &Child, name: &str) {
    assert!(Command::new("kill").arg(format!("-{name}")).arg(process.id().to_string()).status().expect("a signal is sent").success());
}

async fn end_in_order(mut process: Child) {
    drop(process.stdin.take());
    let status = ended(&mut process).await;
    assert_eq!(status.code(), Some(0), "{status}");
}

async fn ended(process: &mut Child) -> std::process::ExitStatus {
    let asked = Instant::now();
    loop {
        if let Some(status) = process.try_wait().expect("a child") {
            return status;
        }
        assert!(asked.elapsed() < ENDS_WITHIN, "it does not end");
        sleep(Duration::from_millis(10)).await;
    }
}
