//! A server on loopback that does what a test tells it, down to the bytes: it can answer, stall, cut, trickle and hang up.
#![allow(dead_code, reason = "each test file uses its own part")]
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Path and query.
    pub(crate) target: String,
    head: String,
}

impl Seen {
    /// The value of a header, given its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What is done with a connection, in order; at the end it is closed.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends nothing more, and keeps the connection.
    Stall,
    /// Sends these bytes again and again, with a pause before each time.
    Trickle(Vec<u8>, Duration),
}

/// An answer in good order.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<Step> {
    vec![Step::Send([head(status, headers, Some(body.len())), body.to_vec()].concat())]
}

/// An error as the protocol words it.
pub(crate) fn error(status: u16, name: &str) -> Vec<Step> {
    answer(status, &[("content-type", "application/json")], format!(r#"{{"error":"{name}","message":"in words"}}"#).as_bytes())
}

/// The first part of an answer. Without a length, the body ends where the connection does.
pub(crate) fn head(status: u16, headers: &[(&str, &str)], length: Option<usize>) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Something\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(length) = length {
        head.push_str(&format!("content-length: {length}\r\n"));
    }
    format!("{head}\r\n").into_bytes()
}

/// The server. It ends when it is dropped.
pub(crate) struct Responder {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    serving: JoinHandle<()>,
}

impl Responder {
    /// Starts a server on a free port that answers every request as `behave` says.
    pub(crate) async fn start(behave: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (behave, log) = (Arc::new(behave), seen.clone());
        let serving = tokio::spawn(async move {
            // Dropped with this future, which ends every connection as well.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, behave.clone(), log.clone()));
            }
        });
        Self { address, seen, serving }
    }

    /// `http://127.0.0.1:<port>`.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `127.0.0.1:<port>`.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no test panics in here").clone()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// An origin on which nobody listens.
pub(crate) async fn nobody() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

async fn serve(mut stream: TcpStream, behave: Arc<impl Fn(&Seen) -> Vec<Step>>, log: Arc<Mutex<Vec<Seen>>>) {
    let Some(request) = read(&mut stream).await else { return };
    log.lock().expect("no test panics in here").push(request.clone());
    for step in behave(&request) {
        // A client that has gone is none of this server's business.
        let sent = match step {
            Step::Send(bytes) => stream.write_all(&bytes).await,
            Step::Stall => std::future::pending().await,
            Step::Trickle(bytes, pause) => loop {
                tokio::time::sleep(pause).await;
                if let Err(gone) = stream.write_all(&bytes).await {
                    break Err(gone);
                }
            },
        };
        if sent.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(bytes).ok()?;
    let target = head.split(' ').nth(1)?.to_owned();
    Some(Seen { target, head })
}
