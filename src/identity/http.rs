use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::{Client, Response};
use tokio::time::Instant;
use url::Url;

use super::{DocumentError, ResolveCause, ResolveError, Resolved, Resolver, document, web};
use crate::fetch::{Backoff, ClientError, Host, HttpOptions, Pace, PaceOptions, Permit, Rate, Transport, client, user_agent};
use crate::repo::PublicKey;
use crate::syntax::Did;

/// The most that is read of a DID document, in bytes.
const MAX_DOCUMENT: usize = 128 * 1024;

/// How DIDs are looked up.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolverOptions {
    /// The directory of did:plc. It is trusted as given, so it may be plain `http` and on this machine. Default `https://plc.directory`.
    pub plc_url: Url,
    /// What the `User-Agent` header says.
    pub user_agent: String,
    /// How long connecting may take, name look-up and TLS included. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a look-up may take in all. Default 10 s.
    pub total_timeout: Duration,
    /// How fast the directory, and every host of a did:web, is asked. Default 20 requests a second and 8 in flight each, 50 a second in all;
    /// unreachable, each is probed after 2 to 30 s.
    pub pace: PaceOptions,
    /// Allows did:web on this machine and with ports, and `http` as the scheme of a PDS. Default off.
    pub development: bool,
}

impl Default for ResolverOptions {
    fn default() -> Self {
        let pace = PaceOptions {
            host_rate: Rate::clamped(20.0),
            host_in_flight: std::num::NonZeroU32::MIN.saturating_add(7),
            global_rate: Rate::clamped(50.0),
            // Everything waits for the directory, so its return is noticed soon.
            unreachable: Backoff { first: Duration::from_secs(2), last: Duration::from_secs(30) },
            ..PaceOptions::default()
        };
        Self {
            plc_url: default_plc(),
            user_agent: user_agent(None),
            connect_timeout: Duration::from_secs(5),
            total_timeout: Duration::from_secs(10),
            pace,
            development: false,
        }
    }
}

#[allow(clippy::expect_used, reason = "a constant, not upstream data")]
fn default_plc() -> Url {
    Url::parse("https://plc.directory").expect("a constant that is a URL")
}

/// Looks up did:plc in a directory and did:web at its domain. Follows no redirects.
#[derive(Clone)]
pub struct HttpResolver {
    options: ResolverOptions,
    plc: Client,
    /// For hosts that foreign data names.
    web: Client,
    pace: Pace,
}

impl HttpResolver {
    /// A resolver with a pace of its own.
    ///
    /// # Errors
    /// When the system has no usable TLS configuration, or the user agent is not a header value.
    pub fn new(options: ResolverOptions) -> Result<Self, ClientError> {
        let http = HttpOptions {
            user_agent: options.user_agent.clone(),
            connect_timeout: options.connect_timeout,
            idle_timeout: options.total_timeout,
            total_timeout: options.total_timeout,
            development: options.development,
        };
        let (plc, web) = (client(&http, false)?, client(&http, !options.development)?);
        let pace = Pace::new(options.pace);
        Ok(Self { options, plc, web, pace })
    }

    /// The pace that look-ups go by.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Where the document of a DID is, and by which client it is asked for.
    fn place(&self, did: &Did) -> Result<(Url, &Client), &'static str> {
        match did.method() {
            "plc" => {
                let id = did.id();
                if id.len() != 24 || !id.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7')) {
                    return Err("a did:plc must have 24 of a-z 2-7");
                }
                let base = self.options.plc_url.as_str().trim_end_matches('/');
                Ok((Url::parse(&format!("{base}/{did}")).map_err(|_| "the directory's URL takes no path")?, &self.plc))
            }
            "web" => Ok((web::document_url(did, self.options.development)?, &self.web)),
            _ => Err("only did:plc and did:web can be resolved"),
        }
    }

    /// Looks up the key that signs an account's commits, and nothing else: the document need not name a PDS that can be used.
    ///
    /// # Errors
    /// As [`Resolver::resolve`].
    pub async fn key(&self, did: &Did) -> Result<PublicKey, ResolveError> {
        let (document, server) = self.document(did).await?;
        document::parse_key(did, &document).map_err(|error| broken(did, server, error))
    }

    async fn look_up(&self, did: &Did) -> Resolved {
        let (document, server) = self.document(did).await?;
        let identity = document::parse(did, &document, self.options.development);
        identity.map(Arc::new).map_err(|error| broken(did, server, error))
    }

    /// The document of a DID, and the server that gave it.
    async fn document(&self, did: &Did) -> Result<(Vec<u8>, String), ResolveError> {
        let mut server = String::new();
        match self.ask(did, &mut server).await {
            Ok(document) => Ok((document, server)),
            Err(cause) => Err(ResolveError { did: did.clone(), server, cause }),
        }
    }

    async fn ask(&self, did: &Did, server: &mut String) -> Result<Vec<u8>, ResolveCause> {
        let (url, client) = self.place(did).map_err(|rule| ResolveCause::Unsupported { rule })?;
        let host = Host::of_url(&url).map_err(|error| ResolveCause::Unsupported { rule: error.rule })?;
        host.name().clone_into(server);
        let deadline = Instant::now() + self.options.total_timeout;
        let permit = self.pace.admit_before(host.name(), deadline).await.map_err(|wait| {
            let now = Instant::now();
            ResolveCause::Refused { pause: wait.until.unwrap_or(now).saturating_duration_since(now) }
        })?;
        tokio::time::timeout_at(deadline, fetch(client, url, &permit, did)).await.unwrap_or_else(|_| {
            permit.troubled();
            Err(ResolveCause::Timeout { after: self.options.total_timeout })
        })
    }
}

fn broken(did: &Did, server: String, error: DocumentError) -> ResolveError {
    ResolveError { did: did.clone(), server, cause: error.into() }
}

async fn fetch(client: &Client, url: Url, permit: &Permit, did: &Did) -> Result<Vec<u8>, ResolveCause> {
    let response = match client.get(url).send().await.map_err(Transport::of) {
        Ok(response) => response,
        // The name that does not exist is the account's own; the directory's would be the directory's trouble.
        Err(Transport::Connect { no_such_name: true, .. }) if did.method() == "web" => return Err(ResolveCause::NotFound),
        Err(transport) => return Err(no_answer(transport, permit)),
    };
    let status = response.status().as_u16();
    if let Some(pause) = permit.answered(status, response.headers()) {
        return Err(ResolveCause::Refused { pause });
    }
    match (status, did.method()) {
        (200, _) => read(response, permit).await,
        (404, _) => Err(ResolveCause::NotFound),
        (410, "plc") => Err(ResolveCause::Tombstoned),
        _ => Err(ResolveCause::Status { status }),
    }
}

async fn read(mut response: Response, permit: &Permit) -> Result<Vec<u8>, ResolveCause> {
    let mut document = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(Transport::of(error), permit))? {
        if document.len() + chunk.len() > MAX_DOCUMENT {
            return Err(ResolveCause::TooLarge { max: MAX_DOCUMENT });
        }
        document.extend_from_slice(&chunk);
    }
    Ok(document)
}

fn no_answer(transport: Transport, permit: &Permit) -> ResolveCause {
    match transport {
        Transport::Forbidden { reason } => ResolveCause::Forbidden { reason },
        Transport::Broken { reason } => {
            permit.troubled();
            ResolveCause::Connect { reason }
        }
        transport @ (Transport::Connect { .. } | Transport::ConnectTimeout) => {
            permit.unreachable();
            ResolveCause::Connect { reason: transport.reason() }
        }
    }
}

impl Resolver for HttpResolver {
    fn resolve<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved> {
        Box::pin(self.look_up(did))
    }
}

impl fmt::Debug for HttpResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResolver").field("options", &self.options).finish_non_exhaustive()
    }
}
