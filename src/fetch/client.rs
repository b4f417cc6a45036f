use std::error::Error;
use std::time::Duration;

use reqwest::{Client, ClientBuilder, redirect};

use super::guard::{Guard, NotPublic};

/// How servers are spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// What the `User-Agent` header says: product, version and a contact; see [`user_agent`].
    pub user_agent: String,
    /// How long connecting may take, name look-up and TLS included. Default 10 s.
    pub connect_timeout: Duration,
    /// How long a server may send nothing, before its answer and between two chunks of it. Default 60 s.
    pub idle_timeout: Duration,
    /// How long a request may take with its redirects and its whole body. Default 30 min.
    pub total_timeout: Duration,
    /// Allows `http` and addresses that are not public, for networks on one's own machine. Default off.
    pub development: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            user_agent: user_agent(None),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(30 * 60),
            development: false,
        }
    }
}

/// The `User-Agent` of this program: `atproto-backfill/<version>`, and in brackets whom to ask about it (an address or a page).
pub fn user_agent(contact: Option<&str>) -> String {
    let product = concat!("atproto-backfill/", env!("CARGO_PKG_VERSION"));
    match contact {
        Some(contact) => format!("{product} ({contact})"),
        None => product.to_owned(),
    }
}

/// The HTTP client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client (are the system's CA certificates installed?): {reason}")]
pub struct ClientError {
    /// Why, in words.
    pub reason: String,
}

/// A client that follows no redirects and uses no proxy from the environment. `guarded`: it connects to public addresses only.
pub(crate) fn client(options: &HttpOptions, guarded: bool) -> Result<Client, ClientError> {
    build(options, guarded, |builder| builder)
}

/// As [`client`], for connections that become WebSockets: HTTP/1.1, and nothing compressed.
pub(crate) fn upgrading_client(options: &HttpOptions, guarded: bool) -> Result<Client, ClientError> {
    build(options, guarded, |builder| builder.http1_only().no_gzip())
}

fn build(options: &HttpOptions, guarded: bool, also: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, ClientError> {
    let builder = || {
        let builder = also(Client::builder())
            .user_agent(&options.user_agent)
            .connect_timeout(options.connect_timeout)
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(2);
        if guarded { builder.dns_resolver(Guard) } else { builder }
    };
    // A machine without CA certificates can still speak plain http to itself; there, https fails when it is used.
    let made = match builder().build() {
        Err(_) if options.development => builder().tls_certs_only([]).build(),
        made => made,
    };
    made.map_err(|error| ClientError { reason: chain(&error) })
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    /// There is no connection: refused, no route, no name, no valid certificate.
    Connect { reason: String, no_such_name: bool },
    /// The connection was not even tried.
    Forbidden { reason: String },
    /// Connecting took too long.
    ConnectTimeout,
    /// The connection broke.
    Broken { reason: String },
}

impl Transport {
    pub(crate) fn of(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if let Some(refused) = find::<NotPublic>(&error) {
            return Self::Forbidden { reason: refused.to_string() };
        }
        let reason = chain(&error);
        match error {
            error if error.is_connect() && error.is_timeout() => Self::ConnectTimeout,
            error if error.is_connect() => Self::Connect { no_such_name: is_no_such_name(&reason), reason },
            _ => Self::Broken { reason },
        }
    }

    /// Why, in words.
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Connect { reason, .. } | Self::Forbidden { reason } | Self::Broken { reason } => reason,
            Self::ConnectTimeout => "connecting timed out".into(),
        }
    }
}

/// Whether a look-up failed because the name does not exist, in the words of the common C libraries. A server failure, or words that are
/// not known here, may pass.
fn is_no_such_name(reason: &str) -> bool {
    [
        "Name or service not known",
        "No address associated with hostname",
        "nodename nor servname provided",
        "Name does not resolve",
        "No such host",
    ]
    .iter()
    .any(|words| reason.contains(words))
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// An error, its cause, the cause of that, and so on.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// An error and its causes in one line of at most 300 characters.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = String::new();
    for error in causes(error).take(8) {
        let text = error.to_string();
        // Many errors repeat the text of their cause.
        if !line.contains(&text) {
            line.push_str(if line.is_empty() { "" } else { ": " });
            line.push_str(&text);
        }
    }
    line.chars().take(300).collect()
}
