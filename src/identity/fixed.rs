use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Identity, ResolveCause, ResolveError, Resolved, Resolver};
use crate::syntax::Did;

/// Knows the accounts that it was given, and no others. Asks nobody.
#[derive(Debug, Clone, Default)]
pub struct StaticResolver {
    identities: HashMap<Did, Arc<Identity>>,
}

impl FromIterator<Identity> for StaticResolver {
    fn from_iter<I: IntoIterator<Item = Identity>>(identities: I) -> Self {
        Self { identities: identities.into_iter().map(|identity| (identity.did.clone(), Arc::new(identity))).collect() }
    }
}

impl Resolver for StaticResolver {
    fn resolve<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved> {
        let found = self.identities.get(did).cloned();
        let not_found = || ResolveError { did: did.clone(), server: String::new(), cause: ResolveCause::NotFound };
        Box::pin(std::future::ready(found.ok_or_else(not_found)))
    }
}
