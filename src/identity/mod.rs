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
    /// Looks a DID up. Waits for a bounded time only.
    fn resolve<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved>;

    /// Looks a DID up anew, past what is remembered: after a signature that does not match, or a host that does not know the account.
    /// Asks for one account no more often than its look-ups are limited to, and else answers what is remembered.
    fn refresh<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved> {
        self.resolve(did)
    }

    /// Forgets what is remembered of a DID: its document is said to have changed. Looks nothing up.
    fn purge<'a>(&'a self, _did: &'a Did) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
