//! What the PLC directory and the web servers of `did:web` accounts answer.
use axum::http::StatusCode;
use serde_json::json;

use super::answer::Answer;
use super::request::Request;
use crate::sim::account::Account;
use crate::sim::fault::Fault;
use crate::sim::{AccountStatus, World};

/// The DID document of an account; `host_urls` are the origins of the hosts.
pub(super) fn document(world: &World, request: &Request, host_urls: &[String], fault: Option<&Fault>) -> Answer {
    let Some(did) = &request.did else { return message(StatusCode::NOT_FOUND, "not a DID") };
    let about = match fault {
        Some(Fault::OtherDocument(other)) => other,
        _ => did,
    };
    let account = match (fault, world.account(about)) {
        (Some(Fault::DidTombstoned), _) => None,
        (Some(Fault::DidNotFound), _) | (_, None) => return message(StatusCode::NOT_FOUND, &format!("DID not registered: {did}")),
        (_, Some(account)) => (account.standing().status != AccountStatus::Deleted).then_some(account),
    };
    let Some(account) = account else { return message(StatusCode::GONE, &format!("DID not available: {did}")) };
    let document = describe(&account, host_urls, fault);
    Answer::new(StatusCode::OK, "application/did+ld+json; charset=utf-8", document.to_string())
}

fn describe(account: &Account, host_urls: &[String], fault: Option<&Fault>) -> serde_json::Value {
    let did = &account.did;
    let mut document = json!({
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1", "https://w3id.org/security/suites/secp256k1-2019/v1"],
        "id": did,
        "alsoKnownAs": [format!("at://{}", account.handle())],
        "verificationMethod": [],
        "service": [],
    });
    if !matches!(fault, Some(Fault::DocumentWithoutKey)) {
        document["verificationMethod"] = json!([{
            "id": format!("{did}#atproto"),
            "type": "Multikey",
            "controller": did,
            "publicKeyMultibase": account.key().public().to_multikey(),
        }]);
    }
    if !matches!(fault, Some(Fault::DocumentWithoutPds)) {
        let endpoint = host_urls.get(account.standing().host);
        document["service"] = json!([{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": endpoint}]);
    }
    document
}

fn message(status: StatusCode, message: &str) -> Answer {
    Answer::new(status, "application/json; charset=utf-8", json!({"message": message}).to_string())
}
