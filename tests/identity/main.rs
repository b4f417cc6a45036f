//! Looking accounts up over real HTTP on loopback, and remembering what was found.
mod cache;
mod http;
#[path = "../common/responder.rs"]
mod responder;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use atproto_backfill::fetch::{Disposition, Host};
use atproto_backfill::identity::{
    CacheOptions, CachedResolver, HttpResolver, Identity, ResolveCause, ResolveError, Resolved, Resolver, ResolverOptions, StaticResolver,
};
use atproto_backfill::job::{FailureKind, UnavailableStatus};
use atproto_backfill::repo::PublicKey;
use atproto_backfill::syntax::Did;
use futures::future::{BoxFuture, join_all};
use responder::{Responder, Step, answer, head, nobody};
use tokio::sync::Semaphore;
use tokio::time::{Instant, advance};
use url::Url;

const PLC: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
// From the W3C did:key test vectors, which the interop fixtures hold.
const K256: &str = "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme";

fn did(text: &str) -> Did {
    Did::new(text).expect("a DID")
}

fn document(did: &str) -> Vec<u8> {
    format!(
        r##"{{"@context":["https://www.w3.org/ns/did/v1"],"id":"{did}","alsoKnownAs":["at://alice.test"],
        "verificationMethod":[{{"id":"{did}#atproto","type":"Multikey","controller":"{did}","publicKeyMultibase":"{K256}"}}],
        "service":[{{"id":"#atproto_pds","type":"AtprotoPersonalDataServer","serviceEndpoint":"https://pds.example.com"}}]}}"##
    )
    .into_bytes()
}

fn identity(text: &str) -> Identity {
    Identity {
        did: did(text),
        key: PublicKey::from_multikey(K256).expect("a key"),
        pds: Host::parse("https://pds.example.com").expect("a host"),
    }
}
