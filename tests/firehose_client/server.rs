//! A firehose made by hand: each connection is given to the test with its request read and nothing answered yet.
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// A request, and when it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) at: Instant,
}

impl Request {
    /// Path and query.
    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).expect("a request line")
    }

    /// The value of a header, given its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A connection whose request was read.
pub(crate) struct Asked {
    pub(crate) stream: TcpStream,
    pub(crate) request: Request,
    /// How many came before.
    pub(crate) nth: usize,
}

impl Asked {
    /// Answers, and leaves it at that.
    pub(crate) async fn answer(mut self, status: u16, headers: &str, body: &str) {
        let head = format!("HTTP/1.1 {status} Something\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        self.stream.write_all(head.as_bytes()).await.expect("the client reads");
        let _ = self.stream.shutdown().await;
    }

    /// Agrees to the WebSocket and leaves the bytes to the test.
    pub(crate) async fn raw(mut self) -> TcpStream {
        let accept = derive_accept_key(self.request.header("sec-websocket-key").expect("a key").as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
        );
        self.stream.write_all(head.as_bytes()).await.expect("the client reads");
        self.stream
    }

    /// Agrees to the WebSocket.
    pub(crate) async fn open(self) -> Socket {
        WebSocketStream::from_raw_socket(self.raw().await, Role::Server, None).await
    }
}

/// The server. It ends when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Starts a server on a free port that does the same with every connection; at the end it is closed.
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(behave: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::<Mutex<Vec<Request>>>::default();
        let (behave, log) = (Arc::new(behave), seen.clone());
        let serving = tokio::spawn(async move {
            // Dropped with this future, which ends every connection as well.
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (behave, log) = (behave.clone(), log.clone());
                connections.spawn(async move {
                    let Some(head) = read(&mut stream).await else { return };
                    let request = Request { head, at: Instant::now() };
                    let nth = {
                        let mut log = log.lock().expect("no test panics in here");
                        log.push(request.clone());
                        log.len() - 1
                    };
                    behave(Asked { stream, request, nth }).await;
                });
            }
        });
        Self { address, seen, serving }
    }

    /// `ws://127.0.0.1:<port>`.
    pub(crate) fn origin(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// `127.0.0.1:<port>`.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("no test panics in here").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(bytes).ok()
}
