//! How an open connection ends.
use std::future::pending;

use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use super::*;

/// The cause of the loss after exactly these frames.
async fn loss_after(server: &Server, frames: &[&str]) -> ConnectionCause {
    let mut subscription = follow(server);
    connected(&mut subscription).await;
    for text in frames {
        assert_eq!(taken(&mut subscription).await, *text);
    }
    let (error, pause) = lost(promptly(subscription.next()).await);
    assert!(secs(0, 1).contains(&pause) && pause > Duration::ZERO, "{pause:?}");
    error.cause
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_in_the_middle_of_a_frame_gives_no_half_of_it() {
    for cut in [
        &b"\x82\x03one\x82"[..],
        b"\x82\x03one\x82\x7e\x01",
        b"\x82\x03one\x82\x05half",
        b"\x82\x03one\x02\x04half",
        b"\x82\x03one\x02\x04half\x00\x04hal",
        b"\x82\x03one",
    ] {
        let server = Server::start(move |asked| async move {
            let mut stream = asked.raw().await;
            stream.write_all(cut).await.expect("it is open");
        })
        .await;
        let cause = loss_after(&server, &["one"]).await;
        assert!(matches!(cause, ConnectionCause::Cut { .. }), "{cut:?}: {cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_came_before_a_reset_is_not_lost() {
    let server = Server::start(|asked| async {
        let mut stream = asked.raw().await;
        stream.write_all(b"\x82\x03one\x82\x05half").await.expect("it is open");
        stream.set_zero_linger().expect("a socket");
    })
    .await;
    let cause = loss_after(&server, &["one"]).await;
    assert!(matches!(cause, ConnectionCause::Cut { .. }), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn an_error_frame_comes_before_the_close_that_follows_it() {
    let server = Server::start(|asked| async {
        let mut socket = asked.open().await;
        socket.send(frame("an error frame")).await.expect("it is open");
        let close = CloseFrame { code: CloseCode::Policy, reason: "ConsumerTooSlow".into() };
        socket.send(Message::Close(Some(close))).await.expect("it is open");
        let answer = socket.next().await;
        assert!(matches!(answer, Some(Ok(Message::Close(_)))), "the close is answered: {answer:?}");
    })
    .await;
    let cause = loss_after(&server, &["an error frame"]).await;
    assert_eq!(cause, ConnectionCause::Closed { code: Some(1008), reason: "ConsumerTooSlow".into() });
}

#[tokio::test(start_paused = true)]
async fn text_ends_the_connection_also_where_it_is_no_text() {
    for sent in [&b"\x82\x03one\x81\x04text"[..], b"\x82\x03one\x81\x02\xff\xfe"] {
        let server = Server::start(move |asked| async move {
            let mut stream = asked.raw().await;
            stream.write_all(sent).await.expect("it is open");
            pending().await
        })
        .await;
        assert_eq!(loss_after(&server, &["one"]).await, ConnectionCause::Text);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_websocket_ends_the_connection() {
    for sent in
        [&b"\x83\x03one"[..], b"\xc2\x03one", b"\x8b\x00", b"\x82\x83\x00\x00\x00\x00one", b"\x00\x03one", b"\x02\x03one\x82\x03two"]
    {
        let server = Server::start(move |asked| async move {
            let mut stream = asked.raw().await;
            stream.write_all(sent).await.expect("it is open");
            pending().await
        })
        .await;
        let cause = loss_after(&server, &[]).await;
        assert!(matches!(cause, ConnectionCause::Protocol { .. }), "{sent:?}: {cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_of_five_million_bytes_passes_and_a_longer_one_does_not_whole_or_in_parts() {
    let part = |code, from: usize, to: usize, last| Frame::message(vec![b'x'; to - from], OpCode::Data(code), last);
    for (length, fits) in [(5_000_000, true), (5_000_001, false), (6_000_000, false)] {
        for parts in [1, 3] {
            let server = Server::start(move |asked| async move {
                let mut socket = asked.open().await;
                for nth in 0..parts {
                    let code = if nth == 0 { Data::Binary } else { Data::Continue };
                    let sent = part(code, length * nth / parts, length * (nth + 1) / parts, nth + 1 == parts);
                    // The client hangs up in the middle.
                    if socket.send(Message::Frame(sent)).await.is_err() {
                        return;
                    }
                }
                pending().await
            })
            .await;
            let mut subscription = follow(&server);
            connected(&mut subscription).await;
            match promptly(subscription.next()).await {
                Arrival::Frame(frame) => assert!(fits && frame.len() == length, "{length} in {parts}: {}", frame.len()),
                arrival => assert_eq!((lost(arrival).0.cause, fits), (ConnectionCause::TooLong, false), "{length} in {parts}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_frames_may_end_the_connection_and_go_on_elsewhere() {
    let (closed, mut closes) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |asked| {
        let closed = closed.clone();
        async move {
            let mut socket = asked.open().await;
            socket.send(frame("one")).await.expect("it is open");
            socket.send(frame("forgotten")).await.expect("it is open");
            while let Some(Ok(message)) = socket.next().await {
                if message.is_close() {
                    closed.send(()).expect("the test listens");
                }
            }
        }
    })
    .await;
    let mut subscription = follow(&server);
    subscription.reconnect("not connected yet, so it is nothing");
    connected(&mut subscription).await;
    taken(&mut subscription).await;
    subscription.resume_from(Resume::Oldest);
    subscription.reconnect("a sequence that restarted");
    let (error, pause) = lost(promptly(subscription.next()).await);
    assert_eq!(error.cause, ConnectionCause::Ended { why: "a sequence that restarted" });
    promptly(closes.recv()).await.expect("the server is told");
    assert!(within(pause - Duration::from_millis(1), subscription.next()).await.is_none());
    pass(Duration::from_millis(3)).await;
    assert_eq!(connected(&mut subscription).await, Resume::Oldest);
    assert_eq!(taken(&mut subscription).await, "one");
    drop(subscription);
    promptly(closes.recv()).await.expect("the server is told");
}
