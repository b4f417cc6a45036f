use std::time::Duration;

use super::DocumentError;
use crate::fetch::Disposition;
use crate::job::{FailureKind, UnavailableStatus};
use crate::syntax::Did;

/// An account's identity was not found out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("identity of {did}{}: {cause}", from(server))]
pub struct ResolveError {
    /// The account.
    pub did: Did,
    /// The server that was asked; empty when none was.
    pub server: String,
    /// What went wrong.
    pub cause: ResolveCause,
}

fn from(server: &str) -> String {
    if server.is_empty() { String::new() } else { format!(" from {server}") }
}

/// Why an identity was not found out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveCause {
    /// No account can have this DID.
    #[error("{rule}")]
    Unsupported {
        /// The rule that the DID breaks.
        rule: &'static str,
    },
    /// The DID is not registered, or its domain does not exist.
    #[error("not found")]
    NotFound,
    /// The DID is tombstoned.
    #[error("tombstoned")]
    Tombstoned,
    /// The document does not say what an account's must.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The document is larger than is read.
    #[error("the document has more than {max} bytes")]
    TooLarge {
        /// The most that is read.
        max: usize,
    },
    /// The server may not be asked: its address is not public.
    #[error("not asked: {reason}")]
    Forbidden {
        /// Why.
        reason: String,
    },
    /// The server turns requests down for load, or its rate budget is spent. No attempt was made.
    #[error("refused for load, for {} s", pause.as_secs())]
    Refused {
        /// How long the server is left alone.
        pause: Duration,
    },
    /// The server answered with another status.
    #[error("status {status}")]
    Status {
        /// The status of the answer.
        status: u16,
    },
    /// There was no connection, or it broke.
    #[error("no answer: {reason}")]
    Connect {
        /// Why.
        reason: String,
    },
    /// The server was too slow.
    #[error("timed out after {} s", after.as_secs())]
    Timeout {
        /// The limit that was reached.
        after: Duration,
    },
}

impl ResolveError {
    /// What becomes of a job whose account cannot be resolved.
    pub fn disposition(&self) -> Disposition {
        match &self.cause {
            ResolveCause::Unsupported { .. } | ResolveCause::NotFound => Disposition::Unavailable(UnavailableStatus::NotFound),
            ResolveCause::Tombstoned => Disposition::Unavailable(UnavailableStatus::Deleted),
            ResolveCause::Document(_) | ResolveCause::TooLarge { .. } | ResolveCause::Forbidden { .. } => {
                Disposition::Failed(FailureKind::BrokenIdentity)
            }
            ResolveCause::Refused { pause } => Disposition::Refused(*pause),
            ResolveCause::Status { .. } | ResolveCause::Connect { .. } | ResolveCause::Timeout { .. } => {
                Disposition::Failed(FailureKind::Resolve)
            }
        }
    }

    /// Whether asking again at once could bring another answer: the server's trouble, not the account's.
    pub fn is_transient(&self) -> bool {
        match self.disposition() {
            Disposition::Refused(_) | Disposition::Failed(FailureKind::Resolve) => true,
            Disposition::Failed(_) | Disposition::Unavailable(_) => false,
        }
    }
}
