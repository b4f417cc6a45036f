//! Fetching repos over real HTTP on loopback, from hosts that do what hosts do.
mod answers;
mod environment;
#[cfg(feature = "sim")]
mod listing;
mod redirects;
#[path = "../common/responder.rs"]
mod responder;

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use atproto_backfill::fetch::{
    Disposition, FetchCause, FetchError, Host, HttpOptions, HttpSource, Pace, PaceOptions, Phase, Rate, RepoSource, WaitReason, user_agent,
};
use atproto_backfill::job::{FailureKind, UnavailableStatus};
use atproto_backfill::syntax::{Did, Rev};
use responder::{Responder, Step, answer, error, head, nobody};
use url::Url;

const CAR: &[u8] = b"bytes that claim to be a CAR";

/// The idle limit of tests that run into it; long enough for a busy machine to answer before.
const STALL: Duration = Duration::from_secs(1);

fn did() -> Did {
    Did::new("did:plc:ewvi7nxzyoun6zhxrhs64oiz").expect("a DID")
}

fn options() -> HttpOptions {
    HttpOptions {
        idle_timeout: Duration::from_secs(20),
        total_timeout: Duration::from_secs(60),
        development: true,
        ..HttpOptions::default()
    }
}

fn hurried() -> HttpOptions {
    HttpOptions { idle_timeout: STALL, ..options() }
}

fn fast_pace() -> Pace {
    let rate = Rate::per_second(10_000.0).expect("a rate");
    Pace::new(PaceOptions { host_rate: rate, global_rate: rate, ..PaceOptions::default() })
}

struct Fetched {
    body: Vec<u8>,
    host: String,
}

async fn fetch(source: &HttpSource, pace: &Pace, origin: &str, since: Option<Rev>) -> Result<Fetched, FetchError> {
    let pds = Host::parse(origin).expect("an origin");
    let permit = pace.admit(source.host_for(&pds).name()).await;
    let mut repo = source.get_repo(&did(), &pds, since, permit).await?;
    let mut body = Vec::new();
    while let Some(chunk) = repo.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    assert_eq!(repo.received(), body.len() as u64);
    Ok(Fetched { body, host: repo.host().to_owned() })
}

async fn fetch_from(options: HttpOptions, origin: &str) -> (Result<Fetched, FetchError>, Pace) {
    let pace = fast_pace();
    let source = HttpSource::new(options, pace.clone()).expect("a client");
    (fetch(&source, &pace, origin, None).await, pace)
}

async fn failure(options: HttpOptions, steps: Vec<Step>) -> (FetchError, Pace) {
    let host = Responder::start(move |_| steps.clone()).await;
    let (fetched, pace) = fetch_from(options, &host.origin()).await;
    let error = fetched.map(|fetched| fetched.body).expect_err("a failure");
    let text = error.to_string();
    assert!(text.contains(did().as_str()) && text.contains(&host.name()), "{text} names the DID and the host");
    (error, pace)
}
