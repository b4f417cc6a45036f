use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use url::Url;

/// A server that holds repos: a scheme, a host name and a port. Cloning is cheap.
///
/// Two hosts are the same when their lower-case names and ports are. `https` is what the protocol demands; `http` exists for development,
/// and whoever makes a host from foreign data decides whether it is let in ([`Host::is_secure`]).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    name: Arc<str>,
    secure: bool,
}

impl Host {
    /// The longest name, in bytes: a domain name and a port.
    pub const MAX_LEN: usize = 253 + 6;

    /// Parses an origin, such as `https://pds.example.com`.
    ///
    /// # Errors
    /// When it is not an http(s) URL, or has a user, a path, a query or a fragment.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let url = Url::parse(text).map_err(|_| HostError::new("not a URL", text))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(HostError::new("has a user", text));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(HostError::new("has a path, a query or a fragment", text));
        }
        Self::of_url(&url)
    }

    /// The host of a URL, whatever its path.
    ///
    /// # Errors
    /// When the URL is not an http(s) one.
    pub fn of_url(url: &Url) -> Result<Self, HostError> {
        let broken = |rule| Err(HostError::new(rule, url.as_str()));
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return broken("neither https nor http"),
        };
        let Some(host) = url.host_str().map(|host| host.trim_end_matches('.')).filter(|host| !host.is_empty()) else {
            return broken("names no host");
        };
        let name = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        if name.len() > Self::MAX_LEN {
            return broken("longer than 259 bytes");
        }
        Ok(Self { name: name.into(), secure })
    }

    /// The lower-case name, with the port where it is not the scheme's own. Names the host in the store, in logs and to the [`Pace`](super::Pace).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is asked over TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The origin, without a slash at its end.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.secure { "https" } else { "http" }, self.name)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.origin())
    }
}

/// The address that a URL spells out in place of a name, if it does.
pub(crate) fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(address.into()),
        url::Host::Domain(_) => None,
    }
}

/// Text that names no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a host ({rule}): {text:?}")]
pub struct HostError {
    /// The rule that the text breaks.
    pub rule: &'static str,
    /// The text, cut to 128 characters.
    pub text: String,
}

impl HostError {
    fn new(rule: &'static str, text: &str) -> Self {
        Self { rule, text: text.chars().take(128).collect() }
    }
}
