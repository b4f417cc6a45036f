//! Where repos come from: hosts and files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use url::Url;

use super::patience::{NotHad, Patience, Waiting};
use crate::cli::Failed;
use crate::engine::Fetcher;
use crate::fetch::{ClientError, HttpOptions, HttpSource, Pace, PaceOptions, Spool, SpoolBudget, SpoolOptions};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use crate::repo::{Checkout, PublicKey};
use crate::syntax::Did;

/// Bytes that all repos under way may hold in memory; beyond, they lie in temporary files.
const SPOOL_BUDGET: u64 = 64 << 20;

/// What is to be checked out.
#[derive(Debug)]
pub(super) enum Repo {
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
#[derive(Debug)]
pub(super) enum FileKey {
    Resolve,
    Given(PublicKey),
    Unchecked,
}

/// Whom to ask, and how.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) plc_url: Option<Url>,
    /// Asked in place of every account's own host.
    pub(super) host: Option<Url>,
    pub(super) user_agent: String,
    pub(super) development: bool,
}

/// Gives the repos of one run.
pub(super) struct Source {
    servers: Servers,
    file_key: FileKey,
    budget: SpoolBudget,
    /// Made when something is to be fetched: files alone need no client, and so no CA certificates.
    network: OnceCell<Network>,
    patience: Patience,
    stop: Arc<AtomicBool>,
}

/// The clients for the directory and the hosts.
struct Network {
    resolver: HttpResolver,
    fetcher: Fetcher,
    pace: Pace,
}

impl Source {
    /// A source that asks nobody yet. Files are read no further once `stop` is set.
    pub(super) fn new(servers: Servers, file_key: FileKey, stop: Arc<AtomicBool>) -> Self {
        let (budget, network, patience) = (SpoolBudget::new(SPOOL_BUDGET), OnceCell::new(), Patience::default());
        Self { servers, file_key, budget, network, patience, stop }
    }

    /// Makes what is needed to fetch.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub(super) async fn connect(&self) -> Result<(), ClientError> {
        self.network().await.map(drop)
    }

    async fn network(&self) -> Result<&Network, ClientError> {
        self.network.get_or_try_init(async || Network::new(&self.servers, &self.budget)).await
    }

    /// A repo whose commit is verified to be the account's own.
    pub(super) async fn checkout(&self, repo: &Repo) -> Result<Arc<Checkout>, Failed> {
        match repo {
            Repo::Did(did) => {
                let (network, waiting) = (self.network().await?, self.patience.with(did));
                Ok(waiting.attempt(|| self.fetch(network, did, &waiting)).await?)
            }
            Repo::File(path) => {
                let (path, spool, stop) = (path.clone(), Spool::new(SpoolOptions::default(), &self.budget), Arc::clone(&self.stop));
                let checkout = tokio::task::spawn_blocking(move || read(&path, spool, &stop)).await??;
                let did = checkout.commit().did();
                match &self.file_key {
                    FileKey::Unchecked => {}
                    FileKey::Given(key) => checkout.verify(did, key)?,
                    FileKey::Resolve => checkout.verify(did, &self.key(did).await?)?,
                }
                Ok(Arc::new(checkout))
            }
        }
    }

    async fn fetch(&self, network: &Network, did: &Did, waiting: &Waiting<'_>) -> Result<Arc<Checkout>, NotHad> {
        let identity = network.fetcher.identity(did).await?;
        let host = network.fetcher.host(&identity);
        let permit = waiting.admit(&network.pace, &host).await?;
        let (checkout, _) = network.fetcher.fetch(&identity, permit).await?;
        self.patience.restore(&host);
        Ok(checkout)
    }

    async fn key(&self, did: &Did) -> Result<PublicKey, Failed> {
        let network = self.network().await?;
        Ok(self.patience.with(did).attempt(async || Ok(network.resolver.key(did).await?)).await?)
    }
}

impl Network {
    fn new(servers: &Servers, budget: &SpoolBudget) -> Result<Self, ClientError> {
        let (development, user_agent) = (servers.development, &servers.user_agent);
        let mut options = ResolverOptions { development, user_agent: user_agent.clone(), ..ResolverOptions::default() };
        if let Some(url) = &servers.plc_url {
            options.plc_url = url.clone();
        }
        let resolver = HttpResolver::new(options)?;
        let pace = Pace::new(PaceOptions::default());
        let mut source =
            HttpSource::new(HttpOptions { development, user_agent: user_agent.clone(), ..HttpOptions::default() }, pace.clone())?;
        if let Some(host) = &servers.host {
            source = source.with_checkout_path(host)?;
        }
        let cached = Arc::new(CachedResolver::new(resolver.clone(), CacheOptions::default()));
        let fetcher = Fetcher::new(cached, Arc::new(source), SpoolOptions::default(), budget.clone());
        Ok(Self { resolver, fetcher, pace })
    }
}

fn read(path: &Path, mut spool: Spool, stop: &AtomicBool) -> Result<Checkout, Failed> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 256 << 10];
    while !stop.load(Ordering::Relaxed) {
        match file.read(&mut buffer)? {
            0 => return Ok(spool.finish()?),
            read => spool.push(&buffer[..read])?,
        }
    }
    Err("the program ends".into())
}
