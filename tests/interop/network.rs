//! Drives `network.mjs`: starts it, sends commands, takes its events. See there for the lines that are exchanged.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Starting takes about two seconds, a command less; a machine with other work on it is slower.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

/// Set by `tests/run`, which installs what is needed: a test that would skip itself fails.
const REQUIRED: &str = "BACKFILL_REQUIRE_INTEROP";

/// The reference PLC and PDS in a process of their own, which ends by itself, and removes its files, once its stdin is dropped with this.
pub(crate) struct Network {
    /// The base URL of the PLC.
    pub(crate) plc: String,
    /// The base URL of the PDS.
    pub(crate) pds: String,
    events: Option<mpsc::Receiver<Value>>,
    answers: mpsc::Receiver<Value>,
    stdin: Option<ChildStdin>,
    child: Child,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop")
}

impl Network {
    /// Starts the servers. `None`, with a line on stderr, where they are not installed.
    pub(crate) async fn start(test: &str) -> Option<Self> {
        if !folder().join("node_modules/.installed").exists() {
            assert!(std::env::var_os(REQUIRED).is_none(), "{test}: not installed, run tests/interop/setup");
            skipped(test, "the reference PDS is not installed (tests/interop/setup installs it)").await;
            return None;
        }
        let mut child = Command::new("node")
            .arg(folder().join("network.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("piped"));
        // Room for the events of a whole test: a full channel would hold up the answers behind it, and a test's time limit would end it.
        let (events_in, events) = mpsc::channel(1 << 16);
        let (answers_in, mut answers) = mpsc::channel(16);
        tokio::spawn(sort_lines(stdout, events_in, answers_in));
        let ready = timeout(STARTED_WITHIN, answers.recv()).await.expect("ready in time").expect("ready");
        let url = |name: &str| ready[name].as_str().expect("a URL").to_owned();
        Some(Self { plc: url("plc"), pds: url("pds"), events: Some(events), answers, stdin, child })
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn command(&mut self, command: Value) -> Value {
        let stdin = self.stdin.as_mut().expect("not stopped");
        stdin.write_all(format!("{command}\n").as_bytes()).await.expect("the network listens");
        let answer = timeout(ANSWERED_WITHIN, self.answers.recv()).await.expect("an answer in time").expect("an answer");
        assert_eq!(answer["event"], "done", "{command}: {answer}");
        answer
    }

    /// Whatever the firehose of the PDS says from its first event on, in its order. Ends with the network. To be taken once.
    pub(crate) fn take_events(&mut self) -> mpsc::Receiver<Value> {
        self.events.take().expect("taken once")
    }

    /// Creates accounts; returns their DIDs.
    pub(crate) async fn accounts(&mut self, names: &[&str]) -> Vec<String> {
        let answer = self.command(json!({"cmd": "accounts", "names": names})).await;
        let accounts = answer["accounts"].as_array().expect("accounts");
        accounts.iter().map(|account| account["did"].as_str().expect("a DID").to_owned()).collect()
    }

    /// Ends the servers and waits until they have ended.
    pub(crate) async fn stop(mut self) {
        drop(self.stdin.take());
        let status = timeout(ANSWERED_WITHIN, self.child.wait()).await.expect("ends in time").expect("ends");
        assert!(status.success(), "{status}");
    }
}

/// Parts answers from events. Ends with the process.
async fn sort_lines(stdout: ChildStdout, events: mpsc::Sender<Value>, answers: mpsc::Sender<Value>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let value: Value = serde_json::from_str(&line).expect("a line of JSON");
        let to = match value["event"].as_str() {
            Some("ready" | "done" | "failed") => &answers,
            _ => &events,
        };
        // Events that nobody has taken are let go; the answers still come.
        let _ = to.send(value).await;
    }
}

/// Says so where the test harness cannot hide it: `tests/run` counts these lines.
async fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED {test}: {why}\n");
    tokio::io::stderr().write_all(line.as_bytes()).await.expect("stderr");
}
