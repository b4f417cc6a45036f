//! Where the request goes, and where it may not go.
use super::*;

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
