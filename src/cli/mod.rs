//! The `backfill` program.

mod checkout;
mod demo;
mod report;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps a copy of AT Protocol repositories complete and current.
#[derive(Debug, Parser)]
#[command(
    name = "backfill",
    version,
    after_help = "Exit codes: 0 done; 1 some repo failed; 2 wrong usage.\nLogs go to standard error; RUST_LOG=info shows more of them."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check out repos once and print their records as JSON lines, in path order.
    Checkout(Box<checkout::Arguments>),
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
        match arguments.command {
            Command::Checkout(arguments) => checkout::run(*arguments).await,
            Command::Demo(arguments) => demo::run(arguments).await,
        }
    });
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => failed(error.as_ref()),
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    // Nothing is left to do when standard error is gone as well.
    let _ = writeln!(std::io::stderr(), "backfill: {}", crate::engine::error_chain(error));
    ExitCode::from(1)
}
