//! `backfill checkout`: repos from their hosts or from CAR files, verified, as JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, stream};
use url::Url;

use super::Answer;
use super::report::{count, say};
use crate::consumer::CollectionFilter;
use crate::engine::{Fetcher, error_chain};
use crate::fetch::{HttpOptions, HttpSource, Pace, PaceOptions, Spool, SpoolBudget, SpoolOptions, user_agent};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, Resolver, ResolverOptions};
use crate::repo::{Checkout, Leaves, PublicKey, Records, json, record};
use crate::syntax::Did;

/// Repos that are fetched at the same time.
const PARALLEL: usize = 4;
/// Bytes that all repos under way may hold in memory; beyond, they lie in temporary files.
const SPOOL_BUDGET: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every line is {\"did\",\"rev\",\"path\",\"cid\",\"record\"}. A repo is printed only when all of it has been verified; one that fails prints nothing."
)]
pub(super) struct Arguments {
    /// DIDs to fetch, and CAR files to read (anything that does not begin with "did:").
    #[arg(required = true, value_name = "DID | FILE.car")]
    repos: Vec<String>,
    /// Write the lines to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only records of this collection: an NSID, or the beginning of one and ".*". May be repeated.
    #[arg(long, value_name = "NSID")]
    collection: Vec<String>,
    /// The PLC directory.
    #[arg(long, env = "BACKFILL_PLC_URL", value_name = "URL")]
    plc_url: Option<Url>,
    /// Fetch from this host instead of each account's own.
    #[arg(long, env = "BACKFILL_HOST", value_name = "URL")]
    host: Option<Url>,
    /// Whom hosts may ask about this program: an address or a page. Part of the User-Agent.
    #[arg(long, env = "BACKFILL_CONTACT", value_name = "CONTACT")]
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
    let mut repos = Vec::new();
    for repo in &arguments.repos {
        match Did::new(repo) {
            Ok(did) => repos.push(Repo::Did(did)),
            Err(error) if repo.starts_with("did:") => wrong_usage(&error),
            Err(_) => repos.push(Repo::File(repo.into())),
        }
    }
    let source = Source::new(&arguments, key)?;
    let mut out: Box<dyn Write + Send> = match &arguments.out {
        Some(path) => Box::new(File::create(path).map_err(|error| format!("{}: {error}", path.display()))?),
        None => Box::new(io::stdout()),
    };
    let mut all_well = true;
    let source = &source;
    let mut checkouts = stream::iter(&repos).map(|repo| async move { (repo, source.checkout(repo).await) }).buffered(PARALLEL);
    while let Some((repo, checkout)) = checkouts.next().await {
        let checkout = match checkout {
            Ok(checkout) => checkout,
            Err(error) => {
                say(format_args!("{repo}: {}", error_chain(error.as_ref())));
                all_well = false;
                continue;
            }
        };
        let filter = filter.clone();
        let printing = tokio::task::spawn_blocking(move || {
            let printed = print(&checkout, &filter, &mut out);
            (out, checkout, printed)
        });
        let (returned, checkout, printed) = printing.await?;
        out = returned;
        match printed {
            Ok(printed) => {
                let (did, rev) = (checkout.commit().did(), checkout.commit().rev());
                say(format_args!("{did}: {} records at {rev}, {} dropped", count(printed.records), count(printed.dropped)));
            }
            // Nobody reads on: not a failure of any repo.
            Err(PrintError::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(PrintError::Out(error)) => return Err(format!("cannot write: {error}").into()),
            Err(PrintError::Repo(error)) => {
                say(format_args!("{repo}: {}", error_chain(&error)));
                all_well = false;
            }
        }
    }
    Ok(all_well)
}

fn wrong_usage(error: &dyn std::error::Error) -> ! {
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n")).exit()
}

fn parse_key(text: &str) -> Result<PublicKey, crate::repo::KeyError> {
    PublicKey::from_multikey(text.strip_prefix("did:key:").unwrap_or(text))
}

enum Repo {
    Did(Did),
    File(PathBuf),
}

impl std::fmt::Display for Repo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Did(did) => did.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// How the signature of a repo in a file is checked.
enum FileKey {
    Resolve,
    Given(PublicKey),
    Unchecked,
}

struct Source {
    resolver: Arc<dyn Resolver>,
    fetcher: Fetcher,
    pace: Pace,
    budget: SpoolBudget,
    file_key: FileKey,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Source {
    fn new(arguments: &Arguments, key: Option<PublicKey>) -> Result<Self, Failed> {
        let development = arguments.development;
        let agent = user_agent(arguments.contact.as_deref());
        let mut options = ResolverOptions { development, user_agent: agent.clone(), ..ResolverOptions::default() };
        if let Some(url) = &arguments.plc_url {
            options.plc_url = url.clone();
        }
        let resolver: Arc<dyn Resolver> = Arc::new(CachedResolver::new(HttpResolver::new(options)?, CacheOptions::default()));
        let pace = Pace::new(PaceOptions::default());
        let mut source = HttpSource::new(HttpOptions { development, user_agent: agent, ..HttpOptions::default() }, pace.clone())?;
        if let Some(host) = &arguments.host {
            source = source.with_checkout_path(host)?;
        }
        let budget = SpoolBudget::new(SPOOL_BUDGET);
        let fetcher = Fetcher::new(Arc::clone(&resolver), Arc::new(source), SpoolOptions::default(), budget.clone());
        let file_key = match key {
            Some(key) => FileKey::Given(key),
            None if arguments.no_verify_signature => FileKey::Unchecked,
            None => FileKey::Resolve,
        };
        Ok(Self { resolver, fetcher, pace, budget, file_key })
    }

    async fn checkout(&self, repo: &Repo) -> Result<Arc<Checkout>, Failed> {
        match repo {
            Repo::Did(did) => {
                let identity = self.fetcher.identity(did).await?;
                let permit = self.pace.admit(&self.fetcher.host(&identity)).await;
                Ok(self.fetcher.fetch(&identity, permit).await?.0)
            }
            Repo::File(path) => {
                let (path, spool) = (path.clone(), Spool::new(SpoolOptions::default(), &self.budget));
                let checkout = tokio::task::spawn_blocking(move || read(&path, spool)).await??;
                let did = checkout.commit().did();
                match &self.file_key {
                    FileKey::Unchecked => {}
                    FileKey::Given(key) => checkout.verify(did, key)?,
                    FileKey::Resolve => checkout.verify(did, &self.resolver.resolve(did).await?.key)?,
                }
                Ok(Arc::new(checkout))
            }
        }
    }
}

fn read(path: &Path, mut spool: Spool) -> Result<Checkout, Failed> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(spool.finish()?),
            read => spool.push(&buffer[..read])?,
        }
    }
}

#[derive(Default)]
struct Printed {
    records: u64,
    dropped: u64,
}

enum PrintError {
    Repo(crate::repo::CheckoutError),
    Out(io::Error),
}

impl From<crate::repo::CheckoutError> for PrintError {
    fn from(error: crate::repo::CheckoutError) -> Self {
        Self::Repo(error)
    }
}

/// Prints all records, once the whole tree has been walked without finding anything wrong.
fn print(checkout: &Arc<Checkout>, filter: &CollectionFilter, out: &mut (dyn Write + Send)) -> Result<Printed, PrintError> {
    let mut leaves = Leaves::new();
    let mut rehearsal = checkout.walk();
    while rehearsal.next(&mut leaves, 4096)? {}

    let (did, rev) = (checkout.commit().did(), checkout.commit().rev());
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let mut printed = Printed::default();
    let (mut walk, mut wanted, mut records, mut line) = (checkout.walk(), Vec::new(), Records::new(), Vec::new());
    while walk.next(&mut leaves, 512)? {
        for dropped in leaves.dropped() {
            say(format_args!("{did}: record {:?} dropped: {}", dropped.key, dropped.fault));
            printed.dropped += 1;
        }
        wanted.clear();
        wanted.extend((0u32..).zip(leaves.iter()).filter(|(_, leaf)| filter.takes(leaf.path.collection())).map(|(at, _)| at));
        walk.read(&leaves, &wanted, &mut records)?;
        for (leaf, bytes) in wanted.iter().filter_map(|at| leaves.get(*at as usize)).zip(records.iter()) {
            line.clear();
            // DIDs, revs, paths and CIDs hold no character that JSON would have to escape.
            let head = write!(line, r#"{{"did":"{did}","rev":"{rev}","path":"{}","cid":"{}","record":"#, leaf.path, leaf.link);
            head.map_err(PrintError::Out)?;
            match record::check(bytes).and_then(|()| json::write(bytes, &mut line)) {
                Ok(()) => {
                    line.extend_from_slice(b"}\n");
                    out.write_all(&line).map_err(PrintError::Out)?;
                    printed.records += 1;
                }
                Err(fault) => {
                    say(format_args!("{did}: record {} dropped: {fault}", leaf.path));
                    printed.dropped += 1;
                }
            }
        }
    }
    out.flush().map_err(PrintError::Out)?;
    Ok(printed)
}
