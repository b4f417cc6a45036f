use std::borrow::Cow;

use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use crate::sim::fault::Place;
use crate::syntax::Did;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `com.atproto.sync.getRepo`.
    GetRepo,
    /// `com.atproto.sync.getLatestCommit`.
    GetLatestCommit,
    /// `com.atproto.sync.getRepoStatus`.
    GetRepoStatus,
    /// `com.atproto.sync.listRepos`.
    ListRepos,
    /// `com.atproto.sync.listHosts`, of the relay.
    ListHosts,
    /// `com.atproto.sync.subscribeRepos`: the upgrade to a WebSocket.
    SubscribeRepos,
    /// `com.atproto.repo.listRecords`.
    ListRecords,
    /// A DID document: of the PLC directory, or `/.well-known/did.json`.
    DidDocument,
    /// Anything else: answered with 404 or 501.
    Other,
}

/// A request, as far as it is understood.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it asks for.
    pub endpoint: Endpoint,
    /// The PDS that was asked, by its number; none for the directory, the relay and documents of `did:web`.
    pub host: Option<usize>,
    /// The relay that was asked, by its number.
    pub relay: Option<usize>,
    /// The account it is about, where it names one.
    pub did: Option<Did>,
    /// The headers.
    pub headers: HeaderMap,
    pub(super) path_and_query: String,
    query: Vec<(String, String)>,
}

impl Request {
    /// Reads a request to the PDS or relay (`com.atproto.*`).
    pub(super) fn xrpc(place: Place, parts: &Parts) -> Self {
        let endpoint = match parts.uri.path() {
            "/xrpc/com.atproto.sync.getRepo" => Endpoint::GetRepo,
            "/xrpc/com.atproto.sync.getLatestCommit" => Endpoint::GetLatestCommit,
            "/xrpc/com.atproto.sync.getRepoStatus" => Endpoint::GetRepoStatus,
            "/xrpc/com.atproto.sync.listRepos" => Endpoint::ListRepos,
            "/xrpc/com.atproto.sync.listHosts" => Endpoint::ListHosts,
            "/xrpc/com.atproto.sync.subscribeRepos" => Endpoint::SubscribeRepos,
            "/xrpc/com.atproto.repo.listRecords" => Endpoint::ListRecords,
            _ => Endpoint::Other,
        };
        let query: Vec<(String, String)> = parts.uri.query().map(pairs).unwrap_or_default();
        let named = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let did = named("did").or_else(|| named("repo")).and_then(|did| Did::new(did).ok());
        let (host, relay) = match place {
            Place::Host(host) => (Some(host), None),
            Place::Relay(relay) => (None, Some(relay)),
        };
        Self { endpoint, host, relay, did, headers: parts.headers.clone(), path_and_query: parts.uri.to_string(), query }
    }

    /// Reads a request to the directory, or to the web server of a `did:web` account.
    pub(super) fn document(web: Option<&Did>, parts: &Parts) -> Self {
        let path = parts.uri.path();
        let did = match web {
            Some(did) => (path == "/.well-known/did.json").then(|| did.clone()),
            None => percent_decoded(path.trim_start_matches('/')).and_then(|did| Did::new(&did).ok()),
        };
        let endpoint = if did.is_some() { Endpoint::DidDocument } else { Endpoint::Other };
        let (headers, path_and_query) = (parts.headers.clone(), parts.uri.to_string());
        Self { endpoint, host: None, relay: None, did, headers, path_and_query, query: Vec::new() }
    }

    /// A parameter of the query, decoded; the first of that name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether the client takes gzip.
    pub(super) fn takes_gzip(&self) -> bool {
        let accepted = self.headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        accepted.is_some_and(|value| value.split(',').any(|coding| coding.trim().starts_with("gzip")))
    }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(query.as_bytes()).map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

/// A path segment without its escapes: a `did:web` with a port has one of its own.
fn percent_decoded(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.contains('%') {
        return Some(segment.into());
    }
    let decoded = url::form_urlencoded::parse(segment.replace('+', "%2B").as_bytes()).next()?.0.into_owned();
    Some(decoded.into())
}
