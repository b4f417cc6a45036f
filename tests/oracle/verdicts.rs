//! Which schedules are played over what, and what is said of it.

use std::fmt;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atproto_backfill::store::{MemoryStore, Store};

use crate::broken::{Breach, Broken};
use crate::generate::schedule;
use crate::ground::{self, Ground};
use crate::play::{Figures, play};
use crate::runner::Case;
use crate::shrink::shrink;
use crate::step::{ANSWERS, EVENTS, STREAMS, Step};

/// How long a failed schedule is made smaller.
const SHRINKS_WITHIN: Duration = Duration::from_secs(60);
/// Seeds that are tried with a store that breaks a promise, at most.
const FINDS_WITHIN: Range<u64> = 5_000..5_150;
const FULL: &str = "BACKFILL_FULL";

/// What a schedule is played over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Memory,
    Sqlite,
    Postgres,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        })
    }
}

impl Over {
    fn parse(name: &str) -> Option<Self> {
        [Self::Memory, Self::Sqlite, Self::Postgres].into_iter().find(|over| over.to_string() == name)
    }

    /// A new store. None where there is nowhere to make it.
    fn store(self) -> Option<(Option<Ground>, Arc<dyn Store>)> {
        let ground = match self {
            Self::Memory => return Some((None, Arc::new(MemoryStore::new()))),
            Self::Sqlite => Ground::sqlite(),
            #[cfg(feature = "postgres")]
            Self::Postgres => Ground::postgres("oracle postgres")?,
            #[cfg(not(feature = "postgres"))]
            Self::Postgres => return None,
        };
        let store = ground::open(&ground.db()).expect("a new database opens");
        Some((Some(ground), store))
    }
}

/// What the arguments ask for.
#[derive(Debug)]
pub(crate) struct Wanted {
    seeds: Option<u64>,
    from: u64,
    pub(crate) over: Option<Over>,
    pub(crate) schedule: Option<PathBuf>,
}

impl Wanted {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut wanted = Self { seeds: None, from: 0, over: None, schedule: None };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
            match argument.as_str() {
                "--seeds" => wanted.seeds = Some(value()?.parse().map_err(|error| format!("--seeds: {error}"))?),
                "--from" => wanted.from = value()?.parse().map_err(|error| format!("--from: {error}"))?,
                "--store" => wanted.over = Some(Over::parse(&value()?).ok_or("--store: memory, sqlite or postgres")?),
                "--schedule" => wanted.schedule = Some(value()?.into()),
                // What the usual test program takes is for the runner.
                _ => {}
            }
        }
        Ok(wanted)
    }

    /// Whether nothing in particular was asked for.
    pub(crate) fn is_usual(&self) -> bool {
        self.seeds.is_none() && self.from == 0 && self.over.is_none()
    }

    pub(crate) fn are_many(&self) -> bool {
        self.count() >= 200
    }

    fn count(&self) -> u64 {
        self.seeds.unwrap_or(if std::env::var_os(FULL).is_some() { 200 } else { 20 })
    }

    /// Each seed, and what it is played over.
    pub(crate) fn seeds(&self) -> impl Iterator<Item = (u64, Over)> {
        let (over, count) = (self.over, self.count());
        let usual = |seed: u64| if seed % 4 == 3 { Over::Sqlite } else { Over::Memory };
        let mixed = (self.from..self.from + count).map(move |seed| (seed, over.unwrap_or(usual(seed))));
        let more = if over.is_none() && cfg!(feature = "postgres") { count / 10 } else { 0 };
        mixed.chain((self.from..self.from + more).map(|seed| (seed, Over::Postgres)))
    }
}

/// What happened in all schedules together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum(Arc<Mutex<Figures>>);

impl Sum {
    fn add(&self, more: Figures) {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        more.faults.into_iter().for_each(|(name, count)| *sum.faults.entry(name).or_default() += count);
        more.crashes.into_iter().for_each(|(name, count)| *sum.crashes.entry(name).or_default() += count);
        sum.programs += more.programs;
        sum.restored += more.restored;
        sum.passed = sum.passed.max(more.passed);
    }

    /// The faults that a schedule can have and that never struck.
    fn unfired(&self) -> Vec<String> {
        let sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = |what: &'static str, ways: usize| (0..ways).map(move |way| format!("{what} {way:02}"));
        let all = numbered("answer", ANSWERS).chain(numbered("event", EVENTS)).chain(numbered("stream", STREAMS));
        let all = all.chain(["directory".to_owned(), "restarted sequence".to_owned()]);
        all.filter(|name| sum.faults.get(name).is_none_or(|count| *count == 0)).collect()
    }

    /// Whether every fault has struck.
    pub(crate) fn is_whole(&self) -> bool {
        self.unfired().is_empty()
    }

    pub(crate) fn report(&self, are_many: bool) {
        let unfired = self.unfired();
        let sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (faults, crashes) = (sum.faults.values().sum::<u64>(), sum.crashes.values().sum::<u64>());
        let (programs, places, restored, longest) = (sum.programs, sum.crashes.len(), sum.restored, sum.passed);
        eprintln!(
            "{programs} programs, {faults} faults struck, {crashes} crashes at {places} places, {restored} repos put back to a backup; at rest after {longest:?} at most"
        );
        if are_many && !unfired.is_empty() {
            eprintln!("faults that never struck, of which nothing is proven: {unfired:?}");
        }
    }
}

/// Panics of the consumer and of tests are told by who notices them.
pub(crate) fn quiet() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// Plays a schedule over a store; a panic of the player is a failure.
fn judged(seed: u64, steps: &[Step], store: Arc<dyn Store>) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(seed, steps, store))));
    runtime.shutdown_background();
    played.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Err(format!("a panic: {}", words.unwrap_or("without words")))
    })
}

/// Plays it over a new store, which is sound in the end. None where there is none.
fn played(seed: u64, steps: &[Step], over: Over) -> Option<Result<Figures, String>> {
    let (ground, store) = over.store()?;
    let outcome = judged(seed, steps, store);
    let check = ground.as_ref().and_then(Ground::check);
    Some(outcome.and_then(|figures| match check {
        Some(check) if !check.is_sound() => Err(format!("the store is not sound: {:?}", check.faults)),
        _ => Ok(figures),
    }))
}

fn text(seed: u64, steps: &[Step]) -> String {
    let lines = steps.iter().map(|step| serde_json::to_string(step).expect("plain data"));
    std::iter::once(seed.to_string()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Plays one seed; what fails is made smaller and printed.
pub(crate) fn case(seed: u64, over: Over, figures: Sum) -> Case {
    Case::new(format!("{over}::{seed}"), move || {
        let steps = schedule(seed);
        match played(seed, &steps, over) {
            None => {}
            Some(Ok(more)) => figures.add(more),
            Some(Err(why)) => {
                eprintln!("{over} {seed}: {why}");
                let smallest = shrink(&steps, SHRINKS_WITHIN, |steps| played(seed, steps, over).is_some_and(|outcome| outcome.is_err()));
                let why = played(seed, &smallest, over).and_then(Result::err).unwrap_or_else(|| "this time it did not fail".to_owned());
                eprintln!("{} of {} steps, over {over}: {why}\n----\n{}\n----", smallest.len(), steps.len(), text(seed, &smallest));
                panic!("seed {seed} fails");
            }
        }
    })
}

/// The oracle finds a store out that breaks a promise.
pub(crate) fn finds(breach: Breach) -> Case {
    Case::new(format!("finds::{breach:?}"), move || {
        let breaches = Arc::new(AtomicU64::new(0));
        for seed in FINDS_WITHIN {
            let store = Arc::new(Broken { store: Arc::new(MemoryStore::new()), breach, breaches: Arc::clone(&breaches) });
            if let Err(why) = judged(seed, &schedule(seed), store) {
                let acts = breaches.load(Ordering::Relaxed);
                let why: String = why.chars().take(160).collect();
                eprintln!("{breach:?}: found after {} seeds and {acts} breaches: {why:?}", seed - FINDS_WITHIN.start + 1);
                return;
            }
        }
        eprintln!("{breach:?}: not found, in {} breaches", breaches.load(Ordering::Relaxed));
        panic!("{breach:?} is not found");
    })
}

/// Of many steps those two are left that fail together.
pub(crate) fn shrinks() {
    let steps: Vec<Step> = (0..90).map(|ms| Step::Run { ms }).collect();
    let fails = |steps: &[Step]| [13, 77].iter().all(|&ms| steps.contains(&Step::Run { ms }));
    assert_eq!(shrink(&steps, SHRINKS_WITHIN, fails), [Step::Run { ms: 13 }, Step::Run { ms: 77 }]);
}

/// Plays what a failed run has printed.
pub(crate) fn replay(file: &Path, over: Option<Over>) -> ExitCode {
    let text = std::fs::read_to_string(file).expect("a file");
    let mut lines = text.lines();
    let seed = lines.next().and_then(|line| line.parse().ok()).expect("a seed in the first line");
    let steps: Vec<Step> = lines.map(|line| serde_json::from_str(line).expect("a step")).collect();
    match played(seed, &steps, over.unwrap_or(Over::Memory)) {
        Some(Ok(figures)) => println!("it does not fail: {figures:?}"),
        Some(Err(why)) => {
            println!("{why}");
            return ExitCode::FAILURE;
        }
        None => println!("there is no such store here"),
    }
    ExitCode::SUCCESS
}
