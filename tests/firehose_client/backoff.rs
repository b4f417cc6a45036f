//! When it connects again (faults.md 21), and that giving up a wait loses nothing.
use std::future::pending;
use std::time::Duration;

use super::*;

/// The pauses between the requests that a server has seen.
fn intervals(server: &Server) -> Vec<Duration> {
    let seen = server.seen();
    seen.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_opens_and_fails_at_once_is_no_hot_loop() {
    let server = Server::start(|asked| async {
        let mut socket = asked.open().await;
        socket.send(frame("FutureCursor")).await.expect("it is open");
        let _ = socket.close(None).await;
    })
    .await;
    let mut subscription = follow(&server);
    let (mut opened, mut frames) = (0, 0);
    let all = async {
        loop {
            match subscription.next().await {
                Arrival::Connected { .. } => opened += 1,
                Arrival::Frame(_) => frames += 1,
                Arrival::Lost { .. } => {}
            }
        }
    };
    assert!(within(20 * MINUTE, all).await.is_none());
    let intervals = intervals(&server);
    assert!(opened > 20 && opened == frames && opened == server.seen().len(), "it is really tried: {opened}");
    for (nth, interval) in intervals.iter().enumerate() {
        let longest = Duration::from_secs(60.min(1 << nth.min(10)));
        // A connection takes a few steps of this test's clock.
        let allowed = longest / 2..=longest + Duration::from_secs(3);
        assert!(allowed.contains(interval), "pause {nth} is {interval:?}");
    }
    let late: Vec<_> = intervals.iter().skip(6).collect();
    assert!(late.windows(2).any(|pair| pair[0].abs_diff(*pair[1]) > Duration::from_secs(2)), "there is no jitter: {late:?}");
}

#[tokio::test(start_paused = true)]
async fn pauses_begin_anew_after_progress_and_only_then() {
    let server = Server::start(|asked| async {
        let mut socket = asked.open().await;
        socket.send(frame("an event")).await.expect("it is open");
    })
    .await;
    let mut subscription = follow(&server);
    let mut pauses = Vec::new();
    for round in 0..12 {
        let (arrival, _) = within(2 * MINUTE, subscription.next()).await.expect("it connects again");
        assert!(matches!(arrival, Arrival::Connected { .. }), "{arrival:?}");
        taken(&mut subscription).await;
        if round == 8 {
            subscription.progressed();
        }
        pauses.push(loss(&mut subscription).await.1);
    }
    for (round, longest) in [1, 2, 4, 8, 16, 32, 60, 60, 1, 2, 4, 8].into_iter().enumerate() {
        let longest = Duration::from_secs(longest);
        assert!((longest / 2..=longest).contains(&pauses[round]), "round {round}: {pauses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_loses_no_frame_and_makes_no_second_connection() {
    let server = Server::start(|asked| async move {
        if asked.nth == 0 {
            return drop(asked.open().await);
        }
        let mut socket = asked.open().await;
        for number in 0..1000u32 {
            socket.send(Message::Binary(Bytes::copy_from_slice(&number.to_be_bytes()))).await.expect("it is open");
            tokio::task::yield_now().await;
        }
        pending().await
    })
    .await;
    let mut subscription = follow(&server);
    let (mut numbers, mut given_up) = (Vec::new(), 0);
    let all = async {
        while numbers.len() < 1000 {
            let arrival = tokio::select! {
                biased;
                arrival = subscription.next() => arrival,
                () = tokio::task::yield_now() => {
                    given_up += 1;
                    continue;
                }
            };
            if let Arrival::Frame(frame) = arrival {
                numbers.push(u32::from_be_bytes((&*frame).try_into().expect("four bytes")));
            }
        }
    };
    assert!(within(MINUTE, all).await.is_some(), "they come");
    assert!(numbers.into_iter().eq(0..1000), "all of them, in order");
    assert!(given_up > 20, "{given_up} waits were given up");
    assert_eq!(server.seen().len(), 2);
}
