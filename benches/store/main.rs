//! What the manifest and the store cost: `cargo bench --bench store`. Prints one line for each figure.
//!
//! Options, behind `--`:
//! `--only manifest|checkouts|op-sets|backlog` measures one part; `--durability full|normal` (default: the store's);
//! `--op-sets N` buffers N op sets (default: 400,000); `--unplaced` has the host of no repo known in the backlog; `--jobs N` lets the backlog grow up to N jobs (default: a million; ten thousand at least);
//! `--postgres URL` measures the store in a PostgreSQL database, which is empty and is not emptied afterwards (needs the feature "postgres").
#![allow(clippy::print_stdout)]

mod backlog;
mod checkouts;
mod clock;
mod database;
mod floor;
mod manifest;
mod op_sets;

use atproto_backfill::job::{Job, Timestamp};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, Durability, Store};
use atproto_backfill::syntax::{Did, Rev};

use self::database::Database;

const RECORDS: u64 = 1_000_000;

pub(crate) fn did(n: u64) -> Did {
    Did::new(&format!("did:plc:{n:024}")).expect("a DID")
}

pub(crate) fn rev(n: u64) -> Rev {
    Rev::from_parts(1_700_000_000_000_000 + n, 0)
}

pub(crate) fn advance(job: &Job) -> Advance {
    Advance::new(job.id, job.epoch)
}

/// A new job that is claimed.
pub(crate) async fn claimed(store: &dyn Store, consumer: atproto_backfill::job::ConsumerId, did: &Did) -> Job {
    store.enqueue(consumer, std::slice::from_ref(did)).await.expect("enqueue");
    store.claim(did, Timestamp(1)).await.expect("claim").pop().expect("a job")
}

#[derive(Debug, Default)]
struct Arguments {
    only: Option<String>,
    jobs: Option<u64>,
    op_sets: Option<u64>,
    unplaced: bool,
    postgres: Option<String>,
    durability: Option<Durability>,
}

impl Arguments {
    fn read() -> Self {
        let mut arguments = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            // What cargo adds of its own has no value.
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word.as_str() {
                "--only" => arguments.only = Some(value()),
                "--jobs" => arguments.jobs = Some(value().parse().expect("a number of jobs")),
                "--op-sets" => arguments.op_sets = Some(value().parse().expect("a number of op sets")),
                "--unplaced" => arguments.unplaced = true,
                "--postgres" => arguments.postgres = Some(value()),
                "--durability" => {
                    arguments.durability = Some(match value().as_str() {
                        "full" => Durability::Full,
                        "normal" => Durability::Normal,
                        other => panic!("{other} is no durability"),
                    });
                }
                _ => {}
            }
        }
        arguments
    }

    fn includes(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments = Arguments::read();
    let paths = manifest::paths(RECORDS);
    let links: Vec<Link> = (0..paths.len()).map(manifest::link).collect();
    let chunks = manifest::build(&paths, &links);
    if arguments.includes("manifest") {
        manifest::measure(&paths, &links);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let database = |name: &str| match &arguments.postgres {
        Some(url) => Database::postgres(url, arguments.durability),
        None => Database::sqlite(&directory.path().join(name), arguments.durability),
    };
    if arguments.includes("checkouts") {
        checkouts::measure(&database("checkouts.db"), &chunks, &paths, &links).await;
    }
    if arguments.includes("op-sets") {
        op_sets::measure(&database("op-sets.db"), arguments.op_sets.unwrap_or(400_000)).await;
    }
    if arguments.includes("backlog") {
        let shape = if arguments.unplaced { backlog::Shape::Unplaced } else { backlog::Shape::Placed };
        backlog::measure(&database("backlog.db"), arguments.jobs.unwrap_or(1_000_000), shape).await;
    }
}
