//! Whoever takes the frames may be slow (faults.md 29): memory stays bounded, and slowness on this side is no death on the other.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::*;

const FRAMES: usize = 600;
const LENGTH: usize = 100_000;

#[derive(Default)]
struct Counts {
    sent: AtomicUsize,
    pings: AtomicUsize,
}

/// Sends [`FRAMES`] frames as fast as they are taken, each with its number, and reads meanwhile. It hangs up on who is silent for a minute.
async fn flood(socket: Socket, counts: Arc<Counts>) {
    let (mut sink, mut stream) = socket.split();
    let send = async {
        for number in 0..FRAMES {
            let mut frame = vec![0; LENGTH];
            frame[..8].copy_from_slice(&number.to_be_bytes());
            sink.send(Message::Binary(frame.into())).await.expect("it is open");
            counts.sent.fetch_add(1, Ordering::Relaxed);
        }
        std::future::pending::<()>().await;
    };
    let read = async {
        while let Ok(Some(Ok(message))) = timeout(MINUTE, stream.next()).await {
            counts.pings.fetch_add(usize::from(message.is_ping()), Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = send => {}
        () = read => {}
    }
}

async fn flooding() -> (Server, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let counted = counts.clone();
    let server = Server::start(move |asked| {
        let counted = counted.clone();
        async move { flood(asked.open().await, counted).await }
    })
    .await;
    (server, counts)
}

#[tokio::test(start_paused = true)]
async fn an_upstream_is_not_read_while_nobody_takes_and_is_not_taken_for_dead_either() {
    let (server, counts) = flooding().await;
    let mut subscription = follow_with(ClientOptions { read_ahead: 500_000, ..options() }, &server);
    connected(&mut subscription).await;
    let mut taken_so_far = 0;
    for rest in 0..3 {
        pass(5 * MINUTE).await;
        let ahead = counts.sent.load(Ordering::Relaxed) - taken_so_far;
        // Beyond what is read ahead there are the buffers of the two sockets.
        assert!((5..300).contains(&ahead), "{ahead} frames are ahead");
        assert!(counts.pings.load(Ordering::Relaxed) >= 9 * (rest + 1), "it is pinged meanwhile: {}", counts.pings.load(Ordering::Relaxed));
        for _ in 0..100 {
            let frame = taken(&mut subscription).await;
            assert_eq!(frame[..8], taken_so_far.to_be_bytes());
            taken_so_far += 1;
        }
    }
    while taken_so_far < FRAMES {
        assert_eq!(taken(&mut subscription).await[..8], taken_so_far.to_be_bytes());
        taken_so_far += 1;
    }
    assert_eq!(server.seen().len(), 1, "one connection all the time");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_died_meanwhile_is_noticed_after_its_frames_are_taken() {
    let server = Server::start(|asked| async {
        let mut socket = asked.open().await;
        for number in 0..40usize {
            let mut frame = vec![0; LENGTH];
            frame[..8].copy_from_slice(&number.to_be_bytes());
            socket.send(Message::Binary(frame.into())).await.expect("it is open");
        }
        std::future::pending().await
    })
    .await;
    let mut subscription = follow_with(ClientOptions { read_ahead: 500_000, ..options() }, &server);
    connected(&mut subscription).await;
    pass(10 * MINUTE).await;
    for number in 0..40usize {
        assert_eq!(taken(&mut subscription).await[..8], number.to_be_bytes());
    }
    let (arrival, after) = within(2 * MINUTE, subscription.next()).await.expect("it is noticed");
    assert!(matches!(lost(arrival).0.cause, ConnectionCause::Silent { .. }) && secs(59, 61).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_upstream_that_asks_for_signs_of_life_gets_them_while_nobody_takes() {
    let pongs = Arc::<AtomicUsize>::default();
    let counted = pongs.clone();
    let server = Server::start(move |asked| {
        let pongs = counted.clone();
        async move {
            let mut socket = asked.open().await;
            socket.send(frame("one")).await.expect("it is open");
            loop {
                socket.send(Message::Ping(Bytes::new())).await.expect("it is open");
                while !timeout(MINUTE, socket.next()).await.expect("an answer").expect("a message").expect("open").is_pong() {}
                pongs.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
        }
    })
    .await;
    let mut subscription = follow(&server);
    connected(&mut subscription).await;
    pass(20 * MINUTE).await;
    assert!(pongs.load(Ordering::Relaxed) > 40, "{pongs:?}");
    assert_eq!(taken(&mut subscription).await, "one");
    assert!(within(MINUTE, subscription.next()).await.is_none(), "the connection is still there");
}

#[tokio::test(start_paused = true)]
async fn a_frame_longer_than_what_is_read_ahead_passes_alone() {
    let (server, _) = flooding().await;
    let mut subscription = follow_with(ClientOptions { read_ahead: 1_000, ..options() }, &server);
    connected(&mut subscription).await;
    for number in 0..FRAMES {
        assert_eq!(taken(&mut subscription).await[..8], number.to_be_bytes());
    }
}
