//! Following firehoses over real sockets on loopback, under a clock that the test moves.
mod answers;
mod backoff;
mod clock;
mod liveness;
mod losses;
mod server;
mod slow;

use std::time::Duration;

use atproto_backfill::firehose::{Arrival, Client, ClientOptions, ConnectionCause, ConnectionError, Resume, Subscription, Upstream};
use atproto_backfill::syntax::Seq;
use bytes::Bytes;
use clock::{pass, promptly, within};
use futures::{SinkExt, StreamExt};
use server::{Server, Socket};
use tokio_tungstenite::tungstenite::Message;

const MINUTE: Duration = Duration::from_secs(60);

fn options() -> ClientOptions {
    ClientOptions { development: true, ..ClientOptions::default() }
}

fn follow_with(options: ClientOptions, server: &Server) -> Subscription {
    let upstream = Upstream::relay(server.origin()).expect("an upstream");
    Client::new(options).expect("a client").subscribe(upstream)
}

fn follow(server: &Server) -> Subscription {
    follow_with(options(), server)
}

fn frame(text: &'static str) -> Message {
    Message::Binary(Bytes::from_static(text.as_bytes()))
}

async fn connected(subscription: &mut Subscription) -> Resume {
    match promptly(subscription.next()).await {
        Arrival::Connected { asked, .. } => asked,
        other => panic!("not connected: {other:?}"),
    }
}

async fn taken(subscription: &mut Subscription) -> Bytes {
    match promptly(subscription.next()).await {
        Arrival::Frame(frame) => frame,
        other => panic!("no frame: {other:?}"),
    }
}

fn lost(arrival: Arrival) -> (ConnectionError, Duration) {
    match arrival {
        Arrival::Lost { error, pause } => (error, pause),
        other => panic!("not lost: {other:?}"),
    }
}

/// The cause of the loss that comes at once, after what may come before it.
async fn loss(subscription: &mut Subscription) -> (ConnectionCause, Duration) {
    loop {
        match promptly(subscription.next()).await {
            Arrival::Connected { .. } | Arrival::Frame(_) => {}
            Arrival::Lost { error, pause } => {
                assert_eq!(&*error.upstream, subscription.upstream().name());
                assert!(error.to_string().contains(subscription.upstream().name()), "{error}");
                return (error.cause, pause);
            }
        }
    }
}

fn secs(from: u64, to: u64) -> std::ops::RangeInclusive<Duration> {
    Duration::from_secs(from)..=Duration::from_secs(to)
}
