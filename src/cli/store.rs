//! `backfill store`: looks into a database, and changes nothing.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::report::count;
use super::{Answer, database};
use crate::error_chain::error_chain;
use crate::store::{StoreCheck, StoreStats, Totals};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    look: Look,
}

#[derive(Debug, clap::Subcommand)]
enum Look {
    /// Read every row and say what is wrong, a line each. Exit code 1 if anything is.
    Check(Database),
    /// Say how many jobs are in which state, and where each firehose stands.
    Stats(Database),
}

#[derive(Debug, clap::Args)]
struct Database {
    /// The database: a file or a postgres:// URL.
    #[arg(long, env = "BACKFILL_DB", hide_env_values = true, default_value = "backfill.db", value_name = "FILE | URL")]
    db: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Looks, and prints what there is.
pub(super) fn run(arguments: Arguments) -> Answer {
    match arguments.look {
        Look::Check(Database { db, json }) => {
            let check = database::check(&db).map_err(|error| error_chain(&error))?;
            print(&if json { line(&check_json(&check)) } else { check_text(&check) })?;
            Ok(check.is_sound())
        }
        Look::Stats(Database { db, json }) => {
            let stats = database::stats(&db).map_err(|error| error_chain(&error))?;
            print(&if json { line(&stats_json(&stats)) } else { stats_text(&stats, &db) })?;
            Ok(true)
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

fn check_text(check: &StoreCheck) -> String {
    let mut text: String = check.faults.iter().map(|fault| format!("{fault}\n")).collect();
    let unnamed = check.fault_count - check.faults.len() as u64;
    if unnamed > 0 {
        text += &format!("and {} more\n", count(unnamed));
    }
    let StoreCheck { jobs, records, op_sets, intents, .. } = check;
    let read =
        format!("{} jobs, {} records, {} buffered op sets, {} intents", count(*jobs), count(*records), count(*op_sets), count(*intents));
    let found = match check.fault_count {
        0 => "sound".to_owned(),
        1 => "1 fault".to_owned(),
        more => format!("{} faults", count(more)),
    };
    format!("{text}{read}: {found}\n")
}

fn check_json(check: &StoreCheck) -> Value {
    let StoreCheck { jobs, records, op_sets, intents, faults, fault_count, .. } = check;
    json!({
        "jobs": jobs, "records": records, "op_sets": op_sets, "intents": intents,
        "sound": check.is_sound(), "faults": faults, "fault_count": fault_count,
    })
}

fn stats_text(stats: &StoreStats, db: &Path) -> String {
    // Of a URL nothing is shown: it may hold a password.
    let name = if database::is_url(db) { "database".to_owned() } else { db.display().to_string() };
    let mut text = format!(
        "{name}: {} MB, schema {}, {} repos at {} hosts\n",
        count(stats.bytes / 1_000_000),
        stats.schema,
        count(stats.repos),
        count(stats.hosts)
    );
    for (consumer, totals) in &stats.consumers {
        let words: Vec<String> = named(totals).into_iter().map(|(name, number)| format!("{} {name}", count(number))).collect();
        text += &format!("consumer {consumer}: {}\n", words.join(", "));
    }
    for (upstream, cursor) in &stats.upstreams {
        let stands = cursor.map_or("no event yet".to_owned(), |cursor| format!("event {} of {}", cursor.seq, moment(cursor.time.0)));
        text += &format!("upstream {upstream}: {stands}\n");
    }
    text
}

fn stats_json(stats: &StoreStats) -> Value {
    let totals =
        |totals: &Totals| named(totals).into_iter().map(|(name, number)| (name.replace(' ', "_"), json!(number))).collect::<Value>();
    let consumers = stats.consumers.iter().map(|(name, sums)| (name.clone(), totals(sums))).collect::<Value>();
    let cursor = |name: &String, at: Option<crate::firehose::SavedCursor>| json!({"name": name, "seq": at.map(|at| at.seq.get()), "time": at.map(|at| moment(at.time.0))});
    let upstreams: Vec<Value> = stats.upstreams.iter().map(|(name, at)| cursor(name, *at)).collect();
    json!({
        "schema": stats.schema, "bytes": stats.bytes, "repos": stats.repos, "hosts": stats.hosts,
        "consumers": consumers, "upstreams": upstreams,
    })
}

fn named(totals: &Totals) -> [(&'static str, u64); 10] {
    [
        ("complete", totals.complete),
        ("in progress", totals.in_progress),
        ("enqueued", totals.enqueued),
        ("failed", totals.failed),
        ("unavailable", totals.unavailable),
        ("records", totals.records),
        ("buffered op sets", totals.buffered_op_sets),
        ("buffered bytes", totals.buffered_bytes),
        ("dropped op sets", totals.dropped_op_sets),
        ("accounts to tell", totals.untold),
    ]
}

/// A moment in words, given in milliseconds since the Unix epoch.
fn moment(millis: i64) -> String {
    /// The end of the year 9999, beyond which there are no words.
    const LAST: u64 = 253_402_300_799_000;
    let since = std::time::Duration::from_millis(u64::try_from(millis).unwrap_or_default().min(LAST));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}
