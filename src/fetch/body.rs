use std::fmt;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Response;
use tokio::time::{Duration, Instant};

use super::client::Transport;
use super::error::{FetchCause, FetchError, Phase};
use super::{HttpOptions, Permit};
use crate::syntax::Did;

/// The bytes of one repo as they arrive, uncompressed. They claim to be a CAR; nothing about them has been checked.
///
/// It holds the request's place in flight at the host, so it is dropped as soon as it has been read.
pub struct RepoBody {
    did: Did,
    host: String,
    chunks: BoxStream<'static, Result<Bytes, Transport>>,
    limits: Option<(Permit, Limit)>,
    received: u64,
}

/// The time limits of a body.
pub(super) struct Limit {
    pub(super) idle: Duration,
    pub(super) total: Duration,
    pub(super) deadline: Instant,
}

impl Limit {
    pub(super) fn starting_now(options: &HttpOptions) -> Self {
        Self { idle: options.idle_timeout, total: options.total_timeout, deadline: Instant::now() + options.total_timeout }
    }

    /// The same with at most `total` for everything.
    pub(super) fn within(self, total: Duration) -> Self {
        let less = self.total.saturating_sub(total);
        Self { total: self.total - less, deadline: self.deadline - less, ..self }
    }

    /// Waits for something at most as long as a server may send nothing, and at most until the deadline.
    pub(super) async fn apply<T>(&self, phase: Phase, waiting: impl Future<Output = T>) -> Result<T, FetchCause> {
        let idle = Instant::now() + self.idle;
        tokio::time::timeout_at(idle.min(self.deadline), waiting).await.map_err(|_| match idle < self.deadline {
            true => FetchCause::Timeout { phase, after: self.idle },
            false => FetchCause::Timeout { phase: Phase::Total, after: self.total },
        })
    }
}

impl RepoBody {
    /// A body that did not come over HTTP.
    pub fn from_chunks(did: Did, host: String, chunks: BoxStream<'static, Bytes>) -> Self {
        Self { did, host, chunks: chunks.map(Ok).boxed(), limits: None, received: 0 }
    }

    pub(super) fn of_response(did: Did, response: Response, permit: Permit, limit: Limit) -> Self {
        let chunks = response.bytes_stream().map(|chunk| chunk.map_err(Transport::of)).boxed();
        Self { did, host: permit.host().to_owned(), chunks, limits: Some((permit, limit)), received: 0 }
    }

    /// The host that sends it: after a redirect, its target.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Bytes that have come so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The next bytes; none when the body has ended in good order. Not to be called again after an end or an error.
    ///
    /// # Errors
    /// When the host is too slow, or the connection breaks.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        let next = match &self.limits {
            Some((_, limit)) => limit.apply(Phase::Body, self.chunks.next()).await,
            None => Ok(self.chunks.next().await),
        };
        let cause = match next {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(bytes))) => {
                self.received += bytes.len() as u64;
                return Ok(Some(bytes));
            }
            Ok(Some(Err(transport))) => FetchCause::Cut { received: self.received, reason: transport.reason() },
            Err(timeout) => timeout,
        };
        if let Some((permit, _)) = &self.limits {
            permit.troubled();
        }
        Err(FetchError { did: Some(self.did.clone()), host: self.host.clone(), cause })
    }
}

impl fmt::Debug for RepoBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepoBody")
            .field("did", &self.did)
            .field("host", &self.host)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}
