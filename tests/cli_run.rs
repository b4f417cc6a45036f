//! `backfill run` as a process: who may write where, what becomes of it when nobody reads, and how it ends. What it writes is compared with the truth in `interop`.
#![cfg(all(feature = "cli", unix))]
#![allow(clippy::print_stderr, reason = "what a failed test is understood by")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use atproto_backfill::sim::{Network, NetworkOptions, Sizes, World};
use serde_json::Value;

/// A simulated network at rest, for as long as the test runs.
struct Served {
    network: Network,
    runtime: tokio::runtime::Runtime,
}

impl Served {
    fn new(seed: u64, records: u64) -> Self {
        eprintln!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let world = World::builder().seed(seed).hosts(2).repos(6).sizes(Sizes::Total(records)).build().unwrap();
        let network = runtime.block_on(Network::start(&world, NetworkOptions::default())).unwrap();
        Self { network, runtime }
    }

    /// `backfill run` on this network, with a database.
    fn run(&self, database: &Path) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_backfill"));
        program.args(["run", "--development", "--plc-url", self.network.plc_url(), "--relay", &self.network.relay_firehose_url()]);
        for did in self.network.world().dids() {
            program.args(["--did", did.as_str()]);
        }
        program.arg("--db").arg(database).env("RUST_LOG", "off").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        program
    }

    /// Every record as `did path cid`.
    fn truth(&self) -> BTreeSet<String> {
        let world = self.network.world();
        let records = |did| {
            let truth = world.truth(&did).unwrap().records;
            truth.into_iter().map(move |(path, (cid, _))| format!("{did} {path} {cid}"))
        };
        world.dids().into_iter().flat_map(records).collect()
    }

    fn end(self) {
        self.runtime.block_on(self.network.shutdown());
    }
}

fn record(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON: {error}: {line}"));
    let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    (line["type"] == "record").then(|| format!("{} {} {}", text("did"), text("path"), text("cid")))
}

/// Reads lines until they hold all of these records, and hands back what reads them.
fn read_all(program: &mut Child, mut records: BTreeSet<String>) -> BufReader<std::process::ChildStdout> {
    let mut out = BufReader::new(program.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while !records.is_empty() {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended, and {} records are missing", records.len());
        if let Some(record) = record(&line) {
            records.remove(&record);
        }
    }
    out
}

fn terminate(program: &Child) {
    assert!(Command::new("kill").arg("-TERM").arg(program.id().to_string()).status().unwrap().success());
}

fn ended(program: Child) -> (Option<i32>, String) {
    let output = program.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_writes_every_record_and_ends_in_order_when_it_is_asked_to() {
    let served = Served::new(601, 500);
    let folder = tempfile::tempdir().unwrap();
    let mut program = served.run(&folder.path().join("run.db")).spawn().unwrap();
    let mut rest = read_all(&mut program, served.truth());
    terminate(&program);
    rest.read_to_end(&mut Vec::new()).unwrap();
    let (code, said) = ended(program);
    assert_eq!(code, Some(0), "{said}");
    served.end();
}

#[test]
fn its_database_can_be_looked_into_while_it_runs_and_after() {
    let served = Served::new(604, 500);
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("run.db");
    let look = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_backfill"));
        let output = program.arg("store").args(arguments).arg("--db").arg(&database).env("RUST_LOG", "off").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, _, said) = look(&["check"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(!database.exists(), "a database was made");
    let mut program = served.run(&database).spawn().unwrap();
    let mut rest = read_all(&mut program, served.truth());
    let (code, found, said) = look(&["check"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(found.starts_with("6 jobs, ") && found.ends_with(": sound\n"), "{found}");
    let json = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let began = std::time::Instant::now();
    // What was written last is recorded a moment later.
    while json(look(&["stats", "--json"]).1)["consumers"]["jsonl"]["complete"] != 6 {
        assert!(began.elapsed().as_secs() < 60, "not in a minute");
    }
    terminate(&program);
    rest.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(ended(program).0, Some(0));
    let check = json(look(&["check", "--json"]).1);
    assert_eq!((&check["sound"], &check["jobs"], &check["faults"]), (&Value::Bool(true), &6.into(), &Value::Array(Vec::new())));
    let stats = json(look(&["stats", "--json"]).1);
    let records = served.truth().len();
    assert_eq!(
        (&stats["repos"], &stats["consumers"]["jsonl"]["complete"], &stats["consumers"]["jsonl"]["records"]),
        (&6.into(), &6.into(), &records.into())
    );
    assert_eq!(check["records"], stats["consumers"]["jsonl"]["records"]);
    assert!(look(&["stats"]).1.contains("6 complete"));
    served.end();
}

#[test]
fn a_second_program_is_refused_and_leaves_the_lines_alone() {
    let served = Served::new(602, 500);
    let folder = tempfile::tempdir().unwrap();
    let (database, lines) = (folder.path().join("run.db"), folder.path().join("lines.jsonl"));
    let first = served.run(&database).arg("--jsonl").arg(&lines).spawn().unwrap();
    let truth = served.truth();
    let written = || -> BTreeSet<String> {
        let text = std::fs::read_to_string(&lines).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(record).collect()
    };
    let began = std::time::Instant::now();
    while written() != truth {
        assert!(began.elapsed().as_secs() < 60, "not in a minute");
        std::thread::yield_now();
    }
    // As if the first were in the middle of a line.
    let unfinished = [std::fs::read(&lines).unwrap(), b"{\"type\":".to_vec()].concat();
    std::fs::write(&lines, &unfinished).unwrap();
    for (other, why) in [(&database, "in use"), (&folder.path().join("other.db"), "another process writes to it")] {
        let (code, said) = ended(served.run(other).arg("--jsonl").arg(&lines).spawn().unwrap());
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(std::fs::read(&lines).unwrap(), unfinished, "the second program has changed the lines");
    terminate(&first);
    assert_eq!(ended(first).0, Some(0));
    served.end();
}

#[test]
fn it_ends_when_whoever_read_its_lines_has_gone() {
    // More than a pipe holds.
    let served = Served::new(603, 4_000);
    let folder = tempfile::tempdir().unwrap();
    let mut program = served.run(&folder.path().join("run.db")).spawn().unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(record(&line).is_some(), "{line}");
    drop(out);
    let (code, said) = ended(program);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("whoever read the lines has gone"), "{said}");
    served.end();
}
