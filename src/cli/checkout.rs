//! `backfill checkout`: repos from their hosts or from CAR files, verified, as JSON lines.

mod out;
mod patience;
mod print;
mod source;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use print::{PrintError, print};
use source::{FileKey, Repo, Servers, Source};
use url::Url;

use super::report::{count, say};
use super::{Answer, Failed, wrong_usage};
use crate::consumer::CollectionFilter;
use crate::error_chain::error_chain;
use crate::fetch::user_agent;
use crate::repo::PublicKey;
use crate::syntax::Did;

/// Repos that are fetched at the same time.
const PARALLEL: usize = 4;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every line is {\"did\",\"rev\",\"path\",\"cid\",\"record\"}. A repo is printed only when all of it has been verified; one that fails prints nothing."
)]
pub(super) struct Arguments {
    /// DIDs to fetch, and CAR files to read (anything that does not begin with "did:").
    #[arg(required = true, value_name = "DID | FILE.car")]
    repos: Vec<String>,
    /// Write the lines to this file instead of standard output. It is replaced at the end, and only if some repo was printed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only records of this collection: an NSID, or the beginning of one and ".*". May be repeated.
    #[arg(long, value_name = "NSID")]
    collection: Vec<String>,
    /// The PLC directory.
    #[arg(long, env = "BACKFILL_PLC_URL", value_name = "URL", value_parser = super::http_url)]
    plc_url: Option<Url>,
    /// Fetch from this host instead of each account's own.
    #[arg(long, env = "BACKFILL_HOST", value_name = "URL", value_parser = super::http_url)]
    host: Option<Url>,
    /// Whom hosts may ask about this program: an address or a page. Part of the User-Agent.
    #[arg(long, env = "BACKFILL_CONTACT", value_name = "CONTACT", value_parser = super::header_text)]
    contact: Option<String>,
    /// The key that signs the repos in the files, as did:key or Multikey, instead of the one that their accounts' DID documents name.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Do not check the signatures of repos in files. Everything else is checked.
    #[arg(long, conflicts_with = "key")]
    no_verify_signature: bool,
    /// Allow plain http and addresses that are not public, for a network on this machine.
    #[arg(long)]
    development: bool,
}

pub(super) async fn run(arguments: Arguments) -> Answer {
    let (filter, key) = match (CollectionFilter::new(&arguments.collection), arguments.key.as_deref().map(parse_key).transpose()) {
        (Ok(filter), Ok(key)) => (filter, key),
        (Err(error), _) => wrong_usage(&error),
        (_, Err(error)) => wrong_usage(&error),
    };
    let repos = repos(&arguments.repos);
    let of_dids = repos.iter().any(|repo| matches!(repo, Repo::Did(_)));
    if of_dids && (arguments.no_verify_signature || key.is_some()) {
        wrong_usage(&"--key and --no-verify-signature are for files; the repo of a DID is verified with the key of its DID document");
    }
    let stop = Stop::default();
    let source = source(&arguments, key, &stop);
    if of_dids {
        source.connect().await?;
    }
    let (writer, replacement) = tokio::task::spawn_blocking(move || out::open(arguments.out.as_deref())).await??;
    let Printed { all_well, any } = print_all(&repos, &source, &filter, writer, &stop).await?;
    if let (true, Some(replacement)) = (any, replacement) {
        replacement.keep()?;
    }
    Ok(all_well)
}

/// Sorts the DIDs from the files.
fn repos(arguments: &[String]) -> Vec<Repo> {
    let repo = |repo: &String| match Did::new(repo) {
        Ok(did) => Repo::Did(did),
        Err(error) if repo.starts_with("did:") => wrong_usage(&error),
        Err(_) if repo.is_empty() || repo.starts_with("at://") => wrong_usage(&format!("{repo:?} is neither a DID nor a file")),
        Err(_) => Repo::File(repo.into()),
    };
    arguments.iter().map(repo).collect()
}

fn source(arguments: &Arguments, key: Option<PublicKey>, stop: &Stop) -> Source {
    let servers = Servers {
        plc_url: arguments.plc_url.clone(),
        host: arguments.host.clone(),
        user_agent: user_agent(arguments.contact.as_deref()),
        development: arguments.development,
    };
    let file_key = match key {
        Some(key) => FileKey::Given(key),
        None if arguments.no_verify_signature => FileKey::Unchecked,
        None => FileKey::Resolve,
    };
    Source::new(servers, file_key, Arc::clone(&stop.0))
}

/// Tells the threads of a run that it is over, when it is dropped: what was printed so far is not wanted any more.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What became of a run.
struct Printed {
    /// No repo failed.
    all_well: bool,
    /// Some repo was printed.
    any: bool,
}

async fn print_all(
    repos: &[Repo],
    source: &Source,
    filter: &CollectionFilter,
    mut out: out::Writer,
    stop: &Stop,
) -> Result<Printed, Failed> {
    let (mut all_well, mut any) = (true, false);
    let mut checkouts = stream::iter(0..repos.len()).map(|at| source.checkout(&repos[at])).buffered(PARALLEL);
    for repo in repos {
        let Some(checkout) = checkouts.next().await else { break };
        let checkout = match checkout {
            Ok(checkout) => checkout,
            Err(error) => {
                failed(repo, &error_chain(error.as_ref()));
                all_well = false;
                continue;
            }
        };
        let (filter, stop) = (filter.clone(), Arc::clone(&stop.0));
        let printing = tokio::task::spawn_blocking(move || {
            let printed = print(&checkout, &filter, &mut out, &stop);
            (out, checkout, printed)
        });
        let (returned, checkout, printed) = printing.await?;
        out = returned;
        match printed {
            Ok(printed) => {
                any = true;
                let (did, rev) = (checkout.commit().did(), checkout.commit().rev());
                say(format_args!("{did}: {} records at {rev}, {} dropped", count(printed.records), count(printed.dropped)));
            }
            // Nobody reads on: not a failure of any repo.
            Err(PrintError::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Printed { all_well, any: false }),
            Err(PrintError::Out(error)) => return Err(format!("cannot write: {error}").into()),
            Err(PrintError::Repo(error)) => {
                failed(repo, &error_chain(&error));
                all_well = false;
            }
            Err(PrintError::Stopped) => return Ok(Printed { all_well, any: false }),
        }
    }
    Ok(Printed { all_well, any })
}

/// Says why a repo failed. Most that is said of a DID names it already.
fn failed(repo: &Repo, why: &dyn Display) {
    let why = why.to_string();
    match repo {
        Repo::Did(did) if why.contains(did.as_str()) => say(why),
        _ => say(format_args!("{repo}: {why}")),
    }
}

fn parse_key(text: &str) -> Result<PublicKey, crate::repo::KeyError> {
    PublicKey::from_multikey(text.strip_prefix("did:key:").unwrap_or(text))
}
