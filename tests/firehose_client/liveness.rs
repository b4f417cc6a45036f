//! Quiet upstreams are healthy, dead ones are noticed.
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::*;

/// Reads for ever, which answers pings, and counts them.
async fn answer_pings(mut socket: Socket, pings: Arc<AtomicUsize>) {
    while let Some(Ok(message)) = socket.next().await {
        pings.fetch_add(usize::from(message.is_ping()), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_without_any_event_for_an_hour_is_healthy() {
    let pings = Arc::<AtomicUsize>::default();
    let counted = pings.clone();
    let server = Server::start(move |asked| {
        let counted = counted.clone();
        async move { answer_pings(asked.open().await, counted).await }
    })
    .await;
    let mut subscription = follow(&server);
    connected(&mut subscription).await;
    let quiet = within(60 * MINUTE, subscription.next()).await;
    assert!(quiet.is_none(), "{quiet:?}");
    assert!((115..=120).contains(&pings.load(Ordering::Relaxed)), "a ping every 30 s: {pings:?}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_answers_no_ping_is_given_up_after_a_minute() {
    let server = Server::start(|asked| async {
        let _open = asked.raw().await;
        pending().await
    })
    .await;
    let mut subscription = follow(&server);
    connected(&mut subscription).await;
    let (arrival, after) = within(2 * MINUTE, subscription.next()).await.expect("it is noticed");
    assert_eq!(lost(arrival).0.cause, ConnectionCause::Silent { after: MINUTE });
    assert!(secs(60, 61).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn anything_at_all_is_a_sign_of_life() {
    // No pongs come from this one: only an event, a ping, or single bytes of one long frame.
    for (beginning, sign, end) in [
        (&b""[..], &b"\x82\x03one"[..], &b"\x82\x03end"[..]),
        (b"", b"\x89\x00", b"\x82\x03end"),
        (b"", b"\x8a\x00", b"\x82\x03end"),
        (b"\x82\x7e\x01\x00", b"x", &[b'x'; 246]),
    ] {
        let server = Server::start(move |asked| async move {
            let mut stream = asked.raw().await;
            stream.write_all(beginning).await.expect("it is open");
            for _ in 0..10 {
                sleep(Duration::from_secs(40)).await;
                stream.write_all(sign).await.expect("it is open");
            }
            stream.write_all(end).await.expect("it is open");
            pending().await
        })
        .await;
        let mut subscription = follow(&server);
        connected(&mut subscription).await;
        let last = async {
            loop {
                match subscription.next().await {
                    Arrival::Frame(frame) if frame != "one" => return frame.len(),
                    Arrival::Frame(_) => {}
                    other => panic!("{sign:?} is a sign of life: {other:?}"),
                }
            }
        };
        let (length, _) = within(12 * MINUTE, last).await.expect("it comes");
        assert_eq!(length, if beginning.is_empty() { 3 } else { 256 });
        let (arrival, after) = within(2 * MINUTE, subscription.next()).await.expect("then it is silent");
        assert!(matches!(lost(arrival).0.cause, ConnectionCause::Silent { .. }) && secs(60, 61).contains(&after), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn its_pings_are_answered() {
    let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |asked| {
        let answered = answered.clone();
        async move {
            let mut socket = asked.open().await;
            socket.send(Message::Ping(Bytes::from_static(b"are you there"))).await.expect("it is open");
            while let Some(Ok(message)) = socket.next().await {
                let _ = answered.send(message);
            }
        }
    })
    .await;
    let mut subscription = follow(&server);
    connected(&mut subscription).await;
    assert_eq!(promptly(answers.recv()).await, Some(Message::Pong(Bytes::from_static(b"are you there"))));
}
