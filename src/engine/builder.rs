use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::checkout::Fetcher;
use super::clock::{Clock, TimeOfDay};
use super::core::Core;
use super::follow::{Follow, FollowOptions};
use super::open::OpenRepos;
use super::shares::Shares;
use super::{Backfiller, Options};
use crate::consumer::{ErasedHandler, Handler};
use crate::fetch::{ClientError, HttpOptions, HttpSource, Pace, PaceOptions, RepoSource, SpoolBudget, SpoolOptions};
use crate::firehose::{self, Upstream};
use crate::identity::{CacheOptions, CachedResolver, HttpResolver, Resolver, ResolverOptions};
use crate::store::{Store, StoreError};

/// Puts a [`Backfiller`] together. What is not given has a default that works against the public network.
pub struct Builder {
    name: String,
    store: Arc<dyn Store>,
    handler: Arc<dyn ErasedHandler>,
    options: Options,
    pace: Pace,
    http: HttpOptions,
    checkout_path: Option<url::Url>,
    spool: SpoolOptions,
    spool_budget: SpoolBudget,
    resolver: Option<Arc<dyn Resolver>>,
    source: Option<Arc<dyn RepoSource>>,
    upstreams: Vec<Upstream>,
    follow: FollowOptions,
    time_of_day: TimeOfDay,
}

/// A backfiller cannot be put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The HTTP client cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The store is another consumer's. A store serves one.
    #[error("the store belongs to the consumer {other:?}, not to {name:?}; give each consumer a store of its own")]
    OtherConsumer {
        /// The name that was asked for.
        name: String,
        /// The name that the store knows.
        other: String,
    },
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Builder {
    pub(super) fn new(name: &str, store: Arc<dyn Store>, handler: impl Handler) -> Self {
        Self {
            name: name.to_owned(),
            store,
            handler: Arc::new(handler),
            options: Options::default(),
            pace: Pace::new(PaceOptions::default()),
            http: HttpOptions::default(),
            checkout_path: None,
            spool: SpoolOptions::default(),
            spool_budget: SpoolBudget::new(64 << 20),
            resolver: None,
            source: None,
            upstreams: Vec::new(),
            follow: FollowOptions::default(),
            time_of_day: Arc::new(SystemTime::now),
        }
    }

    /// How the backfiller works.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// How hosts are spared. A pace may be shared by several backfillers of one machine.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Timeouts and the name under which hosts are asked.
    #[must_use]
    pub fn http(mut self, http: HttpOptions) -> Self {
        self.http = http;
        self
    }

    /// A base URL to fetch repos from, in place of each account's own host.
    #[must_use]
    pub fn checkout_path(mut self, base: url::Url) -> Self {
        self.checkout_path = Some(base);
        self
    }

    /// Where the bytes of a repo are kept until it is delivered, and what all repos together may hold in memory. Default 64 MiB.
    #[must_use]
    pub fn spool(mut self, options: SpoolOptions, budget: SpoolBudget) -> Self {
        self.spool = options;
        self.spool_budget = budget;
        self
    }

    /// How identities are looked up. Default: the PLC directory and did:web, remembered.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = Some(resolver);
        self
    }

    /// Where repos come from. Default: each account's host over HTTP.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn RepoSource>) -> Self {
        self.source = Some(source);
        self
    }

    /// A firehose to follow; may be said several times. Each keeps a cursor of its own, and what several tell is taken once.
    #[must_use]
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        if !self.upstreams.iter().any(|other| other.name() == upstream.name()) {
            self.upstreams.push(upstream);
        }
        self
    }

    /// How firehoses are followed.
    #[must_use]
    pub fn follow(mut self, options: FollowOptions) -> Self {
        self.follow = options;
        self
    }

    /// Where the time of day is read, for tests of what a wrong clock does, such as [`WallClock`](crate::sim::WallClock). Default: the system clock.
    ///
    /// It dates retries, from the start on: later jumps move none. It also bounds what upstreams say of their time.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn time_of_day(mut self, read: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.time_of_day = Arc::new(read);
        self
    }

    /// Puts it together; nothing runs yet.
    ///
    /// # Errors
    /// When the store fails, or an HTTP client cannot be made.
    pub async fn build(self) -> Result<Backfiller, BuildError> {
        let resolver = match self.resolver {
            Some(resolver) => resolver,
            None => {
                let (user_agent, development) = (self.http.user_agent.clone(), self.http.development);
                let options = ResolverOptions { user_agent, development, ..ResolverOptions::default() };
                Arc::new(CachedResolver::new(HttpResolver::new(options)?, CacheOptions::default()))
            }
        };
        let follow = if self.upstreams.is_empty() {
            None
        } else {
            let client = firehose::Client::new(self.follow.client.clone())?;
            Some(Arc::new(Follow::new(self.follow, client, self.upstreams)))
        };
        let source = match (self.source, self.checkout_path) {
            (Some(source), _) => source,
            (None, None) => Arc::new(HttpSource::new(self.http, self.pace.clone())?),
            (None, Some(base)) => Arc::new(HttpSource::new(self.http, self.pace.clone())?.with_checkout_path(&base)?),
        };
        if let Some(other) = self.store.consumers().await?.into_iter().find(|name| *name != self.name) {
            return Err(BuildError::OtherConsumer { name: self.name, other });
        }
        let consumer = self.store.consumer(&self.name).await?;
        let stop = CancellationToken::new();
        let shares = Arc::new(Shares::new(self.store.fleet().is_some()));
        Ok(Backfiller::new(Core {
            consumer,
            store: self.store,
            handler: self.handler,
            fetcher: Fetcher::new(resolver, source, self.spool, self.spool_budget),
            pace: self.pace,
            options: self.options,
            clock: Clock::start(self.time_of_day),
            counters: Default::default(),
            open: Arc::new(OpenRepos::new(stop.clone())),
            lanes: Default::default(),
            shares,
            follow,
            held: Default::default(),
            dispatch: Notify::new(),
            room: Notify::new(),
            audit: Notify::new(),
            settled: Notify::new(),
            stop,
            abandon: CancellationToken::new(),
            left: CancellationToken::new(),
            tracker: TaskTracker::new(),
            broken: false.into(),
        }))
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}
