//! Look-ups over HTTP.
use super::*;

fn options(directory: &str) -> ResolverOptions {
    ResolverOptions { plc_url: Url::parse(directory).expect("a URL"), ..ResolverOptions::default() }
}

async fn look_up(options: ResolverOptions, text: &str) -> Resolved {
    HttpResolver::new(options).expect("a client").resolve(&did(text)).await
}

async fn failure(steps: Vec<Step>) -> ResolveError {
    let directory = Responder::start(move |_| steps.clone()).await;
    let error = look_up(options(&directory.origin()), PLC).await.expect_err("a failure");
    let text = error.to_string();
    assert!(text.contains(PLC) && text.contains(&directory.name()), "{text} names the DID and the server");
    error
}

#[tokio::test]
async fn a_did_plc_is_looked_up_in_the_directory() {
    for base in ["", "/", "/replica/"] {
        let directory = Responder::start(|_| answer(200, &[("content-type", "application/did+ld+json")], &document(PLC))).await;
        let found = look_up(options(&format!("{}{base}", directory.origin())), PLC).await.expect("an identity");
        assert_eq!(found.did.as_str(), PLC);
        assert_eq!(found.key.to_multikey(), K256);
        assert_eq!(found.pds.origin(), "https://pds.example.com");
        let request = directory.seen().remove(0);
        assert_eq!(request.target, format!("{}/{PLC}", base.trim_end_matches('/')));
        assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("atproto-backfill/")));
    }
}

#[tokio::test]
async fn a_did_web_is_looked_up_at_its_domain() {
    let site = Responder::start(|seen| {
        let name = seen.header("host").expect("a host header");
        answer(200, &[], &document(&format!("did:web:{}", name.replace(':', "%3A"))))
    })
    .await;
    let text = format!("did:web:{}", site.name().replace(':', "%3A"));
    let options = ResolverOptions { development: true, ..options("https://plc.example.com") };
    let found = look_up(options.clone(), &text).await.expect("an identity");
    assert_eq!(found.did.as_str(), text);
    assert_eq!(site.seen()[0].target, "/.well-known/did.json");
    let outside = ResolverOptions { development: false, ..options };
    let error = look_up(outside, &text).await.expect_err("not this machine");
    assert!(matches!(error.cause, ResolveCause::Unsupported { .. }), "{error}");
    assert_eq!(site.seen().len(), 1);
}

#[tokio::test]
async fn not_found_tombstoned_and_trouble_are_kept_apart() {
    let page = |status| answer(status, &[], b"{\"message\":\"DID not available\"}");
    assert_eq!(failure(page(404)).await.disposition(), Disposition::Unavailable(UnavailableStatus::NotFound));
    assert_eq!(failure(page(410)).await.disposition(), Disposition::Unavailable(UnavailableStatus::Deleted));
    for status in [400, 401, 403, 500, 502, 504] {
        let error = failure(page(status)).await;
        assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Resolve), "{error}");
        assert!(error.is_transient(), "{error}");
    }
    let error = failure(vec![Step::Send([head(200, &[], Some(5000)), document(PLC)].concat())]).await;
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Resolve), "{error}");
    let error = failure(answer(200, &[], &document("did:plc:ewvi7nxzyoun6zhxrhs64oix"))).await;
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::BrokenIdentity), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_did_that_no_account_can_have_asks_nobody() {
    let directory = Responder::start(|_| answer(200, &[], &document(PLC))).await;
    for text in [
        "did:plc:short",
        "did:plc:EWVI7NXZYOUN6ZHXRHS64OIZ",
        "did:plc:ewvi7nxzyoun6zhxrhs64oi1",
        "did:key:zQ3sh",
        "did:web:a.example.com:b",
    ] {
        let error = look_up(options(&directory.origin()), text).await.expect_err("no account");
        assert_eq!(error.disposition(), Disposition::Unavailable(UnavailableStatus::NotFound), "{error}");
    }
    assert!(directory.seen().is_empty());
}

#[tokio::test]
async fn a_directory_that_refuses_for_load_is_left_alone() {
    let directory = Responder::start(|_| answer(429, &[("retry-after", "100")], b"")).await;
    let resolver = HttpResolver::new(options(&directory.origin())).expect("a client");
    for _ in 0..3 {
        let error = resolver.resolve(&did(PLC)).await.expect_err("refused");
        assert!(matches!(error.disposition(), Disposition::Refused(pause) if pause > Duration::from_secs(90)), "{error}");
    }
    assert_eq!(directory.seen().len(), 1, "the others were not even asked");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Responder::start(|_| answer(200, &[], &document(PLC))).await;
    let to = elsewhere.origin();
    let directory = Responder::start(move |_| answer(302, &[("location", &to)], b"")).await;
    let error = look_up(options(&directory.origin()), PLC).await.expect_err("a redirect");
    assert_eq!(error.cause, ResolveCause::Status { status: 302 });
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn a_directory_that_hangs_or_trickles_times_out() {
    let trickle = vec![Step::Send(head(200, &[], None)), Step::Trickle(b" ".to_vec(), Duration::from_millis(5))];
    for steps in [vec![Step::Stall], vec![Step::Send(head(200, &[], Some(9000))), Step::Stall], trickle] {
        let directory = Responder::start(move |_| steps.clone()).await;
        let after = Duration::from_millis(200);
        let error = look_up(ResolverOptions { total_timeout: after, ..options(&directory.origin()) }, PLC).await.expect_err("too slow");
        assert_eq!(error.cause, ResolveCause::Timeout { after });
    }
}

#[tokio::test]
async fn a_document_without_end_is_not_read() {
    let endless = vec![Step::Send(head(200, &[], None)), Step::Trickle(vec![b' '; 65536], Duration::from_millis(1))];
    let error = failure(endless).await;
    assert_eq!(error.cause, ResolveCause::TooLarge { max: 128 * 1024 });
}

#[tokio::test]
async fn nobody_at_the_directory_is_trouble_of_the_directory() {
    let error = look_up(options(&nobody().await), PLC).await.expect_err("nobody");
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Resolve), "{error}");
}

#[tokio::test]
async fn a_directory_whose_name_does_not_resolve_says_nothing_of_the_account() {
    let error = look_up(ResolverOptions { development: true, ..options("http://directory.invalid") }, PLC).await.expect_err("no such name");
    assert!(error.is_transient(), "{error}");
}
