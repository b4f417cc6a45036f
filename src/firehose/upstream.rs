use std::fmt;
use std::sync::Arc;

use url::Url;

use crate::fetch::Host;

const SUBSCRIBE_REPOS: &str = "/xrpc/com.atproto.sync.subscribeRepos";

/// A firehose to follow: one relay's, or one PDS host's. Cloning is cheap.
///
/// It is named by the operator and trusted as given, so it may be on this machine and without TLS; where it redirects to is not.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    name: Arc<str>,
    url: Url,
    at: Host,
    kind: UpstreamKind,
}

/// Whose events an upstream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamKind {
    /// Those of accounts of any host.
    Relay,
    /// Those of its own accounts; it may say nothing about others.
    Host,
}

impl UpstreamKind {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Host => "host",
        }
    }
}

impl Upstream {
    /// A relay: a `wss`, `https`, `ws` or `http` URL, with or without the path of the endpoint. A query is not kept.
    ///
    /// # Errors
    /// When it is no such URL, or has a user.
    pub fn relay(url: impl AsRef<str>) -> Result<Self, UpstreamError> {
        Self::parse(url.as_ref(), UpstreamKind::Relay)
    }

    /// A PDS host; otherwise as [`Upstream::relay`].
    ///
    /// # Errors
    /// As [`Upstream::relay`].
    pub fn host(url: impl AsRef<str>) -> Result<Self, UpstreamError> {
        Self::parse(url.as_ref(), UpstreamKind::Host)
    }

    fn parse(text: &str, kind: UpstreamKind) -> Result<Self, UpstreamError> {
        // Not the text itself: it may hold a password.
        let broken = |rule| UpstreamError { rule };
        let mut url = http_url(&Url::parse(text).map_err(|_| broken("not a URL"))?).ok_or(broken("neither wss, https, ws nor http"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(broken("has a user"));
        }
        let at = Host::of_url(&url).map_err(|error| broken(error.rule))?;
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix(SUBSCRIBE_REPOS).unwrap_or(path).to_owned();
        url.set_path(&format!("{path}{SUBSCRIBE_REPOS}"));
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { name: format!("{}{path}", at.name()).into(), url, at, kind })
    }

    /// Names it in the store, where it keys the cursor, and in logs and metrics: host, port where it is not the scheme's own, and the path before the
    /// endpoint's own, such as `relay.example.com`. Whether TLS is used makes no difference.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The endpoint, as `https` or `http`, without a cursor.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The server, to compare with the host of an account.
    pub fn at(&self) -> &Host {
        &self.at
    }

    /// Whose events it carries.
    pub fn kind(&self) -> UpstreamKind {
        self.kind
    }

    pub(super) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }
}

/// The URL under which a WebSocket is asked for over HTTP; none for other schemes.
pub(super) fn http_url(url: &Url) -> Option<Url> {
    let mut url = url.clone();
    match url.scheme() {
        "https" | "http" => {}
        "wss" => url.set_scheme("https").ok()?,
        "ws" => url.set_scheme("http").ok()?,
        _ => return None,
    }
    Some(url)
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({} {})", self.kind.as_str(), self.url)
    }
}

/// Text that names no upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the address of a firehose: {rule}")]
pub struct UpstreamError {
    /// The rule that the text breaks.
    pub rule: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_firehose_has_one_name_however_it_is_written() {
        for text in [
            "wss://relay.example.com",
            "https://relay.example.com/",
            "ws://Relay.Example.com:80",
            "wss://relay.example.com:443/xrpc/com.atproto.sync.subscribeRepos",
            "https://relay.example.com/xrpc/com.atproto.sync.subscribeRepos/?cursor=5#x",
        ] {
            assert_eq!(Upstream::relay(text).unwrap().name(), "relay.example.com", "{text}");
        }
        let upstream = Upstream::host("ws://127.0.0.1:2583/mirror/").unwrap();
        assert_eq!(
            (upstream.name(), upstream.at().name(), upstream.kind()),
            ("127.0.0.1:2583/mirror", "127.0.0.1:2583", UpstreamKind::Host)
        );
        assert_eq!(upstream.url().as_str(), "http://127.0.0.1:2583/mirror/xrpc/com.atproto.sync.subscribeRepos");
    }

    #[test]
    fn what_is_no_address_of_a_firehose_is_told_without_its_password() {
        for (text, rule) in [
            ("relay.example.com", "not a URL"),
            ("ftp://relay.example.com", "neither wss, https, ws nor http"),
            ("wss://me:secret@relay.example.com", "has a user"),
            ("data:text/plain,x", "neither wss, https, ws nor http"),
        ] {
            let error = Upstream::relay(text).unwrap_err();
            assert_eq!(error.rule, rule, "{text}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
