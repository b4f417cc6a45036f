//! The `backfill` program; see `atproto_backfill::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    atproto_backfill::cli::main()
}
