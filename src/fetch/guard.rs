use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

use super::host::literal_address;

/// Refuses connections to addresses that are not public: whoever writes a DID document or a redirect must not make this process talk to
/// its own machine or network. Names are checked after they were resolved, by the resolver of the very connection that is made, so a name
/// that changes its address in between (rebinding) gains nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard;

/// A connection that the guard refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} has no public address")]
pub(crate) struct NotPublic {
    pub(crate) name: String,
}

impl Guard {
    /// Checks an address that a URL spells out, which no resolver sees.
    pub(crate) fn check(url: &Url) -> Result<(), NotPublic> {
        match literal_address(url) {
            Some(address) if !is_public(address) => Err(NotPublic { name: address.to_string() }),
            _ => Ok(()),
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(NotPublic { name: name.as_str().to_owned() }.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether an address belongs to the public internet (the special-purpose registries of IANA, RFC 6890 and what came after).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224..=255, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [a, b, c, d] = [segments[6] >> 8, segments[6] & 0xff, segments[7] >> 8, segments[7] & 0xff].map(|octet| octet as u8);
    let embedded = Ipv4Addr::new(a, b, c, d);
    match segments {
        // IPv4 in IPv6 clothes: mapped, and by NAT64.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(embedded),
        // Protocol assignments, documentation, 6to4.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_of_the_public_internet_are_refused() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_of_the_public_internet_pass() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:200::1",
            "2a00::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused() {
        let Err(error) = Guard.resolve("localhost".parse().unwrap()).await else { panic!("localhost passed") };
        assert_eq!(error.downcast_ref(), Some(&NotPublic { name: "localhost".into() }));
    }

    #[test]
    fn an_address_in_a_url_is_checked_in_every_spelling() {
        for text in [
            "http://127.0.0.1/",
            "https://127.1/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://[::1]:8443/",
            "https://[::ffff:7f00:1]/",
        ] {
            assert!(Guard::check(&Url::parse(text).unwrap()).is_err(), "{text}");
        }
        assert!(Guard::check(&Url::parse("https://pds.example.com/").unwrap()).is_ok());
    }
}
