use std::sync::Arc;
use std::time::Duration;

use super::frame::MAX_FRAME;
use crate::fetch::Phase;

/// A connection to an upstream could not be made, or has ended. It is made again in any case; [`ConnectionError::remedy`] tells how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("firehose of {upstream}: {cause}")]
pub struct ConnectionError {
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// What went wrong.
    pub cause: ConnectionCause,
}

/// What went wrong with a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionCause {
    /// There was no connection: refused, no route, no name, no valid certificate.
    #[error("no connection: {reason}")]
    Connect {
        /// Why.
        reason: String,
    },
    /// A redirect leads to where this program does not go: an address that is not public, or a server without TLS.
    #[error("redirect not followed: {reason}")]
    Forbidden {
        /// Why.
        reason: String,
    },
    /// A redirect leads nowhere.
    #[error("redirect not followed: {reason}")]
    Redirect {
        /// Why.
        reason: &'static str,
    },
    /// The connection, or the answer, took too long.
    #[error("timed out {phase}, after {} s", after.as_secs())]
    Timeout {
        /// What was waited for.
        phase: Phase,
        /// The limit that was reached.
        after: Duration,
    },
    /// The upstream turned the request down for load (429 or 503).
    #[error("refused (status {status})")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// How long it asked to be left alone, if it said so.
        retry_after: Option<Duration>,
    },
    /// The upstream answered with something other than a WebSocket.
    #[error("no WebSocket (status {status}): {said:?}")]
    Answered {
        /// The status of the answer.
        status: u16,
        /// The beginning of its body.
        said: String,
    },
    /// The upstream's consent to a WebSocket is none.
    #[error("no WebSocket: {rule}")]
    Handshake {
        /// The rule that the answer breaks.
        rule: &'static str,
    },
    /// The connection broke, in the middle of a message or without a word.
    #[error("the connection broke: {reason}")]
    Cut {
        /// Why.
        reason: String,
    },
    /// The upstream closed the connection.
    #[error("closed by the upstream (code {code:?}): {reason:?}")]
    Closed {
        /// Its reason as a number, if it gave one; 1000 is a normal end, 1008 follows an error frame.
        code: Option<u16>,
        /// Its reason in words, which may be none.
        reason: String,
    },
    /// Nothing came, though it was waited for.
    #[error("silent for {} s", after.as_secs())]
    Silent {
        /// The limit that was reached.
        after: Duration,
    },
    /// The upstream breaks the rules of WebSockets.
    #[error("not a WebSocket message: {reason}")]
    Protocol {
        /// How.
        reason: String,
    },
    /// The upstream sent text; a firehose is binary.
    #[error("a text message")]
    Text,
    /// The upstream sent a message of more than [`MAX_FRAME`] bytes.
    #[error("a message of more than {MAX_FRAME} bytes")]
    TooLong,
    /// This side ended it.
    #[error("ended here: {why}")]
    Ended {
        /// Why.
        why: &'static str,
    },
}

/// What is to be done about a connection that was lost. All but the last are done by [`Subscription`](super::Subscription) alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Connect again after the backoff.
    Again,
    /// Connect again after this, or after the backoff where that is longer.
    After(Duration),
    /// Connect again after the longest pause: it will not help before somebody changes something.
    Rarely,
    /// Connect again after the backoff; but with the same cursor the same bytes are likely to come. Who has seen that without progress in between may
    /// go past them, which is a gap.
    Unreadable,
}

impl ConnectionCause {
    /// What is to be done.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Cut { .. }
            | Self::Closed { .. }
            | Self::Silent { .. }
            | Self::Protocol { .. }
            | Self::Ended { .. } => Remedy::Again,
            Self::Refused { retry_after: Some(pause), .. } => Remedy::After(*pause),
            // A bare 429 comes from an outer limiter, whose window is long.
            Self::Refused { status, retry_after: None } => {
                if *status == 429 {
                    Remedy::Rarely
                } else {
                    Remedy::Again
                }
            }
            Self::Answered { status, .. } => match status {
                501 => Remedy::Rarely,
                408 | 500.. => Remedy::Again,
                _ => Remedy::Rarely,
            },
            Self::Forbidden { .. } | Self::Redirect { .. } | Self::Handshake { .. } => Remedy::Rarely,
            Self::Text | Self::TooLong => Remedy::Unreadable,
        }
    }

    /// The name in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Forbidden { .. } => "forbidden",
            Self::Redirect { .. } => "redirect",
            Self::Timeout { .. } => "timeout",
            Self::Refused { .. } => "refused",
            Self::Answered { .. } => "answered",
            Self::Handshake { .. } => "handshake",
            Self::Cut { .. } => "cut",
            Self::Closed { .. } => "closed",
            Self::Silent { .. } => "silent",
            Self::Protocol { .. } => "protocol",
            Self::Text => "text",
            Self::TooLong => "too_long",
            Self::Ended { .. } => "ended",
        }
    }
}

impl ConnectionError {
    /// What is to be done.
    pub fn remedy(&self) -> Remedy {
        self.cause.remedy()
    }
}
