//! `backfill run` is killed again and again, at any moment, while the network goes on; in the end nothing is missing, nothing is there that should not be, and
//! what came, came in order. (`tests/interop` does this with the reference PDS, less often.)
//!
//! `BACKFILL_FULL=1`: as often as the guarantee is given for. `BACKFILL_KILL_SEED`: that of a failed run, which is printed.
#![cfg(all(feature = "cli", unix))]
#![allow(clippy::print_stderr, reason = "seeds and figures are printed")]

#[path = "common/busy.rs"]
mod busy;
#[cfg(feature = "postgres")]
#[path = "common/postgres.rs"]
mod database;
#[path = "common/fold.rs"]
mod fold;
#[path = "common/ground.rs"]
mod ground;

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use atproto_backfill::syntax::Rev;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use busy::Busy;
use fold::Fold;
use ground::Ground;

const SEED: &str = "BACKFILL_KILL_SEED";
const FULL: &str = "BACKFILL_FULL";

/// Lives on one database. Its first ones end while it is being made.
const LIVES: usize = 25;
const OF_BIRTH: usize = 5;
const BIRTH_MS: u64 = 40;
/// When a life ends, after the program has connected.
const LIVES_MS: std::ops::RangeInclusive<u64> = 50..=600;
/// On PostgreSQL a process takes the hosts of one that died a second later.
const PAUSE_MS: u64 = 1_200;
/// Every fourth life may end before that, so long after its start; every fourth ends as soon as so many lines have come, of which the last may not be recorded yet.
const START_MS: u64 = 120;
const LINES: u64 = 40;
/// What happens in the world while the program is down, at most, and the pause between two things.
const WHILE_DOWN: u64 = 12;
const PAUSE: Duration = Duration::from_millis(4);
/// Acts of the world after everything was caught up with.
const FOLLOWED: usize = 50;
const LINES_WITHIN: Duration = Duration::from_secs(2);
const CONNECTS_WITHIN: Duration = Duration::from_secs(20);
/// Failed checkouts are tried again after half a minute or a whole one, and after twice that.
const CATCHES_UP: Duration = Duration::from_secs(150);
const STOPS_WITHIN: Duration = Duration::from_secs(10);
const SIGKILL: i32 = 9;
const LOG_SHOWN: usize = 16 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_ends_with_the_truth_on_sqlite() {
    let grounds = if is_full() { vec![LIVES; 8] } else { vec![20] };
    killed(grounds.into_iter().map(|lives| (Ground::sqlite(), lives)).collect()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_ends_with_the_truth_on_postgres() {
    let grounds = if is_full() { vec![LIVES; 2] } else { vec![10] };
    let test = "killed_at_any_moment_it_ends_with_the_truth_on_postgres";
    if database::cluster(test).is_some() {
        killed(grounds.into_iter().filter_map(|lives| Some((Ground::postgres(test)?, lives))).collect()).await;
    }
}

fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

/// Two databases at a time: a process that is being killed leaves the machine idle.
async fn killed(grounds: Vec<(Ground, usize)>) {
    let seed = std::env::var(SEED).map_or_else(|_| RandomState::new().build_hasher().finish(), |seed| seed.parse().expect("a seed"));
    eprintln!("{SEED}={seed}");
    let began = Instant::now();
    let mut counts = (0, 0);
    let mut grounds = grounds.into_iter().enumerate();
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < 2
            && let Some((number, (ground, lives))) = grounds.next()
        {
            running.spawn(async move { (lives, Scene::new(ground, seed.wrapping_add(number as u64)).await.play(lives).await) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (lives, repeated) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        counts = (counts.0 + lives, counts.1 + repeated);
    }
    eprintln!("{} kills in {:?}, after which {} lines came again", counts.0, began.elapsed(), counts.1);
}

struct Scene {
    ground: Ground,
    busy: Busy,
    fold: Fold,
    /// What the database of the last life that ended said.
    revs: HashMap<String, Option<Rev>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read(self.ground.file("log")).unwrap_or_default();
            eprintln!("the log of the program:\n{}", String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN)..]));
        }
    }
}

impl Scene {
    async fn new(ground: Ground, seed: u64) -> Self {
        let fold = Fold::new(ground.file("lines.jsonl"));
        Self { ground, busy: Busy::start(seed).await, fold, revs: HashMap::new() }
    }

    /// Returns how many lines came again.
    async fn play(mut self, lives: usize) -> u64 {
        for life in 0..lives {
            for _ in 0..self.busy.up_to(WHILE_DOWN) {
                self.busy.act();
            }
            self.live(life).await;
            self.look_into_the_database().await;
        }
        let program = self.start();
        self.busy.settle();
        self.catch_up().await;
        self.follow().await;
        terminate(program).await;
        self.look_into_the_database().await;
        let jobs = self.ground.jobs("jsonl").await;
        assert_eq!(self.busy.misplaced(&jobs), Vec::<String>::new());
        self.fold.read();
        assert_eq!(self.busy.differences(&self.fold), Vec::<String>::new(), "after all was well, more came");
        assert_eq!(self.fold.violations(), Vec::<String>::new());
        let counts = &self.fold.counts;
        eprintln!("done: {:?}\nread: {counts:?}", self.busy.acts);
        assert!(counts.live > 0 && counts.checkout > 0 && counts.deletes > 0 && counts.accounts > 0, "nothing was put to the test");
        counts.again
    }

    fn start(&self) -> Child {
        let log = File::options().append(true).create(true).open(self.ground.file("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_backfill"));
        let network = &self.busy.network;
        command.args(["run", "--development", "--plc-url", network.plc_url(), "--relay", &network.relay_firehose_url()]);
        command.args(["--db", &self.ground.db()]).arg("--jsonl").arg(self.ground.file("lines.jsonl"));
        command.args(self.busy.world.dids().iter().flat_map(|did| ["--did".to_owned(), did.to_string()]));
        command.env_clear().env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.kill_on_drop(true).spawn().expect("the program starts")
    }

    /// One life of the program, while the world goes on.
    async fn live(&mut self, life: usize) {
        let (started, connections) = (Instant::now(), self.busy.network.relay().cursors().len());
        let mut program = self.start();
        let mut end = match life {
            _ if life < OF_BIRTH => Some(started + Duration::from_millis(self.busy.up_to(BIRTH_MS))),
            _ if life.is_multiple_of(4) => Some(started + Duration::from_millis(self.busy.up_to(START_MS))),
            _ => None,
        };
        while end.is_none_or(|end| Instant::now() < end) {
            if end.is_none() && self.busy.network.relay().cursors().len() > connections {
                let pause = if self.ground.is_shared() { self.busy.up_to(PAUSE_MS) } else { 0 };
                let more = LIVES_MS.start() + pause + self.busy.up_to(LIVES_MS.end() - LIVES_MS.start());
                end = Some(Instant::now() + Duration::from_millis(more));
            }
            assert!(started.elapsed() < CONNECTS_WITHIN, "life {life} does not connect");
            self.busy.act();
            sleep(PAUSE).await;
        }
        if life % 4 == 1 && end.is_some() {
            let more = 1 + self.busy.up_to(LINES) as usize;
            self.lines(self.fold.lines() + more).await;
        }
        program.start_kill().expect("it can be killed");
        let status = program.wait().await.expect("it has ended");
        assert_eq!(status.signal(), Some(SIGKILL), "life {life} ended by itself: {status}");
    }

    /// The last life goes on, so that something happens while all repos are checked out, however slow the machine is.
    async fn follow(&mut self) {
        self.busy.add_none();
        for _ in 0..FOLLOWED {
            self.busy.act();
            sleep(PAUSE).await;
        }
        self.busy.settle();
        self.catch_up().await;
    }

    /// Waits until so many lines have come in all, or a while.
    async fn lines(&mut self, lines: usize) {
        let began = Instant::now();
        while self.fold.lines() < lines && began.elapsed() < LINES_WITHIN {
            self.busy.act();
            self.fold.read();
            sleep(PAUSE / 8).await;
        }
    }

    /// What a dead process has left is sound, and no rev is lower than the process before left it.
    async fn look_into_the_database(&mut self) {
        self.fold.read();
        let Some(check) = self.ground.check() else { return };
        assert!(check.is_sound(), "{:?}", check.faults);
        let jobs = self.ground.jobs("jsonl").await;
        for job in &jobs {
            let before = self.revs.insert(job.did.to_string(), job.rev).flatten();
            assert!(job.rev >= before || !job.account.is_active(), "{} was at {before:?}: {job:?}", job.did);
        }
        self.fold.restarted(jobs.iter().filter_map(|job| Some((job.did.to_string(), job.rev?.to_string()))).collect());
    }

    async fn catch_up(&mut self) {
        let began = Instant::now();
        loop {
            self.fold.read();
            let differences = self.busy.differences(&self.fold);
            if differences.is_empty() && self.ground.is_at_rest() {
                break;
            }
            assert!(began.elapsed() < CATCHES_UP, "not at rest after {CATCHES_UP:?}: {differences:#?}");
            sleep(Duration::from_millis(100)).await;
        }
        eprintln!("caught up after {:?}", began.elapsed());
    }
}

/// Tells a program to end, which it does in order and in time.
async fn terminate(mut program: Child) {
    let id = program.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.expect("a signal is sent").success());
    let status = timeout(STOPS_WITHIN, program.wait()).await.expect("it ends in time").expect("it has ended");
    assert_eq!(status.code(), Some(0), "{status}");
}
