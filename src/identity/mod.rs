//! Who an account is: the key that signs its commits, and the host that holds its repo.
//!
//! [`HttpResolver`] looks DIDs up, [`CachedResolver`] remembers what another resolver found, [`StaticResolver`] knows only what it was given.
mod cache;
mod document;
mod error;
mod fixed;
mod http;
mod web;

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::Instant;

pub use cache::{CacheOptions, CachedResolver};
pub use document::DocumentError;
pub use error::{ResolveCause, ResolveError};
pub use fixed::StaticResolver;
pub use http::{HttpResolver, ResolverOptions};

use crate::fetch::Host;
use crate::repo::PublicKey;
use crate::syntax::Did;

/// What a DID document says about an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The account.
    pub did: Did,
    /// The key that signs its commits.
    pub key: PublicKey,
    /// The host that holds its repo.
    pub pds: Host,
}

/// The answer of a [`Resolver`].
pub type Resolved = Result<Arc<Identity>, ResolveError>;

/// Finds out who an account is.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Looks a DID up. Waits for a bounded time only, and never for a look-up to be allowed again: what is remembered is then answered although it is in
    /// doubt. For whoever can come back.
    fn resolve<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved>;

    /// Looks a DID up for whoever takes the answer as final: after an event that does not fit what is remembered, say, with `since` the moment at which it
    /// came. An answer that was asked for before `since`, or before the moment of a purge, does not count. One account is asked for no more often than its
    /// look-ups are limited to; until it may be asked for again this waits, a bounded time, so that one look-up judges everything that came meanwhile.
    fn current<'a>(&'a self, did: &'a Did, _since: Option<Instant>) -> BoxFuture<'a, Resolved> {
        self.resolve(did)
    }

    /// Doubts what is remembered of a DID, if it was asked for before `since`: its document is said to have changed. Looks nothing up.
    fn purge<'a>(&'a self, _did: &'a Did, _since: Instant) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
