//! One checkout up to the point where the repo is known to be the account's own: identity, fetch, spool, commit, signature.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::fetch::{Disposition, FetchError, Permit, RepoBody, RepoSource, Spool, SpoolBudget, SpoolOptions};
use crate::identity::{Identity, ResolveError, Resolver};
use crate::job::FailureKind;
use crate::repo::{Checkout, CheckoutError};
use crate::syntax::Did;

/// Bytes of a body that are spooled at once away from the async threads: a quarter of a millisecond of hashing.
const SPOOL_AT_ONCE: usize = 256 << 10;

/// Why a repo was not checked out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckoutFailure {
    /// The account's identity is not to be had.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The host did not give the repo.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// What the host gave is not the account's repo.
    #[error("{did} from {host}")]
    Repo {
        /// The repo.
        did: Did,
        /// The host that gave it.
        host: String,
        /// What is wrong with it.
        #[source]
        source: CheckoutError,
    },
    /// The work was interrupted because a thread could not be had or died.
    #[error("{did}: the local machine failed")]
    Local {
        /// The repo.
        did: Did,
        /// Why.
        #[source]
        source: tokio::task::JoinError,
    },
}

impl CheckoutFailure {
    /// What becomes of the job.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Resolve(error) => error.disposition(),
            Self::Fetch(error) => error.disposition(),
            Self::Repo { source, .. } => Disposition::Failed(source.kind()),
            Self::Local { .. } => Disposition::Failed(FailureKind::Local),
        }
    }
}

/// Fetches repos and verifies whose they are. It keeps nothing and delivers nothing.
#[derive(Debug, Clone)]
pub struct Fetcher {
    resolver: Arc<dyn Resolver>,
    source: Arc<dyn RepoSource>,
    spool: SpoolOptions,
    budget: SpoolBudget,
}

impl Fetcher {
    /// A fetcher. `budget` is what all spools of this machine may hold in memory.
    pub fn new(resolver: Arc<dyn Resolver>, source: Arc<dyn RepoSource>, spool: SpoolOptions, budget: SpoolBudget) -> Self {
        Self { resolver, source, spool, budget }
    }

    /// Who the account is. Remembered identities will do.
    ///
    /// # Errors
    /// [`CheckoutFailure::Resolve`].
    pub async fn identity(&self, did: &Did) -> Result<Arc<Identity>, CheckoutFailure> {
        Ok(self.resolver.resolve(did).await?)
    }

    /// Who the account is now, past what is remembered. It is not waited for a look-up to be allowed: an identity of a moment ago will do, and is in doubt
    /// from then on.
    ///
    /// # Errors
    /// [`CheckoutFailure::Resolve`].
    pub async fn identity_anew(&self, did: &Did) -> Result<Arc<Identity>, CheckoutFailure> {
        self.doubt(did, Instant::now()).await;
        self.identity(did).await
    }

    /// Who the account is, for what is judged by it once and for all; see [`Resolver::current`].
    pub(super) async fn current_identity(&self, did: &Did, since: Option<Instant>) -> Result<Arc<Identity>, ResolveError> {
        self.resolver.current(did, since).await
    }

    /// An account's identity is said to have changed by then.
    pub(super) async fn doubt(&self, did: &Did, since: Instant) {
        self.resolver.purge(did, since).await;
    }

    /// The host that is asked for an account's repo, as the pace names it.
    pub fn host(&self, identity: &Identity) -> String {
        self.source.host_for(&identity.pds).name().to_owned()
    }

    /// Where repos come from.
    pub(super) fn source(&self) -> &dyn RepoSource {
        &*self.source
    }

    /// Fetches a repo. A `true` with it: it came from the account's own host.
    ///
    /// A signature that does not match has the identity looked up once more, since the key may have changed. Where that was done a moment ago the attempt
    /// fails, rather than hold up others, and its retry looks it up.
    ///
    /// # Errors
    /// Every way in which a repo cannot be had; see [`CheckoutFailure`].
    pub async fn fetch(&self, identity: &Identity, permit: Permit) -> Result<(Arc<Checkout>, bool), CheckoutFailure> {
        let did = &identity.did;
        let body = self.source.get_repo(did, &identity.pds, None, permit).await?;
        let host = body.host().to_owned();
        let checkout = self.spool(did, body).await?;
        self.verify(identity, &host, &checkout).await?;
        let own = host == identity.pds.name();
        Ok((checkout, own))
    }

    async fn verify(&self, identity: &Identity, host: &str, checkout: &Checkout) -> Result<(), CheckoutFailure> {
        let did = &identity.did;
        let failure = |source| CheckoutFailure::Repo { did: did.clone(), host: host.to_owned(), source };
        match checkout.verify(did, &identity.key) {
            Err(CheckoutError::Signature { .. }) => {
                let identity = self.identity_anew(did).await?;
                checkout.verify(did, &identity.key).map_err(failure)
            }
            verified => verified.map_err(failure),
        }
    }

    async fn spool(&self, did: &Did, mut body: RepoBody) -> Result<Arc<Checkout>, CheckoutFailure> {
        let mut spool = Box::new(Spool::new(self.spool.clone(), &self.budget));
        let mut waiting = BytesMut::new();
        loop {
            let chunk = body.chunk().await?;
            let ended = chunk.is_none();
            waiting.extend_from_slice(&chunk.unwrap_or_default());
            if waiting.len() < SPOOL_AT_ONCE && !ended {
                continue;
            }
            let bytes = waiting.split();
            let spooled = if bytes.len() < SPOOL_AT_ONCE {
                // The whole repo, or its rest, is small: handing it to another thread would cost more than hashing it.
                push(spool, &bytes, ended)
            } else {
                let pushed = tokio::task::spawn_blocking(move || push(spool, &bytes, ended)).await;
                pushed.map_err(|source| CheckoutFailure::Local { did: did.clone(), source })?
            };
            let failure = |source| CheckoutFailure::Repo { did: did.clone(), host: body.host().to_owned(), source };
            match spooled.map_err(failure)? {
                Spooled::More(more) => spool = more,
                Spooled::Whole(checkout) => return Ok(checkout),
            }
        }
    }
}

enum Spooled {
    More(Box<Spool>),
    Whole(Arc<Checkout>),
}

fn push(mut spool: Box<Spool>, bytes: &[u8], ended: bool) -> Result<Spooled, CheckoutError> {
    spool.push(bytes)?;
    if ended { spool.finish().map(|checkout| Spooled::Whole(Arc::new(checkout))) } else { Ok(Spooled::More(spool)) }
}
