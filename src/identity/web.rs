use std::net::Ipv4Addr;

use url::Url;

use crate::syntax::Did;

/// Top-level domains that no account's domain may lie in (atproto.com/specs/handle).
const REFUSED_TLDS: [&str; 8] = ["alt", "arpa", "example", "internal", "invalid", "local", "localhost", "onion"];

/// Where the document of a did:web is: a host name without port or path. With `development` it may have a port (`%3A`) and be this machine,
/// which is then asked over plain http.
pub(super) fn document_url(did: &Did, development: bool) -> Result<Url, &'static str> {
    let id = did.id();
    if id.contains(':') {
        return Err("a did:web may not have a path");
    }
    let (name, port) = match id.split_once("%3A").or_else(|| id.split_once("%3a")) {
        Some((name, port)) => (name, Some(port.parse::<u16>().map_err(|_| "the port of a did:web must be a number")?)),
        None => (id, None),
    };
    let labels = || name.split('.');
    let is_label = |label: &str| {
        let edge = |b: u8| b.is_ascii_alphanumeric();
        label.len() <= 63 && label.bytes().all(|b| edge(b) || b == b'-') && label.bytes().next().is_some_and(edge) && !label.ends_with('-')
    };
    if name.len() > 253 || !labels().all(is_label) {
        return Err("a did:web must be a host name");
    }
    if !development {
        let tld = labels().next_back().unwrap_or_default().to_ascii_lowercase();
        if labels().count() < 2 || tld.bytes().next().is_some_and(|b| b.is_ascii_digit()) || REFUSED_TLDS.contains(&tld.as_str()) {
            return Err("the host name of a did:web must be a public domain");
        }
        if port.is_some() {
            return Err("a did:web may not have a port");
        }
    }
    let plain = port.is_some() || name == "localhost" || name.parse::<Ipv4Addr>().is_ok();
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let url = format!("{}://{name}{port}/.well-known/did.json", if plain { "http" } else { "https" });
    Url::parse(&url).map_err(|_| "a did:web must be a host name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(did: &str, development: bool) -> Option<String> {
        document_url(&Did::new(did).unwrap(), development).ok().map(Into::into)
    }

    #[test]
    fn a_public_domain_is_asked_over_https() {
        for development in [false, true] {
            assert_eq!(url("did:web:alice.example.com", development).unwrap(), "https://alice.example.com/.well-known/did.json");
        }
    }

    #[test]
    fn ports_paths_addresses_and_private_names_are_refused_outside_of_development() {
        for did in [
            "did:web:localhost",
            "did:web:localhost%3A8080",
            "did:web:example.com%3A8443",
            "did:web:example.com:user:alice",
            "did:web:127.0.0.1",
            "did:web:10.0.0.1",
            "did:web:0x7f.1",
            "did:web:printer.local",
            "did:web:metadata.google.internal",
            "did:web:a.localhost",
            "did:web:intranet",
            "did:web:-a.com",
            "did:web:a-.com",
            "did:web:a..com",
            "did:web:a%2Fb.com",
            "did:web:a_b.com",
        ] {
            assert_eq!(url(did, false), None, "{did}");
        }
    }

    #[test]
    fn development_allows_this_machine_and_ports() {
        assert_eq!(url("did:web:localhost%3A8080", true).unwrap(), "http://localhost:8080/.well-known/did.json");
        assert_eq!(url("did:web:127.0.0.1%3A8080", true).unwrap(), "http://127.0.0.1:8080/.well-known/did.json");
        assert_eq!(url("did:web:localhost%3A99999", true), None);
        assert_eq!(url("did:web:localhost:path", true), None);
    }
}
