//! The `backfill` program.

mod checkout;
mod demo;
mod report;
mod run;

use std::io::{IsTerminal, Write};
use std::pin::Pin;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Backfill a simulated network while it is written to, and compare the result with the truth. Needs no network.
    Demo(demo::Arguments),
}

/// What a command answers: whether all went well, or why it could not do its work at all.
type Answer = Result<bool, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let answer = runtime.block_on(async {
        let work: Pin<Box<dyn Future<Output = Answer>>> = match arguments.command {
            Command::Checkout(arguments) => Box::pin(checkout::run(*arguments)),
            Command::Demo(arguments) => Box::pin(demo::run(arguments)),
            // To be interrupted is how it ends.
            Command::Run(arguments) => return Some(run::run(*arguments, interrupted()).await),
        };
        // Dropping the work removes its temporary files.
        tokio::select! {
            answer = work => Some(answer),
            () = interrupted() => None,
        }
    });
    // A thread that waits for a disk or a name server may be left behind.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match answer {
        Some(Ok(true)) => ExitCode::SUCCESS,
        Some(Ok(false)) => ExitCode::from(1),
        Some(Err(error)) => failed(error.as_ref()),
        None => ExitCode::from(130),
    }
}

/// Waits for an interrupt or a request to end.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            tokio::select! {
                _ = interrupt.recv() => return,
                _ = terminate.recv() => return,
            }
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_ok() {
        return;
    }
    // Signals cannot be waited for: they end the process as they always do.
    std::future::pending().await
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
    let _ = writeln!(std::io::stderr(), "backfill: {}", crate::engine::error_chain(error));
    ExitCode::from(1)
}
