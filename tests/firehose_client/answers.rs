//! What comes before a WebSocket is open.
use std::future::pending;

use atproto_backfill::fetch::Phase;
use tokio::io::AsyncWriteExt;

use super::*;

#[tokio::test(start_paused = true)]
async fn it_asks_as_the_protocol_says_and_hands_over_the_frames_as_they_are() {
    let server = Server::start(|asked| async {
        let mut socket = asked.open().await;
        for text in ["one", "two", ""] {
            socket.send(frame(text)).await.expect("it is open");
        }
        pending().await
    })
    .await;
    let options = ClientOptions { user_agent: "test/1 (somebody@example.com)".into(), ..options() };
    for (resume, target) in [
        (Resume::Live, "/xrpc/com.atproto.sync.subscribeRepos"),
        (Resume::Oldest, "/xrpc/com.atproto.sync.subscribeRepos?cursor=0"),
        (Seq::new(8_400_000_000).into(), "/xrpc/com.atproto.sync.subscribeRepos?cursor=8400000000"),
    ] {
        let mut subscription = follow_with(options.clone(), &server);
        subscription.resume_from(resume);
        match promptly(subscription.next()).await {
            Arrival::Connected { asked, host } => assert_eq!((asked, host.name()), (resume, &*server.name())),
            other => panic!("not connected: {other:?}"),
        }
        for text in ["one", "two", ""] {
            assert_eq!(taken(&mut subscription).await, text);
        }
        let seen = server.seen().pop().expect("a request");
        assert_eq!(seen.target(), target);
        for (name, value) in [
            ("user-agent", "test/1 (somebody@example.com)"),
            ("host", &*server.name()),
            ("upgrade", "websocket"),
            ("connection", "Upgrade"),
            ("sec-websocket-version", "13"),
        ] {
            assert_eq!(seen.header(name), Some(value), "{name} in {}", seen.head);
        }
        assert_eq!(seen.header("sec-websocket-extensions"), None);
    }
    let keys: std::collections::HashSet<_> =
        server.seen().iter().map(|seen| seen.header("sec-websocket-key").expect("a key").to_owned()).collect();
    assert_eq!(keys.len(), 3, "each connection has a key of its own");
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_followed_and_keeps_the_cursor() {
    let there = Server::start(|asked| async {
        let _open = asked.open().await;
        pending().await
    })
    .await;
    for status in [301, 302, 303, 307, 308] {
        let to = format!("location: {}/elsewhere\r\n", there.origin());
        let here = Server::start(move |asked| {
            let to = to.clone();
            async move { asked.answer(status, &to, "").await }
        })
        .await;
        let mut subscription = follow(&here);
        subscription.resume_from(Seq::new(7));
        match promptly(subscription.next()).await {
            Arrival::Connected { asked, host } => assert_eq!((asked, host.name()), (Resume::from(Seq::new(7)), &*there.name())),
            other => panic!("not connected: {other:?}"),
        }
        assert_eq!((here.seen().len(), there.seen().pop().expect("a request").target()), (1, "/elsewhere?cursor=7"));
    }
}

#[tokio::test(start_paused = true)]
async fn redirects_that_never_end_are_given_up() {
    let server = Server::start(|asked| asked.answer(302, "location: /again\r\n", "")).await;
    let (cause, pause) = loss(&mut follow(&server)).await;
    assert!(matches!(cause, ConnectionCause::Redirect { .. }), "{cause}");
    assert!(secs(30, 60).contains(&pause));
    assert_eq!(server.seen().len(), 6, "the request and five redirects");
}

#[tokio::test(start_paused = true)]
async fn outside_of_development_no_redirect_makes_this_program_ask_its_own_network() {
    let there = Server::start(|asked| async { drop(asked.open().await) }).await;
    let port = there.name().rsplit(':').next().expect("a port").to_owned();
    for to in [there.origin(), format!("wss://127.0.0.1:{port}"), format!("https://localhost:{port}"), format!("wss://[::1]:{port}")] {
        let location = format!("location: {to}/x\r\n");
        let here = Server::start(move |asked| {
            let location = location.clone();
            async move { asked.answer(302, &location, "").await }
        })
        .await;
        // What the operator names may be here, and without TLS.
        let mut subscription = follow_with(ClientOptions { development: false, ..options() }, &here);
        let (cause, pause) = loss(&mut subscription).await;
        assert!(matches!(cause, ConnectionCause::Forbidden { .. }), "{to}: {cause}");
        assert!(secs(30, 60).contains(&pause), "{pause:?}");
        assert_eq!(here.seen().len(), 1);
    }
    assert!(there.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_waited_for_as_long_as_it_asks_within_reason() {
    for (status, headers, from, to) in [
        (429, "retry-after: 90\r\n", 90, 91),
        (503, "retry-after: 90\r\n", 90, 91),
        (429, "retry-after: 864000\r\n", 600, 601),
        (429, "retry-after: 0\r\n", 0, 1),
        (429, "", 30, 60),
        (503, "", 0, 1),
    ] {
        let server = Server::start(move |asked| asked.answer(status, headers, "slow down")).await;
        let mut subscription = follow(&server);
        let (cause, pause) = loss(&mut subscription).await;
        assert!(matches!(cause, ConnectionCause::Refused { status: told, .. } if told == status), "{cause}");
        assert!(secs(from, to).contains(&pause) && pause > Duration::ZERO, "{status} {headers:?}: {pause:?}");
        // It really is waited, and then it is asked again.
        assert!(within(pause - Duration::from_millis(1), subscription.next()).await.is_none());
        assert_eq!(server.seen().len(), 1);
        let (arrival, _) = within(Duration::from_secs(2), subscription.next()).await.expect("it is asked");
        assert!(matches!(arrival, Arrival::Lost { .. }), "{arrival:?}");
        assert_eq!(server.seen().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn another_answer_is_told_in_its_words_and_tried_again() {
    for (status, from, to) in [(200, 30, 60), (400, 30, 60), (404, 30, 60), (405, 30, 60), (501, 30, 60), (500, 0, 1), (502, 0, 1)] {
        let server = Server::start(move |asked| asked.answer(status, "", "<html>\nno such\u{7} thing here")).await;
        let (cause, pause) = loss(&mut follow(&server)).await;
        assert_eq!(cause, ConnectionCause::Answered { status, said: "<html> no such  thing here".into() });
        assert!(secs(from, to).contains(&pause), "{status}: {pause:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_is_cut_and_a_stalled_one_is_given_up() {
    let head = b"HTTP/1.1 404 Nothing\r\n\r\n";
    let endless = Server::start(move |mut asked| async move {
        let _ = asked.stream.write_all(head).await;
        while asked.stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
    .await;
    let (cause, _) = loss(&mut follow(&endless)).await;
    assert_eq!(cause, ConnectionCause::Answered { status: 404, said: "x".repeat(200) });

    let stalled = Server::start(move |mut asked| async move {
        asked.stream.write_all(head).await.expect("it is open");
        pending().await
    })
    .await;
    let mut subscription = follow(&stalled);
    let (arrival, after) = within(MINUTE, subscription.next()).await.expect("it is given up");
    assert_eq!(lost(arrival).0.cause, ConnectionCause::Timeout { phase: Phase::Answer, after: Duration::from_secs(30) });
    assert!(secs(30, 31).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_hangs_is_given_up_wherever_it_hangs() {
    let half = "HTTP/1.1 101 Switching Protocols\r\nupgrade: webso";
    for sent in ["", half] {
        let server = Server::start(move |mut asked| async move {
            asked.stream.write_all(sent.as_bytes()).await.expect("it is open");
            pending().await
        })
        .await;
        let mut subscription = follow(&server);
        let (arrival, after) = within(MINUTE, subscription.next()).await.expect("it is given up");
        assert_eq!(lost(arrival).0.cause, ConnectionCause::Timeout { phase: Phase::Answer, after: Duration::from_secs(30) });
        assert!(secs(30, 31).contains(&after), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn consent_to_something_else_is_none() {
    for headers in [
        "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        "upgrade: h2c\r\nconnection: upgrade\r\n",
    ] {
        let server = Server::start(move |mut asked| async move {
            let head = format!("HTTP/1.1 101 Switching Protocols\r\n{headers}\r\n");
            asked.stream.write_all(head.as_bytes()).await.expect("it is open");
            pending().await
        })
        .await;
        let (cause, pause) = loss(&mut follow(&server)).await;
        assert!(matches!(cause, ConnectionCause::Handshake { .. }), "{cause}");
        assert!(secs(30, 60).contains(&pause));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_down_is_tried_again() {
    let server = Server::start(|asked| async { drop(asked) }).await;
    let (hung_up, _) = loss(&mut follow(&server)).await;
    assert!(matches!(hung_up, ConnectionCause::Cut { .. }), "{hung_up}");
    let upstream = Upstream::host(server.origin()).expect("an upstream");
    drop(server);
    let mut subscription = Client::new(options()).expect("a client").subscribe(upstream);
    let mut pauses = Duration::ZERO;
    for _ in 0..5 {
        let (arrival, _) = within(2 * MINUTE, subscription.next()).await.expect("it is told");
        let (error, pause) = lost(arrival);
        assert!(matches!(error.cause, ConnectionCause::Connect { .. }), "{error}");
        pauses += pause;
    }
    assert!(secs(15, 31).contains(&pauses), "1, 2, 4, 8 and 16 s, or half of each: {pauses:?}");
}
