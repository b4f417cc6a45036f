//! Runs tests that are made from data, and says so as the usual test program does: a name each, filters, a line with sums at the end.
#![allow(clippy::print_stdout, reason = "it is the test program")]

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// A test. It fails when it panics.
pub(crate) struct Case {
    name: String,
    run: Box<dyn FnOnce() + Send>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Which of them are wanted: names or parts of names, `--exact`, `--skip PART`, `--list`. Other options of the usual test program, and those of a test's own, change nothing.
#[derive(Default)]
struct Wanted {
    parts: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
}

impl Wanted {
    fn read(arguments: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => wanted.exact = true,
                "--list" => wanted.list = true,
                "--skip" => wanted.skipped.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" | "-Z" | "--seeds" | "--from" | "--store" => _ = arguments.next(),
                option if option.starts_with('-') => {}
                _ => wanted.parts.push(argument),
            }
        }
        wanted
    }

    fn holds(&self, name: &str) -> bool {
        let is = |part: &String| if self.exact { name == part } else { name.contains(part.as_str()) };
        (self.parts.is_empty() || self.parts.iter().any(is)) && !self.skipped.iter().any(is)
    }
}

/// Runs the cases that are wanted, so many at a time.
pub(crate) fn run(cases: Vec<Case>, at_once: usize) -> ExitCode {
    let wanted = Wanted::read(std::env::args().skip(1));
    let all = cases.len();
    let cases: Vec<Case> = cases.into_iter().filter(|case| wanted.holds(&case.name)).collect();
    if wanted.list {
        cases.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    let (began, chosen) = (Instant::now(), cases.len());
    println!("\nrunning {chosen} tests");
    let queue = Mutex::new(cases.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let Some(Case { name, run }) = queue.lock().expect("no panic under it").next() else { return };
                    let ended = std::panic::catch_unwind(AssertUnwindSafe(run));
                    println!("test {name} ... {}", if ended.is_ok() { "ok" } else { "FAILED" });
                    if ended.is_err() {
                        failed.lock().expect("no panic under it").push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic under it");
    if !failed.is_empty() {
        println!("\nfailures:\n    {}", failed.join("\n    "));
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failed.is_empty() { "ok" } else { "FAILED" },
        chosen - failed.len(),
        failed.len(),
        all - chosen,
        began.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
