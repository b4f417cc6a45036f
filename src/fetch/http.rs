use std::fmt;

use futures::future::BoxFuture;
use reqwest::header::{HeaderValue, LOCATION};
use reqwest::{Client, Response};
use url::Url;

use super::answer::{ErrorBody, MAX_ERROR_BODY};
use super::body::Limit;
use super::client::{Transport, client};
use super::error::{FetchCause, FetchError, Phase};
use super::guard::Guard;
use super::{ClientError, Host, HttpOptions, Pace, Permit, RepoBody};
use crate::syntax::{Did, Rev};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;
const GET_REPO: &str = "/xrpc/com.atproto.sync.getRepo";

/// Where repos come from.
pub trait RepoSource: fmt::Debug + Send + Sync + 'static {
    /// The host that is really asked for a repo that `pds` holds. Pace and queues go by it.
    fn host_for(&self, pds: &Host) -> Host {
        pds.clone()
    }

    /// Asks for a repo; the permit is one of the host that [`RepoSource::host_for`] names. `since` asks for the blocks after that rev only,
    /// which the host may ignore.
    fn get_repo<'a>(
        &'a self,
        did: &'a Did,
        pds: &'a Host,
        since: Option<Rev>,
        permit: Permit,
    ) -> BoxFuture<'a, Result<RepoBody, FetchError>>;
}

/// Repos over HTTP: `com.atproto.sync.getRepo`.
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
    get_repo: Url,
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

    /// Asks this host in place of every account's own: a base URL such as `https://relay.example.com`, with or without the path of the
    /// endpoint. It is trusted as given, so it may be plain `http` and on this machine; where it redirects to is not.
    ///
    /// # Errors
    /// When the URL is not an http(s) one, or as [`HttpSource::new`].
    pub fn with_checkout_path(mut self, base: &Url) -> Result<Self, ClientError> {
        let host = Host::of_url(base).map_err(|error| ClientError { reason: error.to_string() })?;
        let mut get_repo = base.clone();
        let path = base.path().trim_end_matches('/');
        get_repo.set_path(&format!("{}{GET_REPO}", path.strip_suffix(GET_REPO).unwrap_or(path)));
        get_repo.set_query(None);
        get_repo.set_fragment(None);
        self.fixed = Some(Fixed { client: client(&self.options, false)?, host, get_repo });
        Ok(self)
    }

    async fn open(&self, did: &Did, pds: &Host, since: Option<Rev>, permit: Permit) -> Result<RepoBody, FetchError> {
        let limit = Limit::starting_now(&self.options);
        let mut hop = self.first_hop(pds, permit).map_err(|cause| failure(did, pds.name(), cause))?;
        hop.url.query_pairs_mut().append_pair("did", did.as_str());
        if let Some(since) = since {
            hop.url.query_pairs_mut().append_pair("since", since.as_str());
        }
        for _ in 0..=MAX_REDIRECTS {
            let host = hop.permit.host().to_owned();
            hop = match self.ask(hop, &limit).await.map_err(|cause| failure(did, &host, cause))? {
                Answer::Repo(response, permit) => return Ok(RepoBody::of_response(did.clone(), response, permit, limit)),
                Answer::Elsewhere(url) => self.next_hop(url, &limit).await.map_err(|(host, cause)| failure(did, &host, cause))?,
            };
        }
        Err(failure(did, hop.permit.host(), FetchCause::Redirect { reason: "more than 5 in a row" }))
    }

    fn first_hop(&self, pds: &Host, permit: Permit) -> Result<Hop<'_>, FetchCause> {
        if let Some(fixed) = &self.fixed {
            return Ok(Hop { client: &fixed.client, url: fixed.get_repo.clone(), permit });
        }
        let url =
            Url::parse(&format!("{}{GET_REPO}", pds.origin())).map_err(|error| FetchCause::Forbidden { reason: error.to_string() })?;
        self.check(&url)?;
        Ok(Hop { client: &self.guarded, url, permit })
    }

    /// The hop to a redirect's target, once that host's pace admits it.
    async fn next_hop(&self, url: Url, limit: &Limit) -> Result<Hop<'_>, (String, FetchCause)> {
        let host = Host::of_url(&url).map_err(|_| (String::new(), FetchCause::Redirect { reason: "the target is not http(s)" }))?;
        let failed = |cause| (host.name().to_owned(), cause);
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
            return Ok(Answer::Repo(response, permit));
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
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = self.fixed.as_ref().map(|fixed| fixed.get_repo.as_str());
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
    Repo(Response, Permit),
    Elsewhere(Url),
}

fn failure(did: &Did, host: &str, cause: FetchCause) -> FetchError {
    FetchError { did: did.clone(), host: host.to_owned(), cause }
}

fn no_answer(transport: Transport, permit: &Permit, options: &HttpOptions) -> FetchCause {
    match transport {
        Transport::Connect { reason, .. } => {
            permit.unreachable();
            FetchCause::Connect { reason }
        }
        Transport::ConnectTimeout => {
            permit.unreachable();
            FetchCause::Timeout { phase: Phase::Connect, after: options.connect_timeout }
        }
        Transport::Forbidden { reason } => {
            permit.unreachable();
            FetchCause::Forbidden { reason }
        }
        Transport::Broken { reason } => {
            permit.troubled();
            FetchCause::Connect { reason }
        }
    }
}

/// Where a redirect leads.
fn target(from: &Url, location: Option<&HeaderValue>) -> Result<Url, FetchCause> {
    let broken = |reason| FetchCause::Redirect { reason };
    let location = location.ok_or(broken("it names no target"))?;
    let url = location.to_str().ok().and_then(|location| from.join(location).ok()).ok_or(broken("the target is not a URL"))?;
    if from.scheme() == "https" && url.scheme() != "https" {
        return Err(broken("it leads away from TLS"));
    }
    Ok(url)
}

/// The first bytes of an error's body, or what came of them in time.
async fn beginning(mut response: Response, limit: &Limit) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = limit.apply(Phase::Body, response.chunk()).await {
        let room = MAX_ERROR_BODY - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == MAX_ERROR_BODY {
            break;
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(from: &str, location: &[u8]) -> Result<String, FetchCause> {
        target(&Url::parse(from).unwrap(), HeaderValue::from_bytes(location).ok().as_ref()).map(Into::into)
    }

    #[test]
    fn a_redirect_may_be_relative_and_may_gain_tls_but_not_lose_it() {
        let from = "https://relay.example.com/xrpc/a?did=did:plc:x";
        assert_eq!(redirect(from, b"https://pds.example.com/xrpc/a").unwrap(), "https://pds.example.com/xrpc/a");
        assert_eq!(redirect(from, b"/other?x").unwrap(), "https://relay.example.com/other?x");
        assert_eq!(redirect("http://127.0.0.1:1/a", b"https://pds.example.com/a").unwrap(), "https://pds.example.com/a");
        for away in [&b"http://pds.example.com/xrpc/a"[..], b"ftp://pds.example.com/", b"file:///etc/passwd", b"https://[::/", b"\xff"] {
            assert!(matches!(redirect(from, away), Err(FetchCause::Redirect { .. })), "{away:?}");
        }
        assert!(matches!(target(&Url::parse(from).unwrap(), None), Err(FetchCause::Redirect { .. })));
    }
}
