//! Fetching repos over real HTTP on loopback, from hosts that do what hosts do.
#[path = "common/responder.rs"]
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
    HttpOptions { idle_timeout: Duration::from_millis(150), ..options() }
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

#[tokio::test]
async fn a_repo_arrives_whole_and_the_request_says_who_asks() {
    let host = Responder::start(|_| answer(200, &[("content-type", "text/html")], CAR)).await;
    let pace = fast_pace();
    let options = HttpOptions { user_agent: user_agent(Some("ops@example.com")), ..options() };
    let source = HttpSource::new(options, pace.clone()).expect("a client");
    let since = Rev::new("3jzfcijpj2z2a").expect("a rev");
    let fetched = fetch(&source, &pace, &host.origin(), Some(since)).await.expect("a repo");
    assert_eq!((fetched.body.as_slice(), fetched.host), (CAR, host.name()));
    let request = host.seen().remove(0);
    let expected =
        Url::parse("http://x/xrpc/com.atproto.sync.getRepo?did=did%3Aplc%3Aewvi7nxzyoun6zhxrhs64oiz&since=3jzfcijpj2z2a").expect("a URL");
    let asked = Url::parse(&format!("http://x{}", request.target)).expect("a URL");
    assert_eq!(asked.path(), expected.path());
    assert!(asked.query_pairs().eq(expected.query_pairs()), "{asked}");
    let agent = request.header("user-agent").expect("a user agent");
    assert!(agent.starts_with("atproto-backfill/") && agent.ends_with(" (ops@example.com)"), "{agent}");
    assert!(request.header("accept-encoding").is_some_and(|encodings| encodings.contains("gzip")));
}

#[tokio::test]
async fn a_compressed_repo_is_uncompressed_and_a_cut_one_is_not_whole() {
    let plain: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&plain).expect("memory");
    let packed = encoder.finish().expect("memory");
    let whole = answer(200, &[("content-encoding", "gzip")], &packed);
    let host = Responder::start(move |_| whole.clone()).await;
    let (fetched, _) = fetch_from(options(), &host.origin()).await;
    assert!(fetched.expect("a repo").body == plain);
    let cut = answer(200, &[("content-encoding", "gzip")], &packed[..packed.len() / 2]);
    let (error, _) = failure(options(), cut).await;
    assert!(matches!(error.cause, FetchCause::Cut { received: 1.., .. }), "{error}");
}

#[tokio::test]
async fn an_html_page_with_status_200_is_handed_on_for_the_reader_to_refuse() {
    let host = Responder::start(|_| answer(200, &[("content-type", "text/html")], b"<html>")).await;
    assert_eq!(fetch_from(options(), &host.origin()).await.0.expect("bytes").body, b"<html>");
}

#[tokio::test]
async fn the_account_states_of_both_implementations_are_understood() {
    use UnavailableStatus::{Deactivated, Deleted, NotFound, Suspended, Takendown};
    for (status, name, expected) in [
        (400, "RepoNotFound", NotFound),
        (404, "RepoNotFound", NotFound),
        (400, "RepoTakendown", Takendown),
        (403, "RepoTakendown", Takendown),
        (400, "RepoDeactivated", Deactivated),
        (403, "RepoDeactivated", Deactivated),
        (400, "RepoSuspended", Suspended),
        (403, "RepoDeleted", Deleted),
        (403, "RepoInactive", Deactivated),
    ] {
        let (error, pace) = failure(options(), error(status, name)).await;
        assert_eq!(error.disposition(), Disposition::Unavailable(expected), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(pace.hosts()[0].pause, None, "the host did nothing wrong");
    }
}

#[tokio::test]
async fn other_answers_are_failures_of_their_kind() {
    for (steps, kind, words) in [
        (error(500, "InternalServerError"), FailureKind::HttpServer, "InternalServerError: in words"),
        (error(404, "RepoNotSynchronized"), FailureKind::HttpClient, "RepoNotSynchronized"),
        (answer(404, &[], b"<html>\nnot here"), FailureKind::HttpClient, "status 404): \"<html> not here\""),
        (answer(400, &[], b""), FailureKind::HttpClient, "status 400): no body"),
        (answer(410, &[], b"gone"), FailureKind::HttpClient, "status 410"),
        (answer(502, &[], b"bad gateway"), FailureKind::HttpServer, "bad gateway"),
        (answer(302, &[], b""), FailureKind::HttpServer, "names no target"),
        (vec![], FailureKind::Connect, "no connection"),
        (vec![Step::Send(b"SSH-2.0-OpenSSH\r\n".to_vec())], FailureKind::Connect, "no connection"),
    ] {
        let (error, _) = failure(options(), steps).await;
        assert_eq!(error.disposition(), Disposition::Failed(kind), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn refusals_are_no_failures_and_pause_the_host() {
    let soon = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(100));
    let epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let reset = (epoch + 200).to_string();
    for (steps, least, most) in [
        (answer(429, &[("retry-after", "17")], b""), 16, 17),
        (answer(429, &[("retry-after", &soon)], b""), 90, 100),
        (answer(429, &[("ratelimit-remaining", "0"), ("ratelimit-reset", &reset)], b""), 190, 200),
        (answer(429, &[("ratelimit-remaining", "0"), ("ratelimit-reset", "33")], b""), 32, 33),
        (answer(429, &[], b"<html>too many requests</html>"), 299, 300),
        (answer(503, &[("retry-after", "17")], b""), 16, 17),
        (answer(503, &[], b""), 9, 13),
        (error(429, "RateLimitExceeded"), 299, 300),
        (error(400, "RateLimitExceeded"), 299, 300),
    ] {
        let (error, pace) = failure(options(), steps).await;
        let Disposition::Refused(pause) = error.disposition() else { panic!("{error}") };
        assert!((least..=most).contains(&pause.as_secs()), "{error}");
        let wait = pace.try_admit(&error.host).expect_err("the host is left alone");
        assert_eq!(wait.reason, WaitReason::Refused);
        assert_eq!(pace.refused(), 1);
    }
}

#[tokio::test]
async fn an_account_that_is_unavailable_is_that_even_when_the_host_is_busy() {
    let (error, pace) = failure(options(), error(503, "RepoDeactivated")).await;
    assert_eq!(error.disposition(), Disposition::Unavailable(UnavailableStatus::Deactivated));
    assert_eq!(pace.refused(), 1, "the host is left alone all the same");
}

#[tokio::test]
async fn a_host_that_refuses_connections_is_left_alone() {
    let origin = nobody().await;
    let (fetched, pace) = fetch_from(options(), &origin).await;
    let error = fetched.map(|_| ()).expect_err("nobody is there");
    assert!(matches!(error.cause, FetchCause::Connect { .. }), "{error}");
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Connect));
    let wait = pace.try_admit(&error.host).expect_err("it is left alone");
    assert_eq!(wait.reason, WaitReason::Unreachable);
    assert_eq!(pace.hosts()[0].in_flight, 0);
}

#[tokio::test]
async fn a_host_that_does_not_answer_times_out() {
    let (error, _) = failure(hurried(), vec![Step::Stall]).await;
    assert_eq!(error.cause, FetchCause::Timeout { phase: Phase::Answer, after: Duration::from_millis(150) });
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Timeout));
}

#[tokio::test]
async fn a_body_that_stalls_times_out() {
    let (error, pace) = failure(hurried(), vec![Step::Send([head(200, &[], Some(1000)), CAR.to_vec()].concat()), Step::Stall]).await;
    assert_eq!(error.cause, FetchCause::Timeout { phase: Phase::Body, after: Duration::from_millis(150) });
    assert_eq!(pace.hosts()[0].in_flight, 0, "its place is free again");
}

#[tokio::test]
async fn a_body_that_trickles_for_ever_reaches_the_total_limit() {
    let options = HttpOptions { total_timeout: Duration::from_millis(400), ..options() };
    let trickle = vec![Step::Send(head(200, &[], None)), Step::Trickle(b"x".to_vec(), Duration::from_millis(5))];
    let (error, _) = failure(options, trickle).await;
    assert_eq!(error.cause, FetchCause::Timeout { phase: Phase::Total, after: Duration::from_millis(400) });
}

#[tokio::test]
async fn a_body_that_is_cut_is_an_error() {
    let short = vec![Step::Send([head(200, &[], Some(1000)), CAR.to_vec()].concat())];
    let chunked = vec![Step::Send([head(200, &[("transfer-encoding", "chunked")], None), b"5\r\nhello\r\n40\r\nwor".to_vec()].concat())];
    for (steps, least) in [(short, CAR.len() as u64), (chunked, 5)] {
        let (error, _) = failure(options(), steps).await;
        let FetchCause::Cut { received, .. } = error.cause else { panic!("{error}") };
        assert!(received >= least, "{received}");
        assert_eq!(error.disposition(), Disposition::Failed(FailureKind::MalformedCar));
    }
}

#[tokio::test]
async fn an_error_with_an_endless_body_is_not_read_to_its_end() {
    let endless = vec![Step::Send(head(500, &[], None)), Step::Trickle(vec![b'x'; 4096], Duration::from_millis(1))];
    let began = Instant::now();
    let (error, _) = failure(options(), endless).await;
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::HttpServer));
    assert!(error.to_string().len() < 300 && began.elapsed() < Duration::from_secs(10), "{error}");
}

#[tokio::test]
async fn a_redirect_is_followed_and_the_target_is_the_host_that_is_in_flight() {
    let pds = Responder::start(|_| answer(200, &[], CAR)).await;
    let to = format!("{}/xrpc/com.atproto.sync.getRepo?did=did:plc:ewvi7nxzyoun6zhxrhs64oiz", pds.origin());
    let relay = Responder::start(move |_| answer(302, &[("location", &to)], b"")).await;
    let pace = fast_pace();
    let source = HttpSource::new(options(), pace.clone()).expect("a client");
    let host = Host::parse(&relay.origin()).expect("an origin");
    let mut repo = source.get_repo(&did(), &host, None, pace.admit(host.name()).await).await.expect("a repo");
    let in_flight = |name: &str| pace.hosts().iter().find(|known| *known.host == *name).map(|known| known.in_flight);
    assert_eq!((in_flight(&relay.name()), in_flight(&pds.name())), (Some(0), Some(1)));
    assert_eq!(repo.chunk().await.expect("bytes").as_deref(), Some(CAR));
    assert_eq!(repo.host(), pds.name());
    drop(repo);
    assert_eq!(in_flight(&pds.name()), Some(0));
    assert_eq!(pds.seen().len(), 1);
}

#[tokio::test]
async fn a_redirect_to_a_paused_host_is_a_refusal_and_asks_nobody() {
    let pds = Responder::start(|_| answer(200, &[], CAR)).await;
    let to = format!("{}/xrpc", pds.origin());
    let relay = Responder::start(move |_| answer(302, &[("location", &to)], b"")).await;
    let pace = fast_pace();
    let source = HttpSource::new(options(), pace.clone()).expect("a client");
    pace.admit(&pds.name())
        .await
        .answered(429, &[("retry-after".parse().expect("a name"), "100".parse().expect("a value"))].into_iter().collect());
    let began = Instant::now();
    let error = fetch(&source, &pace, &relay.origin(), None).await.map(|_| ()).expect_err("it is paused");
    assert!(matches!(error.disposition(), Disposition::Refused(pause) if pause > Duration::from_secs(90)), "{error}");
    assert_eq!(error.host, pds.name());
    assert!(began.elapsed() < Duration::from_secs(10) && pds.seen().is_empty());
}

#[tokio::test]
async fn redirects_that_never_end_are_given_up() {
    let host = Responder::start(|_| answer(302, &[("location", "/again")], b"")).await;
    let (fetched, _) = fetch_from(options(), &host.origin()).await;
    let error = fetched.map(|_| ()).expect_err("it leads nowhere");
    assert!(matches!(error.cause, FetchCause::Redirect { .. }), "{error}");
    assert_eq!(host.seen().len(), 6, "the request and five redirects");
}

#[tokio::test]
async fn outside_of_development_no_account_makes_this_program_ask_its_own_network() {
    let here = Responder::start(|_| answer(200, &[], CAR)).await;
    let port = here.name().rsplit(':').next().expect("a port").to_owned();
    let options = HttpOptions { development: false, ..options() };
    let tls = [
        format!("https://127.0.0.1:{port}"),
        format!("https://localhost:{port}"),
        format!("https://[::1]:{port}"),
        "https://10.0.0.1".into(),
    ];
    for origin in [vec![here.origin()], tls.to_vec()].concat() {
        let (fetched, _) = fetch_from(options.clone(), &origin).await;
        let error = fetched.map(|_| ()).expect_err("it is not asked");
        assert!(matches!(error.cause, FetchCause::Forbidden { .. }), "{origin}: {error}");
        // Nor does a redirect, though the operator's own relay may be here.
        let to = format!("{origin}/xrpc");
        let relay = Responder::start(move |_| answer(302, &[("location", &to)], b"")).await;
        let pace = fast_pace();
        let base = Url::parse(&relay.origin()).expect("a URL");
        let source = HttpSource::new(options.clone(), pace.clone()).and_then(|source| source.with_checkout_path(&base)).expect("a client");
        let error = fetch(&source, &pace, "https://pds.example.com", None).await.map(|_| ()).expect_err("it is not asked");
        assert!(matches!(error.cause, FetchCause::Forbidden { .. }), "{origin}: {error}");
        assert_eq!(relay.seen().len(), 1);
    }
    assert!(here.seen().is_empty());
}

#[tokio::test]
async fn a_checkout_path_is_asked_in_place_of_every_accounts_host() {
    for suffix in ["", "/", "/mirror", "/mirror/xrpc/com.atproto.sync.getRepo"] {
        let mirror = Responder::start(|_| answer(200, &[], CAR)).await;
        let pace = fast_pace();
        let base = Url::parse(&format!("{}{suffix}", mirror.origin())).expect("a URL");
        let options = HttpOptions { development: false, ..options() };
        let source = HttpSource::new(options, pace.clone()).and_then(|source| source.with_checkout_path(&base)).expect("a client");
        let fetched = fetch(&source, &pace, "https://pds.example.com", None).await.expect("a repo");
        assert_eq!((fetched.body.as_slice(), fetched.host), (CAR, mirror.name()));
        let path = if suffix.starts_with("/mirror") { "/mirror" } else { "" };
        assert!(mirror.seen()[0].target.starts_with(&format!("{path}/xrpc/com.atproto.sync.getRepo?did=")), "{:?}", mirror.seen());
    }
}

/// Runs one test of this file in a process of its own, which may have an environment of its own.
fn run_with(environment: &[(&str, &str)], test: &str) {
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program).args(["--exact", test, "--nocapture"]).envs(environment.iter().copied()).output().expect("a run");
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && output.contains("1 passed"), "{output}{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn proxies_of_the_environment_are_not_used() {
    let proxy = "http://127.0.0.1:9";
    run_with(&[("HTTP_PROXY", proxy), ("http_proxy", proxy), ("ALL_PROXY", proxy)], "a_repo_arrives_whole_and_the_request_says_who_asks");
}

#[test]
fn development_needs_no_ca_certificates() {
    let nowhere = [("SSL_CERT_FILE", "/nonexistent/file"), ("SSL_CERT_DIR", "/nonexistent/directory")];
    run_with(&nowhere, "a_repo_arrives_whole_and_the_request_says_who_asks");
    run_with(&nowhere, "without_ca_certificates_only_development_gets_a_client");
}

#[test]
fn without_ca_certificates_only_development_gets_a_client() {
    let outside = HttpSource::new(HttpOptions { development: false, ..options() }, fast_pace());
    if std::env::var("SSL_CERT_FILE").as_deref() == Ok("/nonexistent/file") {
        let error = outside.expect_err("no https is possible").to_string();
        assert!(error.contains("CA certificates"), "{error}");
    }
    HttpSource::new(options(), fast_pace()).expect("plain http is possible");
}

#[test]
fn a_user_agent_that_is_no_header_is_an_error() {
    let options = HttpOptions { user_agent: "two\nlines".into(), ..options() };
    assert!(HttpSource::new(options, fast_pace()).is_err());
}
