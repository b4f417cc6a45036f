//! `backfill run`: the engine as a process of its own, its changes as JSON lines.

mod lines;
mod status;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;
use url::Url;

use self::lines::Lines;
use super::report::say;
use super::{Answer, Failed, database, wrong_usage};
use crate::consumer::CollectionFilter;
use crate::engine::{Backfiller, FollowOptions, Options, Track};
use crate::error_chain::error_chain;
use crate::fetch::{HttpOptions, user_agent};
use crate::firehose::{ClientOptions, Upstream, Verification};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use crate::store::Durability;
use crate::syntax::{Did, Nsid};

/// What a stop waits for; the handler and the store are done within it, or what they had in hand comes again.
const STOP_GRACE: Duration = Duration::from_secs(7);
/// Repos that are put into the store at once.
const PAGE: usize = 500;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Records are lines {\"type\":\"record\",\"action\",\"live\",\"did\",\"rev\",\"path\",\"cid\",\"record\"}, deletes without cid and record; accounts are {\"type\":\"account\",\"did\",\"active\",\"status\"}.\nA line may come again after a kill: store creates and updates by path, and remove deletes.\nSIGINT or SIGTERM ends it in order, within 10 seconds; the next start goes on where it stood."
)]
pub(super) struct Arguments {
    /// The firehose of a relay: a wss, https, ws or http URL. May be repeated.
    #[arg(long, env = "BACKFILL_RELAY", value_name = "URL", value_delimiter = ',')]
    relay: Vec<String>,
    /// The firehose of a single PDS host, which is believed about its own accounts only. May be repeated.
    #[arg(long, env = "BACKFILL_PDS", value_name = "URL", value_delimiter = ',')]
    pds: Vec<String>,
    /// A repo to follow. May be repeated. Those of earlier starts are followed in any case.
    #[arg(long, value_name = "DID")]
    did: Vec<String>,
    /// Which repos are added because the firehose tells of them.
    #[arg(long, default_value = "listed", value_name = "listed | seen | collection:NSID", value_parser = track)]
    track: Track,
    /// Only records of this collection: an NSID, or the beginning of one and ".*". May be repeated.
    #[arg(long, value_name = "NSID")]
    collection: Vec<String>,
    /// The database: where everything stands. A file, which is made if it is not there, or a postgres:// URL.
    #[arg(long, env = "BACKFILL_DB", hide_env_values = true, default_value = "backfill.db", value_name = "FILE | URL")]
    db: PathBuf,
    /// Whether the database waits for the disk: "full" always; "normal" does not, and a loss of power may undo the last commits. What they held comes again,
    /// but a record deleted upstream before the machine is back may then stay in the output. A kill of this program undoes nothing either way.
    /// [default: normal for a file, full for PostgreSQL]
    #[arg(long, env = "BACKFILL_DURABILITY", value_name = "full | normal", value_parser = database::durability)]
    durability: Option<Durability>,
    /// Where the lines go: a file, which is appended to, or - for standard output.
    #[arg(long, default_value = "-", value_name = "FILE | -")]
    jsonl: PathBuf,
    /// How much of what the firehose says is checked.
    #[arg(long, default_value = "full", value_name = "full | signature | none", value_parser = verification)]
    verification: Verification,
    /// The PLC directory.
    #[arg(long, env = "BACKFILL_PLC_URL", value_name = "URL", value_parser = super::http_url)]
    plc_url: Option<Url>,
    /// Whom hosts may ask about this program: an address or a page. Part of the User-Agent.
    #[arg(long, env = "BACKFILL_CONTACT", value_name = "CONTACT", value_parser = super::header_text)]
    contact: Option<String>,
    /// Allow plain http and addresses that are not public, for a network on this machine.
    #[arg(long)]
    development: bool,
}

fn track(text: &str) -> Result<Track, String> {
    match text.split_once(':') {
        None if text == "listed" => Ok(Track::Listed),
        None if text == "seen" => Ok(Track::Seen),
        Some(("collection", nsid)) => Nsid::new(nsid).map(Track::Collection).map_err(|error| error.to_string()),
        _ => Err("neither listed, seen nor collection:NSID".to_owned()),
    }
}

fn verification(text: &str) -> Result<Verification, String> {
    let levels = [Verification::Full, Verification::Signature, Verification::None];
    levels.into_iter().find(|level| level.as_str() == text).ok_or_else(|| "neither full, signature nor none".to_owned())
}

/// Runs until `interrupted` comes, or the store is unusable.
pub(super) async fn run(arguments: Arguments, interrupted: impl Future<Output = ()>) -> Answer {
    let dids: Vec<Did> = match arguments.did.iter().map(|did| Did::new(did)).collect() {
        Ok(dids) => dids,
        Err(error) => wrong_usage(&error),
    };
    let (backfiller, unread) = backfiller(&arguments).await?;
    for page in dids.chunks(PAGE) {
        backfiller.enqueue(page).await?;
    }
    backfiller.start().await?;
    let outcome = tokio::select! {
        () = interrupted => Ok(()),
        () = broken(&backfiller) => Err("the store is unusable; see the log"),
        () = unread.cancelled() => Err("whoever read the lines has gone"),
        never = status::show(backfiller.clone()) => match never {},
    };
    let stopped = backfiller.stop().await;
    outcome?;
    if let Err(error) = stopped {
        say(format_args!("backfill: {error}; they come again"));
        return Ok(false);
    }
    Ok(true)
}

/// The backfiller, and what is cancelled when whoever read its lines has gone.
async fn backfiller(arguments: &Arguments) -> Result<(Backfiller, CancellationToken), Failed> {
    let upstreams = arguments.relay.iter().map(Upstream::relay).chain(arguments.pds.iter().map(Upstream::host));
    let upstreams: Vec<Upstream> = match upstreams.collect() {
        Ok(upstreams) => upstreams,
        Err(error) => wrong_usage(&error),
    };
    if upstreams.is_empty() {
        wrong_usage(&"there is no firehose to follow: --relay or --pds is needed");
    }
    let collections = match CollectionFilter::new(&arguments.collection) {
        Ok(filter) => filter,
        Err(error) => wrong_usage(&error),
    };
    // The store first: whoever has it is the one who may write lines.
    let store = database::open(&arguments.db, arguments.durability).map_err(|error| error_chain(&error))?;
    let lines = if arguments.jsonl.as_os_str() == "-" { Lines::standard() } else { Lines::append(&arguments.jsonl) };
    let lines = lines.map_err(|error| format!("{}: {error}", arguments.jsonl.display()))?;
    let unread = lines.unread();
    let (user_agent, development) = (user_agent(arguments.contact.as_deref()), arguments.development);
    let mut resolver = ResolverOptions { user_agent: user_agent.clone(), development, ..ResolverOptions::default() };
    if let Some(url) = &arguments.plc_url {
        resolver.plc_url = url.clone();
    }
    let follow = FollowOptions {
        track: arguments.track.clone(),
        verification: arguments.verification,
        client: ClientOptions { user_agent: user_agent.clone(), development, ..ClientOptions::default() },
        ..FollowOptions::default()
    };
    let mut builder = Backfiller::builder("jsonl", store, lines)
        .options(Options { collections, stop_grace: STOP_GRACE, ..Options::default() })
        .http(HttpOptions { user_agent, development, ..HttpOptions::default() })
        .resolver(Arc::new(CachedResolver::new(HttpResolver::new(resolver)?, CacheOptions::default())))
        .follow(follow);
    for upstream in upstreams {
        builder = builder.upstream(upstream);
    }
    Ok((builder.build().await?, unread))
}

async fn broken(backfiller: &Backfiller) {
    while !backfiller.is_broken() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Milliseconds since the Unix epoch.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
