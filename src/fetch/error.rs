use std::time::Duration;

use crate::job::{FailureKind, UnavailableStatus};
use crate::syntax::Did;

/// A repo, or what a host says of its repos, was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} from {host}: {cause}", did.as_ref().map_or("the list of repos", Did::as_str))]
pub struct FetchError {
    /// The repo; none when it was a list of them.
    pub did: Option<Did>,
    /// The host that was asked last: after a redirect, its target.
    pub host: String,
    /// What went wrong.
    pub cause: FetchCause,
}

/// Why something was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchCause {
    /// The host says that the account is not to be had.
    #[error("{error} (status {status})")]
    Unavailable {
        /// The status of the answer, which differs between implementations.
        status: u16,
        /// The name of the error, which decides.
        error: String,
        /// What it means.
        account: UnavailableStatus,
    },
    /// The host turned the request down for load. No attempt was made.
    #[error("refused for load (status {status}), for {} s", pause.as_secs())]
    Refused {
        /// The status of the answer; 0 when a redirect's target was not even asked, because it is paused.
        status: u16,
        /// How long the host is left alone now.
        pause: Duration,
    },
    /// The host answered with a server error.
    #[error("server error (status {status}): {error}")]
    Server {
        /// The status of the answer.
        status: u16,
        /// The name and message of the error, or the beginning of the body.
        error: String,
    },
    /// The host answered with another error.
    #[error("request error (status {status}): {error}")]
    Client {
        /// The status of the answer.
        status: u16,
        /// The name and message of the error, or the beginning of the body.
        error: String,
    },
    /// There was no connection.
    #[error("no connection: {reason}")]
    Connect {
        /// Why.
        reason: String,
    },
    /// The host may not be asked: its address is not public, or it is not asked over TLS.
    #[error("not asked: {reason}")]
    Forbidden {
        /// Why.
        reason: String,
    },
    /// The host was too slow.
    #[error("timed out {phase}, after {} s", after.as_secs())]
    Timeout {
        /// What was waited for.
        phase: Phase,
        /// The limit that was reached.
        after: Duration,
    },
    /// The connection broke.
    #[error("the connection broke after {received} bytes of the body: {reason}")]
    Cut {
        /// Bytes of the body, uncompressed, that came before.
        received: u64,
        /// Why.
        reason: String,
    },
    /// The answer is not what was asked for.
    #[error("the answer makes no sense: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// The redirects lead nowhere.
    #[error("redirect not followed: {reason}")]
    Redirect {
        /// Why.
        reason: &'static str,
    },
}

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The connection.
    Connect,
    /// The beginning of the answer.
    Answer,
    /// The next bytes of the body.
    Body,
    /// All of it.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Answer => "waiting for an answer",
            Self::Body => "between two chunks of the body",
            Self::Total => "before the whole body had come",
        })
    }
}

/// What becomes of a job whose identity or repo was not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The attempt failed; try again later.
    Failed(FailureKind),
    /// The account is not to be had; do not try again until somebody asks.
    Unavailable(UnavailableStatus),
    /// No attempt was made; the host is to be left alone for so long.
    Refused(Duration),
}

impl FetchError {
    /// What becomes of the job.
    pub fn disposition(&self) -> Disposition {
        match &self.cause {
            FetchCause::Unavailable { account, .. } => Disposition::Unavailable(*account),
            FetchCause::Refused { pause, .. } => Disposition::Refused(*pause),
            FetchCause::Server { .. } | FetchCause::Redirect { .. } | FetchCause::Malformed { .. } => {
                Disposition::Failed(FailureKind::HttpServer)
            }
            FetchCause::Client { .. } => Disposition::Failed(FailureKind::HttpClient),
            FetchCause::Connect { .. } | FetchCause::Forbidden { .. } => Disposition::Failed(FailureKind::Connect),
            FetchCause::Timeout { .. } => Disposition::Failed(FailureKind::Timeout),
            FetchCause::Cut { .. } => Disposition::Failed(FailureKind::MalformedCar),
        }
    }
}
