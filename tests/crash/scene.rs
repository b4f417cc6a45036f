//! One place: lives that end there, one after the other, while the world goes on, and a last one that goes on to the end.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::sim::{Fault, Gate, Position, Rule};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::busy::Busy;
use crate::child::{self, Place};
use crate::fold::Fold;
use crate::ground::Ground;
use crate::life::{self, CONSUMER, Setup};
use crate::trap::{Stop, Trap};

/// What happens while no program runs, at most, and the pause between two things while one does.
const WHILE_DOWN: u64 = 30;
const PAUSE: Duration = Duration::from_millis(5);
/// How long a place may take to be come to.
const COMES_WITHIN: Duration = Duration::from_secs(40);
const CATCHES_UP: Duration = Duration::from_secs(60);
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const LOG_SHOWN: usize = 16 << 10;

pub(crate) struct Scene {
    ground: Ground,
    busy: Busy,
    fold: Fold,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read(self.ground.file("log")).unwrap_or_default();
            eprintln!("the log of the program:\n{}", String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN)..]));
        }
    }
}

/// A life under way.
enum Life {
    Process(Child),
    /// A runtime of its own, and what tells it that all is over.
    Here {
        runtime: tokio::runtime::Runtime,
        ended: tokio::task::JoinHandle<()>,
        over: oneshot::Sender<()>,
        stopped: Arc<Notify>,
    },
}

impl Scene {
    pub(crate) async fn new(ground: Ground, seed: u64) -> Self {
        let fold = Fold::new(ground.file("lines.jsonl"));
        Self { ground, busy: Busy::start(seed).await, fold }
    }

    /// Stops a life at the place as often as `times` is long, each time when it has been come to so often.
    pub(crate) async fn play(mut self, place: &str, times: &[u64]) {
        // It begins anew once; here it has to when a life is to be stopped by it.
        self.busy.may_restart = !place.ends_with("restart_upstream");
        for &times in times {
            for _ in 0..self.busy.up_to(WHILE_DOWN) {
                self.busy.act();
            }
            if place.ends_with("restart_upstream") && self.busy.has_one_sequence() {
                // What begins anew is noticed by whoever has a cursor.
                self.stop_at("after:save_cursor", 2).await;
                self.busy.restart_sequence();
            }
            if place == "body" {
                self.stop_in_a_body(times).await;
            } else {
                self.stop_at(place, times).await;
            }
            self.look_into_the_store().await;
        }
        let life = self.start("", 0, true);
        self.busy.settle();
        self.catch_up().await;
        self.end(life).await;
        self.look_into_the_store().await;
        let jobs = self.ground.jobs(CONSUMER).await;
        assert_eq!(self.busy.misplaced(&jobs), Vec::<String>::new());
        self.fold.read();
        assert_eq!(self.busy.differences(&self.fold), Vec::<String>::new(), "after all was well, more came");
        assert_eq!(self.fold.violations(), Vec::<String>::new());
        assert!(self.fold.counts.checkout > 0, "nothing was put to the test");
    }

    fn start(&self, place: &str, times: u64, last: bool) -> Life {
        let network = &self.busy.network;
        let (plc, relay) = (network.plc_url().to_owned(), network.relay_firehose_url());
        let setup = Setup { lines: self.ground.file("lines.jsonl"), plc, relay, dids: self.busy.world.dids(), last };
        let Some(store) = self.ground.in_memory() else {
            let place = Place { name: place, times, file: self.ground.file("stopped") };
            return Life::Process(child::start(&self.ground.db(), &place, Some(&setup), &self.ground.file("log")));
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let stopped = Arc::new(Notify::new());
        let trap = Trap::new(place, times, Stop::Here(Arc::clone(&stopped)));
        let (over, is_over) = oneshot::channel::<()>();
        let ended = runtime.spawn(life::live(setup, store, trap, async { _ = is_over.await }));
        Life::Here { runtime, ended, over, stopped }
    }

    /// One life that ends at a place of its own program.
    async fn stop_at(&mut self, place: &str, times: u64) {
        let began = Instant::now();
        let mut life = self.start(place, times, false);
        loop {
            assert!(began.elapsed() < COMES_WITHIN, "{place} is not come to {times} times");
            self.busy.act();
            match place.split_once(':') {
                Some((_, "gap")) => self.busy.tell_wrongly(),
                Some((_, "account" | "told")) => self.busy.come_or_go(),
                _ => {}
            }
            match &mut life {
                Life::Process(child) => {
                    if let Some(status) = child.try_wait().expect("a child") {
                        assert_eq!(status.signal(), Some(SIGABRT), "it ended by itself: {status}");
                        break;
                    }
                    sleep(PAUSE).await;
                }
                Life::Here { stopped, ended, .. } => {
                    assert!(!ended.is_finished(), "it ended by itself");
                    if tokio::time::timeout(PAUSE, stopped.notified()).await.is_ok() {
                        break;
                    }
                }
            }
        }
        match life {
            Life::Process(_) => {
                let file = self.ground.file("stopped");
                assert_eq!(std::fs::read_to_string(&file).expect("it says where it stopped"), place);
                std::fs::remove_file(file).expect("it is there");
            }
            Life::Here { runtime, .. } => runtime.shutdown_background(),
        }
    }

    /// One life that ends when half of a repo has come.
    async fn stop_in_a_body(&mut self, times: u64) {
        let gate = Gate::new();
        let hold = Rule::new(Fault::Hold(Position::Block(9), gate.clone())).after(times - 1);
        let rule = self.busy.network.faults().inject(hold);
        let life = self.start("", 0, false);
        let began = Instant::now();
        while tokio::time::timeout(PAUSE, gate.reached(1)).await.is_err() {
            assert!(began.elapsed() < COMES_WITHIN, "no body is fetched");
            self.busy.act();
        }
        match life {
            Life::Process(mut child) => {
                child.kill().expect("it can be killed");
                assert_eq!(child.wait().expect("it has ended").signal(), Some(SIGKILL));
            }
            Life::Here { runtime, .. } => runtime.shutdown_background(),
        }
        self.busy.network.faults().heal(rule);
        gate.open();
    }

    /// What was left is sound.
    async fn look_into_the_store(&mut self) {
        self.fold.read();
        if self.ground.in_memory().is_none() {
            let Some(check) = self.ground.check() else { return };
            assert!(check.is_sound(), "{:?}", check.faults);
        }
        let jobs = self.ground.jobs(CONSUMER).await;
        self.fold.restarted(jobs.into_iter().filter_map(|job| Some((job.did.to_string(), job.rev?.to_string()))).collect());
    }

    async fn catch_up(&mut self) {
        let began = Instant::now();
        loop {
            self.fold.read();
            let differences = self.busy.differences(&self.fold);
            if differences.is_empty() {
                return;
            }
            assert!(began.elapsed() < CATCHES_UP, "after {CATCHES_UP:?}: {differences:#?}");
            sleep(PAUSE * 10).await;
        }
    }

    /// Ends a life in order.
    async fn end(&self, life: Life) {
        match life {
            Life::Process(mut child) => {
                drop(child.stdin.take());
                let began = Instant::now();
                let status = loop {
                    if let Some(status) = child.try_wait().expect("a child") {
                        break status;
                    }
                    assert!(began.elapsed() < CATCHES_UP, "it does not end");
                    sleep(PAUSE).await;
                };
                assert!(status.success(), "{status}");
            }
            Life::Here { runtime, ended, over, .. } => {
                over.send(()).expect("it lives");
                tokio::time::timeout(CATCHES_UP, ended).await.expect("it ends").expect("it ends in order");
                runtime.shutdown_background();
            }
        }
    }
}
