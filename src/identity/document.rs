use serde_json::Value;

use super::Identity;
use crate::fetch::Host;
use crate::repo::{KeyError, PublicKey};
use crate::syntax::Did;

/// A DID document that does not say what an account's must.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Not JSON.
    #[error("the DID document is not JSON")]
    NotJson,
    /// It is another DID's.
    #[error("the DID document is of {found:?}")]
    WrongId {
        /// The id that it has, cut to 128 characters; empty when it has none.
        found: String,
    },
    /// It names no signing key.
    #[error("the DID document names no signing key")]
    NoKey,
    /// Its signing key cannot be read.
    #[error("the signing key in the DID document: {0}")]
    Key(#[from] KeyError),
    /// It names no PDS.
    #[error("the DID document names no PDS")]
    NoPds,
    /// The endpoint of its PDS is not an https origin.
    #[error("the PDS in the DID document ({rule}): {endpoint:?}")]
    Pds {
        /// The rule that it breaks.
        rule: &'static str,
        /// The endpoint, cut to 128 characters.
        endpoint: String,
    },
}

/// Reads an account's key and PDS from its DID document. With `development`, the PDS may be plain `http`.
pub(super) fn parse(did: &Did, document: &[u8], development: bool) -> Result<Identity, DocumentError> {
    let document = own_document(did, document)?;
    Ok(Identity { did: did.clone(), key: key(did, &document)?, pds: pds(did, &document, development)? })
}

/// Reads an account's key alone from its DID document, whatever is said of a PDS.
pub(super) fn parse_key(did: &Did, document: &[u8]) -> Result<PublicKey, DocumentError> {
    key(did, &own_document(did, document)?)
}

fn own_document(did: &Did, document: &[u8]) -> Result<Value, DocumentError> {
    let document: Value = serde_json::from_slice(document).map_err(|_| DocumentError::NotJson)?;
    let id = document.get("id").and_then(Value::as_str).unwrap_or_default();
    if id != did.as_str() {
        return Err(DocumentError::WrongId { found: cut(id) });
    }
    Ok(document)
}

/// The first method `#atproto` that the account itself controls.
fn key(did: &Did, document: &Value) -> Result<PublicKey, DocumentError> {
    let own = |method: &&Value| text(method, "controller") == Some(did.as_str());
    let method = entries(document, "verificationMethod").filter(own).find(|method| has_fragment(method, did, "atproto"));
    let method = method.ok_or(DocumentError::NoKey)?;
    let (Some(kind), Some(multibase)) = (text(method, "type"), text(method, "publicKeyMultibase")) else {
        return Err(DocumentError::NoKey);
    };
    Ok(PublicKey::from_verification_method(kind, multibase)?)
}

/// The first service `#atproto_pds`.
fn pds(did: &Did, document: &Value, development: bool) -> Result<Host, DocumentError> {
    let service = entries(document, "service").find(|service| has_fragment(service, did, "atproto_pds"));
    let service = service.filter(|service| text(service, "type") == Some("AtprotoPersonalDataServer")).ok_or(DocumentError::NoPds)?;
    let endpoint = text(service, "serviceEndpoint").ok_or(DocumentError::NoPds)?;
    let broken = |rule| DocumentError::Pds { rule, endpoint: cut(endpoint) };
    let host = Host::parse(endpoint).map_err(|error| broken(error.rule))?;
    if host.is_secure() || development { Ok(host) } else { Err(broken("not https")) }
}

fn entries<'a>(document: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    document.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

/// Whether an entry's id is `#<fragment>`, alone or behind the DID.
fn has_fragment(entry: &Value, did: &Did, fragment: &str) -> bool {
    let id = text(entry, "id").unwrap_or_default();
    id.strip_prefix(did.as_str()).unwrap_or(id).strip_prefix('#') == Some(fragment)
}

fn cut(text: &str) -> String {
    text.chars().take(128).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const DID: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
    // From the W3C did:key test vectors for secp256k1, which the interop fixtures hold.
    const KEY: &str = "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme";
    const OTHER_KEY: &str = "zQ3shtxV1FrJfhqE1dvxYRcCknWNjHc3c5X1y3ZSoPDi2aur2";

    fn did() -> Did {
        Did::new(DID).unwrap()
    }

    fn method(id: &str, controller: &str, key: &str) -> Value {
        json!({"id": id, "type": "Multikey", "controller": controller, "publicKeyMultibase": key})
    }

    fn service(id: &str, kind: &str, endpoint: &str) -> Value {
        json!({"id": id, "type": kind, "serviceEndpoint": endpoint})
    }

    fn document(methods: Vec<Value>, services: Vec<Value>) -> Value {
        json!({"@context": ["https://www.w3.org/ns/did/v1"], "id": DID, "alsoKnownAs": ["at://alice.test"],
            "verificationMethod": methods, "service": services})
    }

    fn good_method() -> Value {
        method(&format!("{DID}#atproto"), DID, KEY)
    }

    fn good_service() -> Value {
        service("#atproto_pds", "AtprotoPersonalDataServer", "https://pds.example.com")
    }

    fn read(document: &Value) -> Result<Identity, DocumentError> {
        parse(&did(), document.to_string().as_bytes(), false)
    }

    #[test]
    fn both_forms_of_a_fragment_are_read() {
        for prefix in ["", DID] {
            let methods = vec![method(&format!("{prefix}#atproto"), DID, KEY)];
            let services = vec![service(&format!("{prefix}#atproto_pds"), "AtprotoPersonalDataServer", "https://PDS.example.com/")];
            let identity = read(&document(methods, services)).unwrap();
            assert_eq!(identity.key.to_multikey(), KEY);
            assert_eq!(identity.pds.name(), "pds.example.com");
        }
    }

    #[test]
    fn the_first_match_wins() {
        let methods = vec![
            method("#atproto_label", DID, OTHER_KEY),
            method("#atproto", "did:plc:ewvi7nxzyoun6zhxrhs64oix", OTHER_KEY),
            method("#atproto", DID, KEY),
            method("#atproto", DID, OTHER_KEY),
        ];
        let services = vec![
            service("#other", "AtprotoPersonalDataServer", "https://other.example.com"),
            good_service(),
            service("#atproto_pds", "AtprotoPersonalDataServer", "https://later.example.com"),
        ];
        let identity = read(&document(methods, services)).unwrap();
        assert_eq!(identity.key.to_multikey(), KEY);
        assert_eq!(identity.pds.name(), "pds.example.com");
    }

    #[test]
    fn another_dids_document_is_refused() {
        let mut other = document(vec![good_method()], vec![good_service()]);
        for id in [json!("did:plc:ewvi7nxzyoun6zhxrhs64oix"), json!(DID.to_uppercase()), json!(7), Value::Null] {
            other["id"] = id;
            assert!(matches!(read(&other), Err(DocumentError::WrongId { .. })), "{other}");
        }
    }

    #[test]
    fn a_document_without_key_or_pds_is_broken() {
        assert_eq!(read(&document(vec![], vec![good_service()])), Err(DocumentError::NoKey));
        assert_eq!(read(&document(vec![good_method()], vec![])), Err(DocumentError::NoPds));
        let wrong_type = service("#atproto_pds", "AtprotoLabeler", "https://pds.example.com");
        assert_eq!(read(&document(vec![good_method()], vec![wrong_type])), Err(DocumentError::NoPds));
        let not_a_key = method("#atproto", DID, "zzzz");
        assert!(matches!(read(&document(vec![not_a_key], vec![good_service()])), Err(DocumentError::Key(_))));
        assert_eq!(parse(&did(), b"<html>", false), Err(DocumentError::NotJson));
        assert_eq!(read(&json!({"id": DID, "verificationMethod": {}, "service": "x"})), Err(DocumentError::NoKey));
    }

    #[test]
    fn the_key_alone_needs_no_usable_pds_but_all_else() {
        let key = |document: &Value| parse_key(&did(), document.to_string().as_bytes());
        for services in [vec![], vec![service("#atproto_pds", "AtprotoPersonalDataServer", "http://localhost:2583")], vec![good_service()]]
        {
            assert_eq!(key(&document(vec![good_method()], services)).unwrap().to_multikey(), KEY);
        }
        assert_eq!(key(&document(vec![], vec![good_service()])), Err(DocumentError::NoKey));
        let mut other = document(vec![good_method()], vec![]);
        other["id"] = json!("did:plc:ewvi7nxzyoun6zhxrhs64oix");
        assert!(matches!(key(&other), Err(DocumentError::WrongId { .. })));
        assert_eq!(parse_key(&did(), b"<html>"), Err(DocumentError::NotJson));
    }

    #[test]
    fn a_pds_is_an_https_origin_and_in_development_an_http_one() {
        let with = |endpoint| document(vec![good_method()], vec![service("#atproto_pds", "AtprotoPersonalDataServer", endpoint)]);
        for endpoint in [
            "https://user@pds.example.com",
            "https://user:pw@pds.example.com",
            "https://pds.example.com/path",
            "https://pds.example.com/?q",
            "https://pds.example.com/#f",
            "ftp://pds.example.com",
            "pds.example.com",
            "https://",
            "",
            "wss://pds.example.com",
        ] {
            for development in [false, true] {
                let read = parse(&did(), with(endpoint).to_string().as_bytes(), development);
                assert!(matches!(read, Err(DocumentError::Pds { .. })), "{endpoint}: {read:?}");
            }
        }
        let plain = with("http://127.0.0.1:2583").to_string();
        assert!(matches!(parse(&did(), plain.as_bytes(), false), Err(DocumentError::Pds { rule: "not https", .. })));
        assert_eq!(parse(&did(), plain.as_bytes(), true).unwrap().pds.origin(), "http://127.0.0.1:2583");
        assert_eq!(read(&with("https://pds.example.com:8443/")).unwrap().pds.name(), "pds.example.com:8443");
        assert_eq!(read(&with("https://pds.example.com:443")).unwrap().pds.name(), "pds.example.com");
    }

    #[test]
    fn legacy_keys_are_read_by_their_type() {
        let curve_point = PublicKey::from_multikey(KEY).unwrap();
        // The compressed point without its codec, as the legacy type has it.
        let (bytes, legacy) = (bs58::decode(&KEY[1..]).into_vec().unwrap(), "EcdsaSecp256k1VerificationKey2019");
        let multibase = format!("z{}", bs58::encode(&bytes[2..]).into_string());
        let method = json!({"id": "#atproto", "type": legacy, "controller": DID, "publicKeyMultibase": multibase});
        let identity = read(&document(vec![method], vec![good_service()])).unwrap();
        assert_eq!(identity.key.to_multikey(), curve_point.to_multikey());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&did(), &bytes, true);
        }

        #[test]
        fn no_part_of_a_document_panics(id in ".{0,40}", key in "z?.{0,80}", endpoint in "(https?://)?.{0,40}", nested in 0usize..200) {
            let methods = vec![method(&id, DID, &key), method("#atproto", DID, &key)];
            let mut document = document(methods, vec![service(&id, "", ""), service("#atproto_pds", "AtprotoPersonalDataServer", &endpoint)]);
            let _ = read(&document);
            document["verificationMethod"] = json!([good_method()]);
            let _ = read(&document);
            let deep = format!("{}{}", "[".repeat(nested), "]".repeat(nested));
            let _ = parse(&did(), deep.as_bytes(), false);
        }
    }
}
