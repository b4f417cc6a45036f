//! One open connection: reads ahead into a bounded queue, and keeps the connection alive whether or not anybody takes from it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures::{Sink, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{Sender, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use super::frame::MAX_FRAME;
use super::heard::Heard;
use super::{ClientOptions, ConnectionCause};
use crate::fetch::Host;

/// What a connection hands over, in order.
#[derive(Debug)]
pub(super) enum Inbound {
    /// It is open; this is the host that was reached.
    Open(Host),
    /// A message, and its share of what may be read ahead.
    Frame(Bytes, Option<OwnedSemaphorePermit>),
    /// It has ended. Nothing follows.
    Lost(ConnectionCause),
}

/// One connection, until it is lost or nobody takes from it any more.
pub(super) struct Connection<S> {
    socket: WebSocketStream<Heard<S>>,
    into: Sender<Inbound>,
    room: Arc<Semaphore>,
    ping: Interval,
    /// Since when it has been read from without a stop. A stop on this side is no silence of the other.
    reading_since: Instant,
    options: ClientOptions,
}

/// Why a connection is not read any more.
enum End {
    /// Whoever takes from it is gone.
    Unwanted,
    /// It is lost.
    Lost(ConnectionCause),
}

impl From<ConnectionCause> for End {
    fn from(cause: ConnectionCause) -> Self {
        Self::Lost(cause)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) async fn new(stream: S, into: Sender<Inbound>, options: ClientOptions) -> Self {
        let config = WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
        let socket = WebSocketStream::from_raw_socket(Heard::new(stream), Role::Client, Some(config)).await;
        let now = Instant::now();
        let mut ping = interval_at(now + options.ping_interval, options.ping_interval);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let room = Arc::new(Semaphore::new(options.read_ahead as usize));
        Self { socket, into, room, ping, reading_since: now, options }
    }

    /// Reads and hands over until the end, and says goodbye.
    pub(super) async fn run(mut self) {
        let Err(end) = self.read().await;
        let into = self.into.clone();
        let told = async {
            if let End::Lost(cause) = end {
                // Nobody takes it when nobody is there, which is no matter.
                let _ = into.send(Inbound::Lost(cause)).await;
            }
        };
        tokio::join!(told, self.say_goodbye());
    }

    async fn read(&mut self) -> Result<Infallible, End> {
        let into = self.into.clone();
        let unwanted = into.closed();
        let silent = sleep_until(self.silent_at());
        tokio::pin!(unwanted, silent);
        loop {
            // Reading comes before the limit of silence: what has arrived counts, however late this runs.
            tokio::select! {
                biased;
                () = &mut unwanted => return Err(End::Unwanted),
                _ = self.ping.tick() => self.send_ping().await,
                message = self.socket.next() => if let Some(frame) = content(message)? {
                    self.hand_over(frame).await?;
                },
                () = &mut silent => {
                    if self.silent_at() <= Instant::now() {
                        return Err(ConnectionCause::Silent { after: self.options.silence }.into());
                    }
                    silent.as_mut().reset(self.silent_at());
                }
            }
        }
    }

    fn silent_at(&self) -> Instant {
        self.socket.get_ref().at().max(self.reading_since) + self.options.silence
    }

    /// Puts a frame where it is taken from. While there is no room nothing is read, but pings go out, so that the upstream knows that this side lives.
    async fn hand_over(&mut self, frame: Bytes) -> Result<(), End> {
        let share = u32::try_from(frame.len()).unwrap_or(u32::MAX).min(self.options.read_ahead);
        let (into, room) = (self.into.clone(), self.room.clone());
        let inbound = match room.clone().try_acquire_many_owned(share) {
            Err(_) => Inbound::Frame(frame, None),
            Ok(permit) => match into.try_send(Inbound::Frame(frame, Some(permit))) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(End::Unwanted),
                Err(TrySendError::Full(inbound)) => inbound,
            },
        };
        let wait = async {
            let inbound = match inbound {
                Inbound::Frame(frame, None) => Inbound::Frame(frame, room.acquire_many_owned(share).await.ok()),
                inbound => inbound,
            };
            into.send(inbound).await.map_err(|_| End::Unwanted)
        };
        tokio::pin!(wait);
        loop {
            tokio::select! {
                biased;
                handed_over = &mut wait => {
                    self.reading_since = Instant::now();
                    return handed_over;
                }
                () = into.closed() => return Err(End::Unwanted),
                _ = self.ping.tick() => self.send_ping().await,
            }
        }
    }

    /// Sends a ping as far as the socket takes it; the rest goes out with the next one. It never waits for an upstream that does not read, and
    /// where it fails, reading finds out, after what the upstream sent before.
    async fn send_ping(&mut self) {
        let mut socket = Pin::new(&mut self.socket);
        poll_fn(|cx| {
            if let Poll::Ready(Ok(())) = socket.as_mut().poll_ready(cx)
                && socket.as_mut().start_send(Message::Ping(Bytes::new())).is_ok()
            {
                let _ = socket.as_mut().poll_flush(cx);
            }
            Poll::Ready(())
        })
        .await;
    }

    async fn say_goodbye(&mut self) {
        // A connection that is broken cannot be closed in good order, and need not be.
        let _ = timeout(self.options.close_timeout, self.socket.close(None)).await;
    }
}

/// The frame in a message; none in one that only keeps the connection alive.
fn content(message: Option<Result<Message, WsError>>) -> Result<Option<Bytes>, ConnectionCause> {
    match message {
        Some(Ok(Message::Binary(frame))) => Ok(Some(frame)),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(None),
        Some(Ok(Message::Text(_))) => Err(ConnectionCause::Text),
        Some(Ok(Message::Close(frame))) => Err(match frame {
            Some(frame) => ConnectionCause::Closed { code: Some(frame.code.into()), reason: frame.reason.chars().take(200).collect() },
            None => ConnectionCause::Closed { code: None, reason: String::new() },
        }),
        Some(Err(error)) => Err(cause(error)),
        None => Err(ConnectionCause::Cut { reason: "it ended".into() }),
    }
}

fn cause(error: WsError) -> ConnectionCause {
    match error {
        WsError::Capacity(_) => ConnectionCause::TooLong,
        WsError::Utf8(_) => ConnectionCause::Text,
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            ConnectionCause::Cut { reason: "it ended without a closing handshake".into() }
        }
        WsError::Protocol(error) => ConnectionCause::Protocol { reason: error.to_string() },
        error => ConnectionCause::Cut { reason: error.to_string() },
    }
}
