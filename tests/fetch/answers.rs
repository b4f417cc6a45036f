//! What hosts answer, and what becomes of it.
use super::*;

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
    assert_eq!(error.cause, FetchCause::Timeout { phase: Phase::Answer, after: STALL });
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Timeout));
}

#[tokio::test]
async fn a_body_that_stalls_times_out() {
    let (error, pace) = failure(hurried(), vec![Step::Send([head(200, &[], Some(1000)), CAR.to_vec()].concat()), Step::Stall]).await;
    assert_eq!(error.cause, FetchCause::Timeout { phase: Phase::Body, after: STALL });
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
async fn a_host_that_takes_no_connection_times_out_connecting() {
    let full = tokio::net::TcpSocket::new_v4().expect("a socket");
    full.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let listener = full.listen(1).expect("a listener");
    let address = listener.local_addr().expect("an address");
    // Nobody accepts: once the queue is full, the system ignores whoever comes.
    let mut queue = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
        queue.push(stream);
        assert!(queue.len() < 100, "the queue is bounded");
    }
    let after = Duration::from_millis(200);
    let (fetched, pace) = fetch_from(HttpOptions { connect_timeout: after, ..options() }, &format!("http://{address}")).await;
    let error = fetched.map(|_| ()).expect_err("no connection");
    assert_eq!(error.cause, FetchCause::Timeout { phase: Phase::Connect, after });
    assert!(pace.hosts()[0].unreachable);
}
