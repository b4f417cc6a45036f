//! The `backfill` program.

mod checkout;
mod database;
mod demo;
mod report;
mod run;
mod signals;
mod store;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use signals::Signals;

/// Keeps a copy of AT Protocol repositories complete and current.
#[derive(Debug, Parser)]
#[command(
    name = "backfill",
    version,
    after_help = "Exit codes: 0 done; 1 some repo failed, or the output could not be written; 2 wrong usage; 130 interrupted.\nLogs go to standard error; RUST_LOG=info shows more of them."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check out repos once and print their records as JSON lines, in path order.
    Checkout(Box<checkout::Arguments>),
    /// Backfill repos and follow them, until it is told to end: every change as a JSON line.
    Run(Box<run::Arguments>),
    /// Look into a database: what is in it, and whether anything is wrong with it. Another process may work with it meanwhile.
    Store(store::Arguments),
    /// Backfill a simulated network while it is written to, and compare the result with the truth. Needs no network.
    Demo(demo::Arguments),
}

/// What a command answers: whether all went well, or why it could not do its work at all.
type Answer = Result<bool, Failed>;

/// Why something could not be done, in words.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// How long an interrupted command may take to notice and to remove what it made. Commonly it is a few milliseconds.
const CLEARING: Duration = Duration::from_secs(2);
/// A thread that waits for a disk, a pipe or a name server is left behind after so long.
const LEAVING: Duration = Duration::from_millis(400);

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let arguments = arguments();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let answer = runtime.block_on(answer(arguments.command));
    runtime.shutdown_timeout(LEAVING);
    match answer {
        Some(Ok(true)) => ExitCode::SUCCESS,
        Some(Ok(false)) => ExitCode::from(1),
        Some(Err(error)) => failed(error.as_ref()),
        None => ExitCode::from(130),
    }
}

/// The arguments. An environment variable that is set to nothing counts as not set.
fn arguments() -> Arguments {
    let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = Arguments::command().mut_subcommands(|command| {
        command.mut_args(|argument| match argument.get_env() {
            Some(name) if is_empty(name) => argument.env(Resettable::Reset),
            _ => argument,
        })
    });
    Arguments::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Carries a command out; none if the program was interrupted meanwhile.
async fn answer(command: Command) -> Option<Answer> {
    // Before anything is made that would have to be removed.
    let mut signals = Signals::heed();
    // Apart from this thread, so that signals are noticed whatever the command does.
    let mut work = match command {
        Command::Checkout(arguments) => tokio::spawn(checkout::run(*arguments)),
        Command::Demo(arguments) => tokio::spawn(demo::run(arguments)),
        Command::Store(arguments) => tokio::task::spawn_blocking(|| store::run(arguments)),
        // To be interrupted is how it ends.
        Command::Run(arguments) => return Some(run::run(*arguments, signals.received()).await),
    };
    tokio::select! {
        answer = &mut work => Some(answer.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(error.into()),
        })),
        () = signals.received() => {
            // Dropping the work removes its temporary files.
            work.abort();
            let _ = tokio::time::timeout(CLEARING, work).await;
            None
        }
    }
}

/// Ends the program with exit code 2 and clap's way of saying what is wrong.
fn wrong_usage(error: &dyn std::fmt::Display) -> ! {
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n")).exit()
}

/// An http(s) URL, for arguments.
fn http_url(text: &str) -> Result<url::Url, String> {
    let url: url::Url = text.parse().map_err(|error| format!("{error}"))?;
    if matches!(url.scheme(), "http" | "https") && url.host().is_some() { Ok(url) } else { Err("not an http or https URL".to_owned()) }
}

/// Text that may stand in an HTTP header.
fn header_text(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) { Ok(text.to_owned()) } else { Err("only printable ASCII".to_owned()) }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    // Nothing is left to do when standard error is gone as well.
    let _ = writeln!(std::io::stderr(), "backfill: {}", crate::error_chain::error_chain(error));
    ExitCode::from(1)
}
