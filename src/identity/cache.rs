use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use moka::future::Cache;
use tokio::time::Instant;

use super::{ResolveCause, ResolveError, Resolved, Resolver};
use crate::syntax::Did;

/// For how long, and how much, a [`CachedResolver`] remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// How many DIDs are remembered at most, each in 0.5 to 0.9 KB. Default 50,000.
    pub capacity: u64,
    /// How long a found identity counts. Default 24 h.
    pub found: Duration,
    /// How long an error that lies in the account counts: not found, tombstoned, a broken document. Default 2 min.
    pub error: Duration,
    /// How long an error that lies in the server counts: just enough that many jobs do not all run into it. A refusal counts no
    /// longer than the server is left alone. Default 10 s.
    pub transient: Duration,
    /// The least time between two look-ups of one DID, whoever asks for a new one: a flood of bad signatures or of identity events does not
    /// become a flood of look-ups. Who asks for what is [`Resolver::current`] waits for it to pass. Default 10 s.
    pub refresh: Duration,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            capacity: 50_000,
            found: Duration::from_secs(24 * 60 * 60),
            error: Duration::from_secs(2 * 60),
            transient: Duration::from_secs(10),
            refresh: Duration::from_secs(10),
        }
    }
}

/// Remembers what another resolver answered. Look-ups of one DID that come at once are made once.
#[derive(Debug, Clone)]
pub struct CachedResolver<R> {
    resolver: R,
    slots: Cache<Did, Arc<Slot>>,
    options: CacheOptions,
}

/// What is remembered of one DID.
#[derive(Debug, Default)]
struct Slot {
    /// Whoever holds the lock looks up; the others wait for his answer.
    answer: tokio::sync::Mutex<Option<Answer>>,
    /// Answers that were asked for before this moment are in doubt. Apart from the answer, so that a purge during a look-up counts.
    purged: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Answer {
    resolved: Resolved,
    asked: Instant,
    expires: Instant,
}

impl Slot {
    fn purge(&self, since: Instant) {
        let mut purged = self.purged.lock().unwrap_or_else(PoisonError::into_inner);
        *purged = (*purged).max(Some(since));
    }

    /// Whether an answer is as new as it has to be: for whoever asks, and after the last purge.
    fn is_current(&self, answer: &Answer, since: Option<Instant>) -> bool {
        let purged = *self.purged.lock().unwrap_or_else(PoisonError::into_inner);
        purged.max(since).is_none_or(|since| answer.asked >= since)
    }
}

/// What somebody asks for.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// What is to be had without waiting for the limit.
    AtOnce,
    /// What is true, of this moment or later where one is named.
    Current(Option<Instant>),
}

impl<R: Resolver> CachedResolver<R> {
    /// An empty cache before a resolver.
    pub fn new(resolver: R, options: CacheOptions) -> Self {
        Self { resolver, slots: Cache::new(options.capacity), options }
    }

    /// The resolver behind the cache.
    pub fn inner(&self) -> &R {
        &self.resolver
    }

    /// How many DIDs are remembered now.
    pub async fn remembered(&self) -> u64 {
        // The count is only true once the evictions that are due have been made.
        self.slots.run_pending_tasks().await;
        self.slots.entry_count()
    }

    async fn answer(&self, did: &Did, asks: Asks) -> Resolved {
        let slot = self.slot(did).await;
        loop {
            let mut answer = slot.answer.lock().await;
            let now = Instant::now();
            let known = answer.as_ref().filter(|answer| now < answer.expires);
            let again = known.map_or(now, |known| known.expires.min(known.asked + self.options.refresh));
            if let Some(known) = known {
                let is_good = match asks {
                    Asks::AtOnce => now < again || slot.is_current(known, None),
                    Asks::Current(since) => slot.is_current(known, since),
                };
                if is_good {
                    return known.resolved.clone();
                }
            }
            if again <= now {
                let resolved = self.resolver.resolve(did).await;
                *answer = Some(Answer { resolved: resolved.clone(), asked: now, expires: Instant::now() + self.lasting(&resolved) });
                return resolved;
            }
            // Whom the answer will do, or who finds it renewed meanwhile, does not wait behind this one.
            drop(answer);
            tokio::time::sleep_until(again).await;
        }
    }

    fn lasting(&self, resolved: &Resolved) -> Duration {
        match resolved {
            Ok(_) => self.options.found,
            // Once the server may be asked again, nobody is to wait for this memory of it.
            Err(ResolveError { cause: ResolveCause::Refused { pause }, .. }) => self.options.transient.min(*pause),
            Err(error) if error.is_transient() => self.options.transient,
            Err(_) => self.options.error,
        }
    }

    async fn slot(&self, did: &Did) -> Arc<Slot> {
        match self.slots.get(did).await {
            Some(slot) => slot,
            None => self.slots.get_with_by_ref(did, async { Arc::default() }).await,
        }
    }
}

impl<R: Resolver> Resolver for CachedResolver<R> {
    fn resolve<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved> {
        Box::pin(self.answer(did, Asks::AtOnce))
    }

    fn current<'a>(&'a self, did: &'a Did, since: Option<Instant>) -> BoxFuture<'a, Resolved> {
        Box::pin(self.answer(did, Asks::Current(since)))
    }

    fn purge<'a>(&'a self, did: &'a Did, since: Instant) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(slot) = self.slots.get(did).await {
                slot.purge(since);
            }
        })
    }
}
