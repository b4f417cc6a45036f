use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::header::LOCATION;
use reqwest::{Client, Response};
use url::Url;

use super::answer::ErrorBody;
use super::body::Limit;
use super::client::{Transport, client};
use super::error::{FetchCause, FetchError, Phase};
use super::guard::Guard;
use super::listing;
use super::response::{beginning, no_answer, target, whole};
use super::source::{Latest, RepoPage, RepoSource};
use super::{ClientError, Host, HttpOptions, Pace, Permit, RepoBody};
use crate::syntax::{Did, Rev};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;
/// How long a small answer may take in all: its size is bounded, so that only a host that trickles needs longer.
const SMALL_TOTAL: Duration = Duration::from_secs(120);
const GET_REPO: &str = "/xrpc/com.atproto.sync.getRepo";
const GET_LATEST_COMMIT: &str = "/xrpc/com.atproto.sync.getLatestCommit";
const LIST_REPOS: &str = "/xrpc/com.atproto.sync.listRepos";

/// Repos over HTTP: `com.atproto.sync.getRepo`, `getLatestCommit` and `listRepos`.
#[derive(Clone)]
pub struct HttpSource {
    options: HttpOptions,
    pace: Pace,
    /// For hosts that foreign data names.
    guarded: Client,
    /// For the host that the operator names, and where it may be.
    fixed: Option<Fixed>,
}

#[derive(Clone)]
struct Fixed {
    client: Client,
    host: Host,
    /// With the path that comes before that of an endpoint.
    base: Url,
}

impl HttpSource {
    /// A source that asks the host of each account.
    ///
    /// # Errors
    /// When the system has no usable TLS configuration, or the user agent is not a header value.
    pub fn new(options: HttpOptions, pace: Pace) -> Result<Self, ClientError> {
        let guarded = client(&options, !options.development)?;
        Ok(Self { options, pace, guarded, fixed: None })
    }

    /// Asks this host in place of every account's own: a base URL such as `https://relay.example.com`, with or without the path of
    /// `getRepo`. It is trusted as given, so it may be plain `http` and on this machine; where it redirects to is not.
    ///
    /// # Errors
    /// When the URL is not an http(s) one, or as [`HttpSource::new`].
    pub fn with_checkout_path(mut self, base: &Url) -> Result<Self, ClientError> {
        let host = Host::of_url(base).map_err(|error| ClientError { reason: error.to_string() })?;
        let mut base = base.clone();
        let path = base.path().trim_end_matches('/');
        let path = path.strip_suffix(GET_REPO).unwrap_or(path).to_owned();
        base.set_path(&path);
        base.set_query(None);
        base.set_fragment(None);
        self.fixed = Some(Fixed { client: client(&self.options, false)?, host, base });
        Ok(self)
    }

    async fn open(&self, did: &Did, pds: &Host, since: Option<Rev>, permit: Permit) -> Result<RepoBody, FetchError> {
        let limit = Limit::starting_now(&self.options);
        let mut query = vec![("did", did.as_str())];
        query.extend(since.as_ref().map(|since| ("since", since.as_str())));
        let (response, permit) = self.request(GET_REPO, &query, pds, permit, &limit).await.map_err(|failed| failed.about(Some(did)))?;
        Ok(RepoBody::of_response(did.clone(), response, permit, limit))
    }

    /// Asks for a small answer and reads it with `read`, which says what is wrong with it otherwise.
    async fn small<T>(
        &self,
        endpoint: &str,
        query: &[(&str, &str)],
        pds: &Host,
        permit: Permit,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T, Failed> {
        let limit = Limit::starting_now(&self.options).within(SMALL_TOTAL);
        let (response, permit) = self.request(endpoint, query, pds, permit, &limit).await?;
        let body = whole(response, &permit, &limit).await;
        let answer = body.and_then(|body| read(&body).map_err(|reason| FetchCause::Malformed { reason }));
        answer.map_err(|cause| Failed { host: permit.host().to_owned(), cause })
    }

    /// Makes a request and follows its redirects, as far as a success.
    async fn request(
        &self,
        endpoint: &str,
        query: &[(&str, &str)],
        pds: &Host,
        permit: Permit,
        limit: &Limit,
    ) -> Result<(Response, Permit), Failed> {
        let mut hop = self.first_hop(endpoint, pds, permit).map_err(|cause| Failed { host: pds.name().to_owned(), cause })?;
        hop.url.query_pairs_mut().extend_pairs(query);
        for _ in 0..=MAX_REDIRECTS {
            let host = hop.permit.host().to_owned();
            hop = match self.ask(hop, limit).await.map_err(|cause| Failed { host, cause })? {
                Answer::Success(response, permit) => return Ok((response, permit)),
                Answer::Elsewhere(url) => self.next_hop(url, limit).await?,
            };
        }
        Err(Failed { host: hop.permit.host().to_owned(), cause: FetchCause::Redirect { reason: "more than 5 in a row" } })
    }

    fn first_hop(&self, endpoint: &str, pds: &Host, permit: Permit) -> Result<Hop<'_>, FetchCause> {
        if let Some(fixed) = &self.fixed {
            let mut url = fixed.base.clone();
            url.set_path(&format!("{}{endpoint}", fixed.base.path().trim_end_matches('/')));
            return Ok(Hop { client: &fixed.client, url, permit });
        }
        let url =
            Url::parse(&format!("{}{endpoint}", pds.origin())).map_err(|error| FetchCause::Forbidden { reason: error.to_string() })?;
        self.check(&url)?;
        Ok(Hop { client: &self.guarded, url, permit })
    }

    /// The hop to a redirect's target, once that host's pace admits it.
    async fn next_hop(&self, url: Url, limit: &Limit) -> Result<Hop<'_>, Failed> {
        let not_http = FetchCause::Redirect { reason: "the target is not http(s)" };
        let host = Host::of_url(&url).map_err(|_| Failed { host: String::new(), cause: not_http })?;
        let failed = |cause| Failed { host: host.name().to_owned(), cause };
        self.check(&url).map_err(failed)?;
        let deadline = limit.deadline.min(tokio::time::Instant::now() + limit.idle);
        match self.pace.admit_before(host.name(), deadline).await {
            Ok(permit) => Ok(Hop { client: &self.guarded, url, permit }),
            Err(wait) => {
                let pause = wait.until.map_or(limit.idle, |until| until.saturating_duration_since(tokio::time::Instant::now()));
                Err(failed(FetchCause::Refused { status: 0, pause }))
            }
        }
    }

    fn check(&self, url: &Url) -> Result<(), FetchCause> {
        if self.options.development {
            return Ok(());
        }
        if url.scheme() != "https" {
            return Err(FetchCause::Forbidden { reason: "not asked over TLS".into() });
        }
        Guard::check(url).map_err(|refused| FetchCause::Forbidden { reason: refused.to_string() })
    }

    /// Makes one request, and tells the pace how it ended.
    async fn ask(&self, hop: Hop<'_>, limit: &Limit) -> Result<Answer, FetchCause> {
        let Hop { client, url, permit } = hop;
        let sent = limit.apply(Phase::Answer, client.get(url.clone()).send()).await;
        let response = match sent.map(|answer| answer.map_err(Transport::of)) {
            Ok(Ok(response)) => response,
            Ok(Err(transport)) => return Err(no_answer(transport, &permit, &self.options)),
            Err(timeout) => {
                permit.troubled();
                return Err(timeout);
            }
        };
        let status = response.status();
        let pause = permit.answered(status.as_u16(), response.headers());
        if status.is_success() {
            return Ok(Answer::Success(response, permit));
        }
        if status.is_redirection() {
            return target(&url, response.headers().get(LOCATION)).map(Answer::Elsewhere);
        }
        let headers = response.headers().clone();
        let body = ErrorBody::parse(&beginning(response, limit).await);
        let pause = if body.is_refusal() { pause.or_else(|| Some(permit.refused(&headers))) } else { pause };
        match (body.cause(status.as_u16()), pause) {
            (cause @ FetchCause::Unavailable { .. }, _) | (cause, None) => Err(cause),
            (_, Some(pause)) => Err(FetchCause::Refused { status: status.as_u16(), pause }),
        }
    }
}

impl RepoSource for HttpSource {
    fn host_for(&self, pds: &Host) -> Host {
        self.fixed.as_ref().map_or(pds, |fixed| &fixed.host).clone()
    }

    fn get_repo<'a>(
        &'a self,
        did: &'a Did,
        pds: &'a Host,
        since: Option<Rev>,
        permit: Permit,
    ) -> BoxFuture<'a, Result<RepoBody, FetchError>> {
        Box::pin(self.open(did, pds, since, permit))
    }

    fn latest_commit<'a>(&'a self, did: &'a Did, pds: &'a Host, permit: Permit) -> BoxFuture<'a, Result<Latest, FetchError>> {
        Box::pin(async move {
            let latest = self.small(GET_LATEST_COMMIT, &[("did", did.as_str())], pds, permit, listing::latest).await;
            latest.map_err(|failed| failed.about(Some(did)))
        })
    }

    fn list_repos<'a>(
        &'a self,
        pds: &'a Host,
        cursor: Option<&'a str>,
        limit: u16,
        permit: Permit,
    ) -> BoxFuture<'a, Result<RepoPage, FetchError>> {
        Box::pin(async move {
            let limit = limit.clamp(1, 1000).to_string();
            let mut query = vec![("limit", limit.as_str())];
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let page = self.small(LIST_REPOS, &query, pds, permit, |body| listing::page(body, cursor)).await;
            page.map_err(|failed| failed.about(None))
        })
    }
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = self.fixed.as_ref().map(|fixed| fixed.base.as_str());
        f.debug_struct("HttpSource").field("options", &self.options).field("checkout_path", &fixed).finish_non_exhaustive()
    }
}

/// One request of a chain of redirects.
struct Hop<'a> {
    client: &'a Client,
    url: Url,
    permit: Permit,
}

enum Answer {
    Success(Response, Permit),
    Elsewhere(Url),
}

/// Why a request has no answer that can be used, and the host that was asked last.
struct Failed {
    host: String,
    cause: FetchCause,
}

impl Failed {
    fn about(self, did: Option<&Did>) -> FetchError {
        FetchError { did: did.cloned(), host: self.host, cause: self.cause }
    }
}
