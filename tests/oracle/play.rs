//! Plays a schedule: a world, its network, and one program after the other over one store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atproto_backfill::engine::{Backfiller, FollowOptions, Options};
use atproto_backfill::fetch::Backoff;
use atproto_backfill::firehose::{ClientOptions, SavePolicy};
use atproto_backfill::job::Job;
use atproto_backfill::sim::{
    AccountStatus, Change, Endpoint, EventFault, Fault, FirehoseOptions, HostOptions, Network, NetworkOptions, RandomWrites, Rule, RuleId,
    Sizes, Snapshot, WallClock, World,
};
use atproto_backfill::store::Store;
use atproto_backfill::syntax::Did;
use tokio::sync::Notify;

use crate::consumer::{Consumer, Taking};
use crate::judge;
use crate::points::POINTS;
use crate::step::{self, Step};
use crate::store::Trapped;
use crate::trap::{Stop, Trap};

const NAME: &str = "oracle";
const HOSTS: usize = 2;
const REPOS: usize = 6;
const RECORDS: u64 = 60;
const ADDED: usize = 3;
/// Where the sequence of an upstream begins, and how many of its events it retains: fewer than a schedule makes.
const UPSTREAM: FirehoseOptions = FirehoseOptions { first_seq: 1_000_000, window: 120, queue: 2_048, inclusive: false, silent: false };
/// How often it is looked whether a program has come to a place, before it dies elsewhere.
const COMES_WITHIN: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How long one verb of the program may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// In the end: how long the program may take by the clock on the wall, at least and at most, and by its own.
const CONVERGES_WITHIN: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(20));
const PASSES: Duration = Duration::from_secs(6 * 3600);

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// How often each fault struck that was injected, by name.
    pub(crate) faults: BTreeMap<String, u64>,
    /// How often a program died at each place.
    pub(crate) crashes: BTreeMap<&'static str, u64>,
    pub(crate) programs: u64,
    /// How many repos were put back to a backup.
    pub(crate) restored: u64,
    /// How much time passed in the end, by the program's clock, that did not pass.
    pub(crate) passed: Duration,
}

struct Player {
    world: Arc<World>,
    network: Network,
    store: Arc<dyn Store>,
    consumer: Arc<Consumer>,
    backfiller: Backfiller,
    trap: Trap,
    stopped: Arc<Notify>,
    /// The clock of the machine.
    clock: WallClock,
    /// Whether the firehoses of the hosts are followed, and not the relay's.
    by_host: bool,
    /// Whether something was hidden that only an audit finds.
    hidden: bool,
    /// Repos of which something wrong was said that only their next commit shows.
    belied: BTreeSet<Did>,
    /// Repos as their hosts could restore them, under the key that they still have.
    backups: BTreeMap<Did, Snapshot>,
    /// Those that were restored.
    restored: BTreeSet<Did>,
    added: usize,
    directory: Option<RuleId>,
    rules: Vec<(String, RuleId)>,
    figures: Figures,
}

/// Plays it to the end.
///
/// # Errors
/// What the consumer or the store then hold that they should not, or were told.
pub(crate) async fn play(seed: u64, steps: &[Step], store: Arc<dyn Store>) -> Result<Figures, String> {
    let world =
        World::builder().seed(seed).hosts(HOSTS).repos(REPOS).sizes(Sizes::Each(RECORDS)).build().map_err(|error| error.to_string())?;
    let hosts = HostOptions { firehose: UPSTREAM, ..HostOptions::default() };
    let options = NetworkOptions { relay: UPSTREAM, hosts, ..NetworkOptions::default() };
    let network = Network::start(&world, options).await.map_err(|error| error.to_string())?;
    let consumer = Arc::<Consumer>::default();
    let (clock, by_host) = (WallClock::new(), seed % 3 == 1);
    let (backfiller, trap, stopped) = program(&network, &store, &consumer, &clock, by_host).await;
    let figures = Figures { programs: 1, ..Figures::default() };
    let mut player = Player {
        world,
        network,
        store,
        consumer,
        backfiller,
        trap,
        stopped,
        clock,
        by_host,
        hidden: false,
        belied: BTreeSet::new(),
        backups: BTreeMap::new(),
        restored: BTreeSet::new(),
        added: 0,
        directory: None,
        rules: Vec::new(),
        figures,
    };
    player.begin().await?;
    for step in steps {
        player.take(step).await.map_err(|error| format!("at {step:?}: {error}"))?;
    }
    player.end().await
}

/// A program over the store, and what it dies of.
async fn program(
    network: &Network,
    store: &Arc<dyn Store>,
    consumer: &Arc<Consumer>,
    clock: &WallClock,
    by_host: bool,
) -> (Backfiller, Trap, Arc<Notify>) {
    let stopped = Arc::new(Notify::new());
    let trap = Trap::new("", 0, Stop::Here(Arc::clone(&stopped)));
    let options = Options {
        buffer_bytes: 20_000,
        delivery_records: 16.try_into().expect("16"),
        handler_attempts: 2.try_into().expect("2"),
        stop_grace: Duration::from_secs(15),
        ..Options::default()
    };
    let (store, taking) =
        (Arc::new(Trapped { store: Arc::clone(store), trap: trap.clone() }), Taking { consumer: Arc::clone(consumer), trap: trap.clone() });
    let client = ClientOptions {
        development: true,
        backoff: Backoff { first: Duration::from_millis(20), last: Duration::from_millis(200) },
        ping_interval: Duration::from_secs(1),
        silence: Duration::from_secs(3),
        ..ClientOptions::default()
    };
    let save = SavePolicy { every: Duration::from_millis(50), events: 50 };
    let clock = clock.clone();
    let builder = network.backfiller(NAME, store, taking).expect("a client").options(options).time_of_day(move || clock.now());
    let builder = builder.follow(FollowOptions { client, save, ..FollowOptions::default() });
    let builder = if by_host {
        (0..HOSTS).fold(builder, |builder, host| builder.upstream(network.host_upstream(host)))
    } else {
        builder.upstream(network.relay_upstream())
    };
    (builder.build().await.expect("a backfiller"), trap, stopped)
}

/// Time passes in a moment: every timer of that time is due.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn timely<T, E: std::fmt::Display>(act: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWERS_WITHIN, act).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err("the program does not answer".to_owned()),
    }
}

impl Player {
    async fn begin(&self) -> Result<(), String> {
        timely(self.backfiller.start()).await?;
        timely(self.backfiller.enqueue(&self.world.dids())).await.map(drop)
    }

    fn did(&self, repo: usize) -> Did {
        let dids = self.world.dids();
        dids[repo % dids.len()].clone()
    }

    async fn take(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Write { repo, commits, seed } => self.write(&self.did(repo), commits, seed),
            Step::DeleteMany { repo, each } => self.delete_many(&self.did(repo), each),
            Step::Status { repo, status } => self.set_status(&self.did(repo), step::status(status)),
            Step::Handle { repo } => self.world.set_handle(&self.did(repo), "other.test"),
            Step::RotateKey { repo } => {
                self.backups.remove(&self.did(repo));
                _ = self.world.rotate_key(&self.did(repo));
            }
            Step::Migrate { repo, host } => {
                self.backups.remove(&self.did(repo));
                _ = self.world.migrate(&self.did(repo), host);
            }
            Step::Remember { repo } => {
                let did = self.did(repo);
                self.world.remember(&did);
                self.backups.extend(self.world.snapshot(&did).map(|backup| (did, backup)));
            }
            Step::Restore { repo } => self.restore(&self.did(repo)),
            Step::AddAccount { host } => return self.add(host).await,
            Step::Answer { .. } | Step::Event { .. } | Step::Stream { .. } | Step::RestartSequence => self.inject(step),
            Step::RelayDown => self.network.shut_relay().await,
            Step::RelayUp => self.network.open_relay().await,
            Step::HostDown { host } => self.network.shut_host(host % HOSTS).await,
            Step::HostUp { host } => self.network.open_host(host % HOSTS).await,
            Step::DirectoryDown => self.directory_down(),
            Step::DirectoryUp => self.directory_up(),
            Step::HandlerFails { times, panics } => {
                self.consumer.panicking.store(panics, Ordering::SeqCst);
                self.consumer.failing.store(times, Ordering::SeqCst);
            }
            Step::Purge { repo } => return self.purge(&self.did(repo)).await,
            Step::Want { repo } => self.want(self.did(repo)),
            Step::Audit => return timely(self.backfiller.audit()).await,
            Step::Restart { commits } => {
                // What is still with a consumer that fails is let go.
                let _ = timely(self.backfiller.stop()).await;
                return self.restart(commits).await;
            }
            Step::Crash { place, times, commits } => {
                self.crash(POINTS[place % POINTS.len()].0, times).await;
                return self.restart(commits).await;
            }
            Step::Clock { hours } => {
                let by = Duration::from_secs(3600 * u64::from(hours.unsigned_abs()));
                if hours < 0 { self.clock.set_behind(by) } else { self.clock.set_ahead(by) }
            }
            Step::Run { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
            Step::Pass { seconds } => pass(Duration::from_secs(seconds)).await,
        }
        Ok(())
    }

    fn want(&self, did: Did) {
        let backfiller = self.backfiller.clone();
        // Nobody waits for the end of it.
        tokio::spawn(async move { backfiller.backfill_repo(&did).await });
    }

    fn restore(&mut self, did: &Did) {
        let Some(backup) = self.backups.get(did).filter(|_| self.is_active(did)) else { return };
        // From now on its revs may go back.
        self.consumer.restored(did);
        self.world.restore(did, backup);
        self.restored.insert(did.clone());
        self.figures.restored += 1;
        self.want(did.clone());
    }

    fn is_active(&self, did: &Did) -> bool {
        self.world.status(did) == Some(AccountStatus::Active)
    }

    fn write(&self, did: &Did, commits: u8, seed: u64) {
        let mut writes = RandomWrites::new(seed);
        for _ in 0..commits {
            if self.is_active(did) {
                writes.write_to(&self.world, did);
            }
        }
    }

    fn delete_many(&self, did: &Did, each: usize) {
        let Some(truth) = self.world.truth(did).filter(|_| self.is_active(did)) else { return };
        let gone = truth.records.into_keys().step_by(each.max(1)).take(20).map(Change::Delete);
        // It deletes what is there.
        let _ = self.world.write(did, gone.collect());
    }

    fn set_status(&mut self, did: &Did, now: AccountStatus) {
        if now == AccountStatus::Deleted {
            self.backups.remove(did);
        }
        if self.world.status(did) != Some(now) {
            self.world.set_status(did, now);
        }
    }

    async fn add(&mut self, host: usize) -> Result<(), String> {
        if self.added == ADDED {
            return Ok(());
        }
        self.added += 1;
        let did = self.world.add_account(host);
        timely(self.backfiller.enqueue(&[did])).await.map(drop)
    }

    fn inject(&mut self, step: &Step) {
        let (name, rule) = match *step {
            Step::Answer { repo, way, at } => {
                let fault = step::answer(way, at, self.did(repo + 1));
                if matches!(fault, Fault::Account(_) | Fault::DidNotFound | Fault::DidTombstoned | Fault::StaleReplica) {
                    self.belied.insert(self.did(repo));
                }
                (format!("answer {:02}", way % step::ANSWERS), Rule::new(fault).did(&self.did(repo)))
            }
            Step::Event { repo, way } => {
                let fault = step::event(way, self.did(repo + 1));
                if !step::GAPS.contains(&(way % step::EVENTS)) {
                    self.belied.insert(self.did(repo));
                }
                (format!("event {:02}", way % step::EVENTS), Rule::new(fault).did(&self.did(repo)))
            }
            Step::Stream { way } => {
                let (fault, hides) = step::stream(way);
                self.hidden |= hides;
                (format!("stream {:02}", way % step::STREAMS), Rule::new(fault))
            }
            _ => ("restarted sequence".to_owned(), Rule::new(EventFault::Restart)),
        };
        // Those of a firehose strike the one that is followed.
        let rule = match *step {
            Step::Event { repo, .. } if self.by_host => rule.host(self.world.host_of(&self.did(repo)).unwrap_or(0)),
            Step::Stream { .. } | Step::RestartSequence if self.by_host => rule.host(0),
            _ => rule,
        };
        self.rules.push((name, self.network.faults().inject(rule.times(1))));
    }

    fn directory_down(&mut self) {
        let rule = Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::DidDocument);
        self.directory.get_or_insert_with(|| self.network.faults().inject(rule));
    }

    fn directory_up(&mut self) {
        if let Some(rule) = self.directory.take() {
            self.rules.push(("directory".to_owned(), rule));
            self.network.faults().heal(rule);
        }
    }

    /// What the consumer was given of a purged repo is its own to forget.
    async fn purge(&self, did: &Did) -> Result<(), String> {
        timely(self.backfiller.purge(did)).await?;
        self.consumer.forget(did);
        timely(self.backfiller.enqueue(std::slice::from_ref(did))).await.map(drop)
    }

    /// The program dies at the place, or wherever it is a moment later.
    async fn crash(&mut self, place: &'static str, times: u64) {
        self.trap.set(place, times);
        let (backfiller, did) = (self.backfiller.clone(), self.did(times as usize));
        tokio::spawn(async move { backfiller.backfill_repo(&did).await });
        // Something has to go on, or few places are come to.
        let came = async {
            for turn in 0..COMES_WITHIN {
                if turn % 4 == 0 {
                    self.write(&self.did(turn), 1, self.figures.programs << 32 | turn as u64);
                }
                if tokio::time::timeout(LOOK_EVERY, self.stopped.notified()).await.is_ok() {
                    return true;
                }
            }
            false
        };
        let came = came.await;
        self.trap.spring();
        *self.figures.crashes.entry(if came { place } else { "elsewhere" }).or_default() += 1;
        let dead = self.backfiller.clone();
        // Its connections end. Whatever is with the store or the consumer stays there for ever.
        tokio::spawn(async move { dead.stop().await });
    }

    /// Another program, after so many commits.
    async fn restart(&mut self, commits: u8) -> Result<(), String> {
        (0..commits).for_each(|commit| self.write(&self.did(commit.into()), 1, self.figures.programs * 1_000 + u64::from(commit)));
        // Others would notice that a process has died; this one has the store still.
        if let Some(fleet) = self.store.fleet() {
            timely(fleet.leave()).await?;
        }
        self.consumer.restarted(self.jobs().await?.into_iter().map(|job| (job.did, job.rev)));
        (self.backfiller, self.trap, self.stopped) = program(&self.network, &self.store, &self.consumer, &self.clock, self.by_host).await;
        self.figures.programs += 1;
        self.begin().await
    }

    async fn jobs(&self) -> Result<Vec<Job>, String> {
        let consumer = timely(self.store.consumer(NAME)).await?;
        timely(self.store.jobs(consumer, None, 1_000)).await
    }

    /// Everything is well again. Repos of which something wrong was said get one more commit; of the others everything is known, or will be found.
    async fn heal(&mut self) -> Result<(), String> {
        self.directory_up();
        self.clock.set_ahead(Duration::ZERO);
        self.rules.iter().for_each(|(_, rule)| self.network.faults().heal(*rule));
        self.consumer.failing.store(0, Ordering::SeqCst);
        self.network.open_relay().await;
        for host in 0..HOSTS {
            self.network.open_host(host).await;
        }
        self.belied.iter().for_each(|did| self.write(did, 1, u64::MAX));
        // No event tells that a repo was restored, and an audit takes its host for one that lags.
        self.restored.iter().for_each(|did| self.want(did.clone()));
        if self.hidden { timely(self.backfiller.audit()).await } else { Ok(()) }
    }

    async fn end(mut self) -> Result<Figures, String> {
        self.heal().await?;
        let began = Instant::now();
        let (mut step, mut patience) = (Duration::from_secs(5), Duration::from_millis(100));
        loop {
            let rest = tokio::time::timeout(patience, self.backfiller.idle()).await;
            let wrong = judge::differences(&self.world, &self.consumer, &self.jobs().await?, true);
            if wrong.is_empty() && matches!(rest, Ok(Ok(_))) {
                break;
            }
            if began.elapsed() > CONVERGES_WITHIN.1 || self.figures.passed > PASSES && began.elapsed() > CONVERGES_WITHIN.0 {
                let at = format!("{:?} and {:?} that did not pass", began.elapsed(), self.figures.passed);
                return Err(format!("never at rest, after {at}: {wrong:#?} {:?}", self.backfiller.progress().await));
            }
            if rest.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            pass(step).await;
            self.figures.passed += step;
            step = (step * 2).min(Duration::from_secs(900));
            // With every connection lost before anything can be done over it, nothing would ever end.
            patience = (patience * 2).min(Duration::from_millis(800));
        }
        let progress = timely(self.backfiller.progress()).await?;
        timely(self.backfiller.stop()).await?;
        let wrong = judge::differences(&self.world, &self.consumer, &self.jobs().await?, false);
        let unaccounted = judge::unaccounted(&progress, self.figures.programs == 1);
        let wrong = [self.consumer.faults(), wrong, unaccounted].concat();
        for (name, rule) in &self.rules {
            *self.figures.faults.entry(name.clone()).or_default() += self.network.faults().fired(*rule);
        }
        if wrong.is_empty() { Ok(self.figures) } else { Err(format!("{wrong:#?}")) }
    }
}
