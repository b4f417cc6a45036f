use std::error::Error;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::fmt;

use crate::job::{IllegalMove, JobId};
use crate::manifest::ManifestError;
use crate::syntax::Rev;

/// What a store can fail of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database could not do it now: locked, disk full, read-only, gone. Nothing was written.
    #[error("store unavailable while {action}")]
    Unavailable {
        /// What was being done.
        action: &'static str,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The connection was lost in the middle of a commit, and the server did not come back to say whether it was done. Never retried: doing an act twice is not
    /// the same as doing it once. Whoever opens the store anew and calls [`Store::recover`](super::Store::recover) goes on from what is there.
    #[error("not known whether the store has done it, {action}")]
    OutcomeUnknown {
        /// What was being done.
        action: &'static str,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// This process was not heard of for longer than its lease, and others have taken its work. Never retried: what it holds in memory is not true any more.
    /// A new process takes its part again.
    #[error("others have taken the work of this process, which did not renew its lease in time")]
    LeaseLost,
    /// The store holds what this program never writes. Never retried.
    #[error("store corrupt: {what}")]
    Corrupt {
        /// What was found, with the row it was found in.
        what: String,
    },
    /// The program asked for what cannot be (an illegal move of a job). Never retried.
    #[error("illegal act on the store")]
    Illegal(#[from] IllegalMove),
    /// Edits, chunks or in-doubt paths that are not in order. Never retried.
    #[error("path {path} was given out of order")]
    OutOfOrder {
        /// The path.
        path: String,
    },
    /// A position below the job's rev, without [`Advance::accept_older`](super::Advance). Never retried.
    #[error("the rev of job {job:?} would move back from {from} to {to}")]
    RevMovesBack {
        /// The job.
        job: JobId,
        /// Its rev.
        from: Rev,
        /// The rev of the position.
        to: Rev,
    },
    /// Another process has the database open.
    #[error("the store {path} is in use by another process")]
    InUse {
        /// The database: its file, or host and name.
        path: String,
    },
    /// The schema is newer than this program.
    #[error("the store has schema {found}, this program knows up to {known}")]
    NewerSchema {
        /// The version found.
        found: String,
        /// The newest version that this program knows.
        known: String,
    },
}

impl StoreError {
    /// Whether the same act can succeed later. If not, the store is corrupt or was misused, and the program must not go on with it.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::OutcomeUnknown { .. }
            | Self::LeaseLost
            | Self::Corrupt { .. }
            | Self::Illegal(_)
            | Self::OutOfOrder { .. }
            | Self::RevMovesBack { .. }
            | Self::InUse { .. }
            | Self::NewerSchema { .. } => false,
        }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl StoreError {
    /// The same error, which also says with which database it came, where it does not by itself.
    pub(super) fn with_place(self, place: &impl fmt::Display) -> Self {
        match self {
            Self::Unavailable { action, source } if !source.is::<AtPlace>() => {
                Self::Unavailable { action, source: Box::new(AtPlace { place: place.to_string(), source }) }
            }
            Self::Corrupt { what } => Self::Corrupt { what: format!("{place}: {what}") },
            error => error,
        }
    }
}

/// Which database could not do it.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Debug, thiserror::Error)]
#[error("{place}")]
struct AtPlace {
    place: String,
    source: Box<dyn Error + Send + Sync>,
}

impl From<ManifestError> for StoreError {
    fn from(error: ManifestError) -> Self {
        match error {
            ManifestError::OutOfOrder { path } => StoreError::OutOfOrder { path },
            error => StoreError::Corrupt { what: error.to_string() },
        }
    }
}

#[cfg(all(test, any(feature = "sqlite", feature = "postgres")))]
mod tests {
    use super::*;
    use crate::error_chain::error_chain;

    fn unavailable(action: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
        StoreError::Unavailable { action, source: source.into() }
    }

    #[test]
    fn a_line_says_the_last_cause_and_the_database_once() {
        let inner = unavailable("opening the database", "no such file").with_place(&"store.db").with_place(&"store.db");
        assert_eq!(error_chain(&inner), "store unavailable while opening the database: store.db: no such file");
        let outer = unavailable("reading a job", inner);
        assert_eq!(
            error_chain(&outer),
            "store unavailable while reading a job: store unavailable while opening the database: store.db: no such file"
        );
        let corrupt = StoreError::Corrupt { what: "malformed".into() }.with_place(&"store.db");
        assert_eq!(error_chain(&corrupt), "store corrupt: store.db: malformed");
    }
}
