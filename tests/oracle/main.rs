//! The oracle: seeded schedules of everything at once over the whole program. At the end the consumer holds what the world does, came there in order, and
//! everything is accounted for; or the seed is printed, and a smallest schedule that fails.
//!
//! ```text
//! cargo test --test oracle -- [--seeds N] [--from SEED] [--store memory | sqlite | postgres] [--schedule FILE]
//! ```
//! Three seeds of four run over memory, the fourth over SQLite, and some more over PostgreSQL where there is a cluster. `--schedule` plays what a failed run
//! has printed: the seed in the first line, a step in each other. `BACKFILL_FULL=1`: 200 seeds.
//!
//! Network and files are real. The clock is the program's own, which is moved on where a schedule or the end of one has time pass.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is the test program")]

#[macro_use]
#[path = "../crash/store.rs"]
mod store;

mod broken;
mod consumer;
#[cfg(feature = "postgres")]
#[path = "../common/postgres.rs"]
mod database;
mod generate;
#[path = "../common/ground.rs"]
mod ground;
mod judge;
mod play;
#[allow(dead_code, reason = "the crash test uses more of it")]
#[path = "../crash/points.rs"]
mod points;
#[path = "../common/runner.rs"]
mod runner;
mod shrink;
mod step;
#[allow(dead_code, reason = "the crash test uses more of it")]
#[path = "../crash/trap.rs"]
mod trap;
mod verdicts;

use std::process::ExitCode;

use runner::Case;
use verdicts::Wanted;

const AT_ONCE: usize = 3;

fn main() -> ExitCode {
    verdicts::quiet();
    let wanted = match Wanted::read(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Some(file) = &wanted.schedule {
        return verdicts::replay(file, wanted.over);
    }
    let figures = verdicts::Sum::default();
    let mut cases: Vec<Case> = wanted.seeds().map(|(seed, over)| verdicts::case(seed, over, figures.clone())).collect();
    if wanted.is_usual() {
        cases.extend(broken::Breach::ALL.map(verdicts::finds));
        cases.push(Case::new("a_smallest_schedule_is_found", verdicts::shrinks));
    }
    let code = runner::run(cases, AT_ONCE);
    figures.report(wanted.are_many());
    if figures.is_whole() || !wanted.are_many() { code } else { ExitCode::FAILURE }
}
