//! The beginning of a subscription to a firehose: from the request to the WebSocket.
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::task::TaskTracker;

use super::answer::Answer;
use super::counters::Counters;
use super::door::Fuse;
use super::request::Request;
use super::socket::Socket;
use crate::sim::fault::{Fault, Faults};
use crate::sim::firehose::Stream;

/// The firehose of one port.
pub(super) struct Subscriptions {
    pub(super) stream: Arc<Stream>,
    pub(super) faults: Arc<Faults>,
    pub(super) counters: Arc<Counters>,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) sockets: TaskTracker,
}

impl Subscriptions {
    /// Answers a request for a subscription: with 101, after which the connection is a WebSocket.
    ///
    /// Where a connection begins is settled before the answer, so that a client that has it misses nothing that happens afterwards.
    pub(super) fn open(&self, request: &Request, upgrade: Option<OnUpgrade>, fuse: Fuse, fault: Option<&Fault>) -> Answer {
        let (Some(upgrade), Some(key)) = (upgrade, key(&request.headers)) else {
            return Answer::error(426, "UpgradeRequired", "a WebSocket upgrade is expected").with(header::UPGRADE, "websocket");
        };
        let cursor = match request.parameter("cursor").map(str::parse::<u64>).transpose() {
            Ok(cursor) => cursor,
            Err(_) => return Answer::error(400, "InvalidRequest", "cursor must be an integer"),
        };
        let start = self.stream.start(cursor);
        let fault = match fault {
            Some(Fault::Stream(fault)) => Some(fault.clone()),
            _ => None,
        };
        let (stream, faults, ended) = (Arc::clone(&self.stream), Arc::clone(&self.faults), self.ended.clone());
        let connected = self.counters.subscribe(cursor);
        self.sockets.spawn(async move {
            // An error means that the client went away meanwhile.
            if let Ok(upgraded) = upgrade.await {
                let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
                Socket { socket, stream, faults, fuse, ended, connected, deaf: false }.serve(start, fault).await;
            }
        });
        let mut answer = Answer::new(StatusCode::SWITCHING_PROTOCOLS, "", "");
        answer.headers = HeaderMap::new();
        answer
            .with(header::CONNECTION, "upgrade")
            .with(header::UPGRADE, "websocket")
            .with(header::SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes()))
    }
}

/// The key of a request to become a WebSocket, if it is one.
fn key(headers: &HeaderMap) -> Option<&str> {
    let upgrade = headers.get(header::UPGRADE)?.to_str().ok()?;
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.to_str().ok()?;
    upgrade.eq_ignore_ascii_case("websocket").then_some(key)
}
