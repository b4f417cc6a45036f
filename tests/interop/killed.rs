//! The program follows the reference PDS, is killed again and again, and goes on with the same database and the same file.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use atproto_backfill::job::{Account, Job, JobState, UnavailableStatus};
use atproto_backfill::store::{SqliteStore, Store};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::fold::Fold;
use crate::network::Network;
use crate::program::Setup;
use crate::truth::{self, Records};

/// Names a seed: that of a failed test has its kills again, as far as the machine is as fast as then.
const SEED: &str = "BACKFILL_INTEROP_SEED";
const KILLS: usize = 10;
const NAMES: [&str; 9] = ["ilka", "jaro", "kelu", "lumo", "mira", "nodo", "orso", "pelu", "quan"];
const RECORDS_EACH: usize = 120;
const WRITE_EVERY_MS: u64 = 20;
/// The last moment that a life may be meant to end at, and then the last of the live changes.
const LIVES_MS: u64 = 2000;
const MORE_CHANGES: u64 = 12;
/// A started program writes live changes much sooner, but not on a machine with other work on it.
const CHANGES_WITHIN: Duration = Duration::from_secs(60);
/// An export that was torn by a commit is tried again after 5 seconds, and after twice that.
const CATCHES_UP: Duration = Duration::from_secs(90);
const LOOK_OFTEN: Duration = Duration::from_millis(1);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// When something happens to an account: while the program runs, or after it was killed and before it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Down,
    Running,
}

use When::{Down, Running};

/// What happens to accounts, by life of the program and account.
const HAPPENINGS: [(usize, When, &str, usize); 15] = [
    (1, Down, "deactivate", 6),
    (1, Running, "deactivate", 0),
    (2, Running, "handle", 1),
    (3, Down, "activate", 0),
    (3, Running, "deactivate", 2),
    (4, Running, "delete", 3),
    (5, Down, "handle", 0),
    (5, Running, "activate", 2),
    (6, Running, "activate", 6),
    (7, Down, "delete", 5),
    (7, Running, "deactivate", 0),
    (7, Running, "activate", 0),
    (8, Running, "handle", 2),
    (8, Running, "deactivate", 4),
    (9, Down, "handle", 1),
];
/// From which life on an account is listed: one that is deactivated meanwhile, and two more whose checkouts fall among the kills.
const LISTED_FROM: [(usize, usize); 3] = [(6, 3), (7, 5), (8, 7)];
const DELETED: [usize; 2] = [3, 5];
const DEACTIVATED: usize = 4;
/// Reactivated after the program knew of them.
const REACTIVATED: [usize; 2] = [0, 2];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::env::var(SEED).map_or_else(|_| RandomState::new().build_hasher().finish(), |seed| seed.parse().expect("a seed"));
        eprintln!("{SEED}={seed}");
        Self(seed)
    }

    /// From 0 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (most + 1)
    }
}

struct Scene {
    network: Network,
    dids: Vec<String>,
    setup: Setup,
    fold: Fold,
    random: Random,
    /// What the database of the last life that ended said.
    jobs: HashMap<String, Job>,
}

/// `option` names the firehose of the PDS to the program: `--pds` or `--relay`.
pub(crate) async fn killed_ten_times_it_ends_with_what_the_pds_lists(test: &str, option: &str) {
    let Some(mut network) = Network::start(test).await else { return };
    // What the firehose says is for the program alone.
    drop(network.take_events());
    let dids = network.accounts(&NAMES).await;
    for did in &dids {
        network.command(json!({"cmd": "fill", "did": did, "records": RECORDS_EACH})).await;
    }
    let host = truth::host(&network.plc, &dids[0]).await;
    let setup = Setup::new(&[option, &host, "--plc-url", &network.plc, "--development"]);
    let fold = Fold::new(setup.lines());
    let mut scene = Scene { network, dids, setup, fold, random: Random::new(), jobs: HashMap::new() };
    scene.network.command(json!({"cmd": "start", "dids": scene.dids, "intervalMs": WRITE_EVERY_MS})).await;
    for life in 0..KILLS {
        scene.happen(life, Down).await;
        scene.live(life).await;
        scene.check_the_database().await;
    }
    let program = scene.setup.start(&scene.dids);
    let written = scene.end_writing().await;
    let truth = scene.truth().await;
    scene.catch_up(&truth).await;
    program.terminate().await;
    scene.check_the_database().await;
    scene.network.stop().await;
    eprintln!("written: {written}\nread: {:?}", scene.fold.counts);
    scene.fold.read();
    assert_eq!(scene.fold.violations(), Vec::<String>::new());
    assert_eq!(differences(&scene.dids, &scene.fold, &truth), Vec::<String>::new());
    assert_jobs(&scene.dids, &scene.jobs, &truth);
    assert_the_test_tested(&scene.fold, &written);
}

/// What a repo is at the end, and the rev of its newest commit; none for one that is not to be had.
type Truth = HashMap<String, (Records, String)>;

impl Scene {
    async fn happen(&mut self, life: usize, when: When) {
        for &(_, _, cmd, account) in HAPPENINGS.iter().filter(|happening| (happening.0, happening.1) == (life, when)) {
            let mut command = json!({"cmd": cmd, "did": self.dids[account]});
            if cmd == "handle" {
                command["handle"] = format!("{}-{life}.test", NAMES[account]).into();
            }
            self.network.command(command).await;
        }
    }

    /// One life of the program. Every second one ends at any moment from its start on; the others just after one of the live changes that come after such
    /// a moment, which may then not be recorded yet, so that there also is progress however slow the machine is.
    async fn live(&mut self, life: usize) {
        let is_listed = |account: &usize| LISTED_FROM.iter().all(|&(of, from)| of != *account || from <= life);
        let listed: Vec<String> = (0..NAMES.len()).filter(is_listed).map(|account| self.dids[account].clone()).collect();
        let started = Instant::now();
        let program = self.setup.start(&listed);
        let moment = Duration::from_millis(self.random.up_to(LIVES_MS));
        tokio::join!(self.happen(life, Running), sleep(moment));
        let mut lines = self.fold.read();
        if life % 2 == 1 {
            let more = 1 + self.random.up_to(MORE_CHANGES - 1);
            lines += timeout(CHANGES_WITHIN, self.live_changes(more)).await.expect("live changes from a started program");
        }
        program.kill().await;
        lines += self.fold.read();
        eprintln!("life {life}: killed after {:?}, {lines} more lines", started.elapsed());
    }

    /// Waits for so many live changes; returns how many lines there were.
    async fn live_changes(&mut self, awaited: u64) -> usize {
        let (mut lines, before) = (0, self.fold.counts.live);
        while self.fold.counts.live < before + awaited {
            sleep(LOOK_OFTEN).await;
            lines += self.fold.read();
        }
        lines
    }

    /// What a dead process has left: no rev is lower than the process before it left it.
    async fn check_the_database(&mut self) {
        let jobs = jobs(&self.setup).await;
        for (did, before) in &self.jobs {
            let now = jobs.get(did).unwrap_or_else(|| panic!("{did} is not in the database any more"));
            // Of a deleted account nothing is held.
            let is_erased = now.account == Account::Unavailable(UnavailableStatus::Deleted) && now.rev.is_none();
            assert!(is_erased || now.rev >= before.rev, "{did}: at {:?} after {:?}", now.rev, before.rev);
        }
        self.jobs = jobs;
        self.fold.restarted(self.jobs.iter().filter_map(|(did, job)| Some((did.clone(), job.rev?.to_string()))).collect());
    }

    /// The last commit of every repo is of a record that nothing removes: whoever has it has all before it.
    async fn end_writing(&mut self) -> Value {
        let written = self.network.command(json!({"cmd": "stop"})).await;
        let value = json!({"$type": "com.example.note", "text": "the end"});
        let last = json!([{"action": "create", "collection": "com.example.note", "rkey": "the-end", "value": value}]);
        for did in living(&self.dids) {
            self.network.command(json!({"cmd": "write", "did": did, "writes": last})).await;
        }
        written
    }

    async fn truth(&self) -> Truth {
        let mut truth = Truth::new();
        for did in living(&self.dids) {
            let pds = &self.network.pds;
            truth.insert(did.clone(), (truth::list_records(pds, did).await, truth::latest_rev(pds, did).await));
        }
        truth
    }

    async fn catch_up(&mut self, truth: &Truth) {
        let began = Instant::now();
        loop {
            self.fold.read();
            let differences = differences(&self.dids, &self.fold, truth);
            if differences.is_empty() {
                break;
            }
            assert!(began.elapsed() < CATCHES_UP, "after {CATCHES_UP:?}: {differences:#?}");
            sleep(LOOK_EVERY).await;
        }
        eprintln!("caught up after {:?}", began.elapsed());
    }
}

/// Accounts that are active at the end.
fn living(dids: &[String]) -> impl Iterator<Item = &String> {
    let is_living = |account: usize| account != DEACTIVATED && !DELETED.contains(&account);
    dids.iter().enumerate().filter_map(move |(account, did)| is_living(account).then_some(did))
}

/// What the database holds of each repo.
async fn jobs(setup: &Setup) -> HashMap<String, Job> {
    let store = SqliteStore::open(setup.database()).unwrap();
    let consumer = store.consumer("jsonl").await.unwrap();
    let jobs = store.jobs(consumer, None, NAMES.len() + 1).await.unwrap();
    jobs.into_iter().map(|job| (job.did.to_string(), job)).collect()
}

/// In what the reader does not hold what the PDS has, in words.
fn differences(dids: &[String], fold: &Fold, truth: &Truth) -> Vec<String> {
    let mut differences = Vec::new();
    for (account, did) in dids.iter().enumerate() {
        let told = fold.account(did);
        let as_it_is = match account {
            _ if DELETED.contains(&account) => told == Some("deleted"),
            DEACTIVATED => told == Some("deactivated"),
            _ if REACTIVATED.contains(&account) => told == Some("active"),
            _ => told.is_none_or(|status| status == "active"),
        };
        if !as_it_is {
            differences.push(format!("{did} (account {account}) was told to be {told:?}"));
        }
        let held = fold.records(did);
        let listed = match truth.get(did) {
            Some((listed, _)) => listed,
            None if DELETED.contains(&account) => &Records::new(),
            // Its records are to be kept, as they were when the program heard of it.
            None => continue,
        };
        let differs: Vec<&String> = listed.keys().chain(held.keys()).filter(|&path| listed.get(path) != held.get(path)).collect();
        if let Some(first) = differs.first() {
            differences.push(format!("{did} (account {account}): {} differ, {first} is one of them", differs.len()));
        }
    }
    differences
}

/// The database stands where the PDS does.
fn assert_jobs(dids: &[String], jobs: &HashMap<String, Job>, truth: &Truth) {
    for (account, did) in dids.iter().enumerate() {
        let job = &jobs[did];
        let (state, rev, records) = match truth.get(did) {
            Some((listed, rev)) => (JobState::Complete, Some(rev.clone()), listed.len() as u64),
            None if account == DEACTIVATED => {
                assert_eq!(job.state, JobState::Unavailable { status: UnavailableStatus::Deactivated }, "{did}");
                continue;
            }
            None => (JobState::Unavailable { status: UnavailableStatus::Deleted }, None, 0),
        };
        assert_eq!((&job.state, job.rev.map(|rev| rev.to_string()), job.records), (&state, rev, records), "{did}: {}", job.failure);
        assert_eq!((job.buffered_op_sets, &job.untold), (0, &Vec::new()), "{did}");
    }
}

/// Everything that the test is about has happened.
fn assert_the_test_tested(fold: &Fold, written: &Value) {
    let counts = &fold.counts;
    assert!(counts.live >= KILLS as u64 / 2 && counts.deletes > 0 && counts.accounts > 0, "{counts:?}");
    assert!(counts.checkout >= (RECORDS_EACH * NAMES.len() / 2) as u64, "{counts:?}");
    for change in ["create", "update", "delete"] {
        assert!(written[change].as_u64().unwrap() > 0, "{written}");
    }
}
