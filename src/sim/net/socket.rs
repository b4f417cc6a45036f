//! One subscription: sends what the upstream has sequenced, for as long as the client keeps up.
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::counters::Connected;
use super::door::Fuse;
use crate::sim::fault::{Ending, Faults, Gate, StreamFault};
use crate::sim::firehose::{self, Event, Next, Position, Start, Stream};

/// Events that are taken from the sequence at once.
const BATCH: usize = 32;

/// How long a client may take to read the last words of a connection, and to close it.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Inner = WebSocketStream<TokioIo<Upgraded>>;

/// A subscription on its way.
pub(super) struct Socket {
    pub(super) socket: Inner,
    pub(super) stream: Arc<Stream>,
    pub(super) faults: Arc<Faults>,
    pub(super) fuse: Fuse,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) connected: Connected,
    /// Whether it takes nothing from the client, and so answers no ping.
    pub(super) deaf: bool,
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
    /// The connection is closed with this code.
    Close(u16),
    /// An error frame, then a close.
    Error(&'static str, &'static str),
}

const TOO_SLOW: End = End::Error("ConsumerTooSlow", "the consumer is too slow");

impl Socket {
    pub(super) async fn serve(mut self, start: Start, fault: Option<StreamFault>) {
        let Err(end) = self.begin(start, fault).await;
        self.end(end).await;
    }

    async fn begin(&mut self, start: Start, fault: Option<StreamFault>) -> Result<Infallible, End> {
        let mut start = start;
        match (fault, &mut start) {
            (Some(StreamFault::CloseAtOnce), _) => return Err(End::Close(CloseCode::Normal.into())),
            (Some(StreamFault::Silence), _) => loop {
                tokio::select! {
                    heard = hear(&mut self.socket, true) => heard?,
                    _ = self.ended.wait_for(|ended| *ended) => return Err(End::Shutdown),
                }
            },
            (Some(StreamFault::NoPong), _) => self.deaf = true,
            (Some(StreamFault::IgnoreCursor), _) => start = self.stream.start(None),
            (Some(StreamFault::OldCursor(events)), Start::After { position, .. }) => *position = self.stream.before(*position, events),
            _ => {}
        }
        match start {
            Start::Future => Err(End::Error("FutureCursor", "the cursor is in the future")),
            Start::After { position, outdated } => self.follow(position, outdated).await,
        }
    }

    async fn follow(&mut self, mut position: Position, outdated: bool) -> Result<Infallible, End> {
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
                        let before = position;
                        position.seq = seq;
                        self.event(position, &event, live.then_some(before)).await?;
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

    /// Sends an event, or what a fault makes of that.
    async fn event(&mut self, position: Position, event: &Event, live: Option<Position>) -> Result<(), End> {
        let frame = event.frame(position.seq);
        let Some(fault) = self.faults.pick_sending(self.stream.place, event) else { return self.send(frame, live).await };
        match fault {
            StreamFault::Duplicate => self.send(frame.clone(), live).await?,
            StreamFault::Text(text) => self.socket.feed(Message::Text(text.into())).await.map_err(|_| End::Gone)?,
            StreamFault::Binary(bytes) => self.send(bytes, live).await?,
            StreamFault::UnknownOp => self.send(firehose::unknown_op(), live).await?,
            StreamFault::Frame(make) => return self.send(make.make(&frame), live).await,
            StreamFault::Hold(gate) => self.hold(&gate).await?,
            StreamFault::CutMidFrame(ending) => return Err(self.cut(&frame, ending).await),
            StreamFault::Error(name) => return Err(End::Error(name, "simulated")),
            StreamFault::Close(code) => return Err(End::Close(code)),
            StreamFault::Reset => return Err(End::Reset),
            StreamFault::Replay(events) => {
                self.send(frame, live).await?;
                let again = self.stream.after(self.stream.before(position, events), events);
                let Next::Events(again) = again else { return Ok(()) };
                for (seq, event) in again {
                    self.send(event.frame(seq), live).await?;
                }
                return Ok(());
            }
            StreamFault::CloseAtOnce
            | StreamFault::Silence
            | StreamFault::NoPong
            | StreamFault::OldCursor(_)
            | StreamFault::IgnoreCursor => {}
        }
        self.send(frame, live).await
    }

    async fn hold(&mut self, gate: &Gate) -> Result<(), End> {
        self.flush(None).await?;
        let mut opened = pin!(gate.pass());
        loop {
            tokio::select! {
                () = &mut opened => return Ok(()),
                _ = self.ended.wait_for(|ended| *ended) => return Err(End::Shutdown),
                heard = hear(&mut self.socket, self.deaf) => heard?,
            }
        }
    }

    /// Sends half of a frame as the bytes that it is on the wire.
    async fn cut(&mut self, frame: &[u8], ending: Ending) -> End {
        let half = [&frame_head(frame.len())[..], &frame[..frame.len() / 2]].concat();
        let sent = async {
            self.socket.flush().await.map_err(|_| End::Gone)?;
            let raw = self.socket.get_mut();
            raw.write_all(&half).await.map_err(|_| End::Gone)?;
            raw.flush().await.map_err(|_| End::Gone)
        };
        match (sent.await, ending) {
            (Err(end), _) => end,
            (Ok(()), Ending::Reset) => {
                // Lets the client have what was sent before.
                tokio::time::sleep(Duration::from_millis(5)).await;
                End::Reset
            }
            (Ok(()), Ending::Clean | Ending::Close) => End::Gone,
        }
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
        if self.deaf {
            return Ok(());
        }
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
                heard = hear(&mut self.socket, self.deaf) => heard?,
            }
        }
    }

    async fn end(mut self, end: End) {
        let last_words = async {
            match end {
                End::Gone => {}
                End::Reset => self.fuse.blow(),
                End::Shutdown => self.close(CloseCode::Away, "").await,
                End::Close(code) => self.close(code.into(), "simulated").await,
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

/// The head of an unmasked binary frame of this many bytes (RFC 6455, section 5.2).
fn frame_head(bytes: usize) -> Vec<u8> {
    let mut head = vec![0x82];
    match bytes {
        0..126 => head.push(bytes as u8),
        126..=0xffff => {
            head.push(126);
            head.extend_from_slice(&(bytes as u16).to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(bytes as u64).to_be_bytes());
        }
    }
    head
}

/// Takes something that the client has sent; if deaf, as bytes that mean nothing.
async fn hear(socket: &mut Inner, deaf: bool) -> Result<(), End> {
    if !deaf {
        return is_there(socket.next().await);
    }
    match socket.get_mut().read(&mut [0; 1024]).await {
        Ok(1..) => Ok(()),
        Ok(0) | Err(_) => Err(End::Gone),
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
