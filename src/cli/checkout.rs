//! `backfill checkout`: repos from their hosts or from CAR files, verified, as JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::time::Instant;
use url::Url;

use super::report::{count, say};
use super::{Answer, wrong_usage};
use crate::consumer::CollectionFilter;
use crate::engine::{CheckoutFailure, Fetcher, error_chain};
use crate::fetch::{Disposition, HttpOptions, HttpSource, Pace, PaceOptions, Spool, SpoolBudget, SpoolOptions, user_agent};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, Resolver, ResolverOptions};
use crate::repo::{Checkout, Leaves, PublicKey, Records, json, record};
use crate::syntax::Did;

/// Repos that are fetched at the same time.
const PARALLEL: usize = 4;
/// How long a host that refuses for load is waited for.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
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
    let mut repos = Vec::new();
    for repo in &arguments.repos {
        match Did::new(repo) {
            Ok(did) => repos.push(Repo::Did(did)),
            Err(error) if repo.starts_with("did:") => wrong_usage(&error),
            Err(_) if repo.is_empty() || repo.starts_with("at://") => wrong_usage(&format!("{repo:?} is neither a DID nor a file")),
            Err(_) => repos.push(Repo::File(repo.into())),
        }
    }
    let of_files = arguments.no_verify_signature || key.is_some();
    if of_files && repos.iter().any(|repo| matches!(repo, Repo::Did(_))) {
        wrong_usage(&"--key and --no-verify-signature are for files; the repo of a DID is verified with the key of its DID document");
    }
    let source = Source::new(&arguments, key)?;
    let mut out = Out::open(arguments.out.as_deref())?;
    let (mut all_well, mut any_printed) = (true, false);
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
                any_printed = true;
                let (did, rev) = (checkout.commit().did(), checkout.commit().rev());
                say(format_args!("{did}: {} records at {rev}, {} dropped", count(printed.records), count(printed.dropped)));
            }
            // Nobody reads on: not a failure of any repo.
            Err(PrintError::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(all_well),
            Err(PrintError::Out(error)) => return Err(format!("cannot write: {error}").into()),
            Err(PrintError::Repo(error)) => {
                say(format_args!("{repo}: {}", error_chain(&error)));
                all_well = false;
            }
        }
    }
    if any_printed {
        out.keep()?;
    }
    Ok(all_well)
}

/// Where the lines go.
enum Out {
    Standard(io::Stdout),
    /// A file beside the one that was asked for, which it takes the place of at the end: until then, and if all fails, that one is as it was.
    Replacing(tempfile::NamedTempFile, PathBuf),
    /// What is no regular file cannot be replaced.
    Special(File),
}

impl Out {
    fn open(path: Option<&Path>) -> Result<Self, Failed> {
        let Some(path) = path else { return Ok(Self::Standard(io::stdout())) };
        let named = |error: io::Error| format!("{}: {error}", path.display());
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Ok(Self::Special(File::options().write(true).open(path).map_err(named)?));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let beside = tempfile::Builder::new().prefix(".backfill-").permissions(usual_permissions()).tempfile_in(folder).map_err(named)?;
        Ok(Self::Replacing(beside, path.to_owned()))
    }

    fn keep(self) -> Result<(), Failed> {
        match self {
            Self::Replacing(beside, path) => {
                beside.persist(&path).map_err(|error| format!("{}: {}", path.display(), error.error))?;
                Ok(())
            }
            Self::Standard(_) | Self::Special(_) => Ok(()),
        }
    }
}

/// Those of a file that is simply created: temporary files are otherwise for their owner alone.
fn usual_permissions() -> std::fs::Permissions {
    #[cfg(unix)]
    return std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(not(unix))]
    return std::fs::metadata(".").map(|here| here.permissions()).expect("the current folder is there");
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(out) => out.write(bytes),
            Self::Replacing(out, _) => out.write(bytes),
            Self::Special(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(out) => out.flush(),
            Self::Replacing(out, _) => out.flush(),
            Self::Special(out) => out.flush(),
        }
    }
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
                let deadline = Instant::now() + PATIENCE;
                loop {
                    match self.fetch(did).await {
                        Ok(checkout) => return Ok(checkout),
                        // A refusal for load is no failure: the host, or the directory, is asked again when it is ready.
                        Err(error) => match error.disposition() {
                            Disposition::Refused(pause) if Instant::now() + pause < deadline => {
                                say(format_args!("{did}: refused for load, asked again in {} s", pause.as_secs()));
                                tokio::time::sleep(pause).await;
                            }
                            Disposition::Refused(_) | Disposition::Failed(_) | Disposition::Unavailable(_) => return Err(error.into()),
                        },
                    }
                }
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

impl Source {
    async fn fetch(&self, did: &Did) -> Result<Arc<Checkout>, CheckoutFailure> {
        let identity = self.fetcher.identity(did).await?;
        let permit = self.pace.admit(&self.fetcher.host(&identity)).await;
        Ok(self.fetcher.fetch(&identity, permit).await?.0)
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
