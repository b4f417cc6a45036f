//! One subscription: sends what the upstream has sequenced, for as long as the client keeps up.
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::counters::Connected;
use super::door::Fuse;
use crate::sim::fault::{Fault, Faults};
use crate::sim::firehose::{self, Event, Next, Position, Start, Stream};

/// Events that are taken from the sequence at once.
const BATCH: usize = 32;

/// How long a client may take to read the last words of a connection, and to close it.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A subscription on its way.
pub(super) struct Socket {
    pub(super) socket: WebSocketStream<TokioIo<Upgraded>>,
    pub(super) stream: Arc<Stream>,
    pub(super) faults: Arc<Faults>,
    pub(super) fuse: Fuse,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) connected: Connected,
}

/// Why a connection ends.
#[derive(Debug)]
enum End {
    /// The client is gone.
    Gone,
    /// The network shuts down.
    Shutdown,
    /// The connection is reset.
    Reset,
    /// An error frame, then a close.
    Error(&'static str, &'static str),
}

const TOO_SLOW: End = End::Error("ConsumerTooSlow", "the consumer is too slow");

impl Socket {
    pub(super) async fn serve(mut self, start: Start, _fault: Option<Fault>) {
        let end = match start {
            Start::Future => End::Error("FutureCursor", "the cursor is in the future"),
            Start::After { position, outdated } => match self.follow(position, outdated).await {
                Ok(never) => match never {},
                Err(end) => end,
            },
        };
        self.end(end).await;
    }

    async fn follow(&mut self, mut position: Position, outdated: bool) -> Result<std::convert::Infallible, End> {
        if outdated {
            self.send(firehose::info("OutdatedCursor", "the cursor is older than what is retained"), None).await?;
        }
        let mut grown = self.stream.grown();
        // A connection that catches up may take its time; one that has caught up must keep up.
        let mut live = false;
        loop {
            grown.mark_unchanged();
            self.listen()?;
            match self.stream.after(position, BATCH) {
                Next::Events(events) => {
                    for (seq, event) in events {
                        self.event(seq, &event, live.then_some(position)).await?;
                        position.seq = seq;
                    }
                }
                Next::Nothing => {
                    live = true;
                    self.flush(Some(position)).await?;
                    self.wait(&mut grown).await?;
                }
                Next::Overtaken => return Err(TOO_SLOW),
                Next::Restarted => return Err(End::Reset),
            }
        }
    }

    async fn event(&mut self, seq: u64, event: &Event, live: Option<Position>) -> Result<(), End> {
        self.send(event.frame(seq), live).await
    }

    async fn send(&mut self, frame: Bytes, live: Option<Position>) -> Result<(), End> {
        let sent = self.socket.feed(Message::Binary(frame));
        keeping_up(sent, &self.stream, live, &mut self.ended).await?;
        self.connected.sent();
        Ok(())
    }

    async fn flush(&mut self, live: Option<Position>) -> Result<(), End> {
        keeping_up(self.socket.flush(), &self.stream, live, &mut self.ended).await
    }

    /// Takes what the client has sent: its pings, which are answered, or its farewell.
    fn listen(&mut self) -> Result<(), End> {
        while let Some(message) = self.socket.next().now_or_never() {
            is_there(message)?;
        }
        Ok(())
    }

    /// Waits for something new, and answers the client meanwhile.
    async fn wait(&mut self, grown: &mut watch::Receiver<u64>) -> Result<(), End> {
        loop {
            tokio::select! {
                // The stream keeps the sender, so that this cannot fail.
                _ = grown.changed() => return Ok(()),
                _ = self.ended.wait_for(|ended| *ended) => return Err(End::Shutdown),
                message = self.socket.next() => is_there(message)?,
            }
        }
    }

    async fn end(mut self, end: End) {
        let last_words = async {
            match end {
                End::Gone => {}
                End::Reset => self.fuse.blow(),
                End::Shutdown => self.close(CloseCode::Away, "").await,
                End::Error(name, message) => {
                    // A client that does not read it gets the reset that follows.
                    if self.socket.send(Message::Binary(firehose::error(name, message))).await.is_ok() {
                        self.close(CloseCode::Policy, name).await;
                    }
                }
            }
        };
        if tokio::time::timeout(LAST_WORDS, last_words).await.is_err() {
            self.fuse.blow();
        }
    }

    /// Says farewell and waits until the client has, too.
    async fn close(&mut self, code: CloseCode, reason: &'static str) {
        if self.socket.close(Some(CloseFrame { code, reason: reason.into() })).await.is_ok() {
            while let Some(Ok(_)) = self.socket.next().await {}
        }
    }
}

fn is_there(message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>) -> Result<(), End> {
    match message {
        Some(Ok(Message::Close(_)) | Err(_)) | None => Err(End::Gone),
        Some(Ok(_)) => Ok(()),
    }
}

/// Sends, unless the network ends or a connection that had caught up to `live` falls too far behind meanwhile.
async fn keeping_up(
    sent: impl Future<Output = Result<(), tokio_tungstenite::tungstenite::Error>>,
    stream: &Stream,
    live: Option<Position>,
    ended: &mut watch::Receiver<bool>,
) -> Result<(), End> {
    let too_slow = async {
        let mut grown = stream.grown();
        while live.is_none_or(|position| stream.head().saturating_sub(position.seq) <= stream.options.queue) {
            _ = grown.changed().await;
        }
    };
    tokio::select! {
        biased;
        sent = sent => sent.map_err(|_| End::Gone),
        () = too_slow => Err(TOO_SLOW),
        _ = ended.wait_for(|ended| *ended) => Err(End::Shutdown),
    }
}
