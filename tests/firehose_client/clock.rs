//! Time in these tests. Tokio's clock is paused, and moves by itself only while nobody has anything to do; but that somebody waits for a socket
//! it does not see. So whoever waits here keeps busy, which holds the clock while the sockets are served, and the clock is moved by hand.
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::advance;

/// How long a test waits for what should come at once, in real time, before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// By how much the clock is moved at once, and for how long, in real time, everybody has turns in between: what is on its way between two sockets must
/// arrive, though the machine be busy.
const STEP: Duration = Duration::from_millis(500);
const TURNS: Duration = Duration::from_millis(1);

/// What comes without any time passing.
pub(crate) async fn promptly<T>(future: impl Future<Output = T>) -> T {
    let overdue = async {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        done = future => done,
        () = overdue => panic!("it does not come"),
    }
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    let mut left = time;
    while left > Duration::ZERO {
        advance(left.min(STEP)).await;
        left = left.saturating_sub(STEP);
        let began = Instant::now();
        while began.elapsed() < TURNS {
            yield_now().await;
        }
    }
}

/// What comes within this time, and how long it took; none if it does not come.
pub(crate) async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<(T, Duration)> {
    let began = tokio::time::Instant::now();
    let mut future = pin!(future);
    tokio::select! {
        biased;
        done = &mut future => Some((done, began.elapsed())),
        () = pass(time) => None,
    }
}
