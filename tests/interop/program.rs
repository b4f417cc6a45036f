//! The program `backfill run` as a process that is killed, told to end, and started again.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const SIGKILL: i32 = 9;
/// What the issue allows a stop.
const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// How much of the log a failed test shows, from its end, in bytes.
const LOG_SHOWN: usize = 16 << 10;

/// What all starts have in common: arguments, and the folder of the database, of the lines and of the log. The log is shown if the test fails.
pub(crate) struct Setup {
    folder: TempDir,
    arguments: Vec<String>,
}

impl Setup {
    /// `arguments` come behind `run`; the files are added to them.
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { folder: tempfile::tempdir().expect("a folder"), arguments }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.file("backfill.db")
    }

    pub(crate) fn lines(&self) -> PathBuf {
        self.file("lines.jsonl")
    }

    /// Starts the program, for these repos and those of earlier starts.
    pub(crate) fn start(&self, dids: &[String]) -> Program {
        let log = File::options().append(true).create(true).open(self.file("log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_backfill"));
        command.arg("run").args(&self.arguments).arg("--db").arg(self.database()).arg("--jsonl").arg(self.lines());
        command.args(dids.iter().flat_map(|did| ["--did", did]));
        command.env_clear().env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        Program { child: command.spawn().expect("the program starts") }
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the program:\n{}", tail(&self.file("log")));
        }
    }
}

fn tail(path: &Path) -> String {
    let log = std::fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN)..]).into_owned()
}

/// One process. Killed when this is dropped.
pub(crate) struct Program {
    child: Child,
}

impl Program {
    /// Kills it, which it must not have been spared by ending before.
    pub(crate) async fn kill(mut self) {
        self.child.start_kill().expect("it can be killed");
        let status = self.child.wait().await.expect("it has ended");
        assert_eq!(status.signal(), Some(SIGKILL), "it ended by itself: {status}");
    }

    /// Tells it to end, which it must do in order and in time.
    pub(crate) async fn terminate(mut self) {
        let asked = Instant::now();
        let id = self.child.id().expect("it runs");
        // The standard library sends no other signal than SIGKILL.
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status().await.expect("a shell");
        assert!(sent.success(), "it has ended by itself");
        let status = timeout(STOPS_WITHIN, self.child.wait()).await.expect("it ends within 10 seconds").expect("it has ended");
        assert_eq!(status.code(), Some(0), "{status}");
        eprintln!("ended {:?} after SIGTERM", asked.elapsed());
    }
}
