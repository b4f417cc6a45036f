use super::{OlderRev, Timestamp};

/// What is being done about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// Waits for a checkout. Ops that arrive are discarded: the checkout will contain them.
    Enqueued,
    /// A checkout or the flush after it is under way. Ops that arrive are buffered.
    InProgress,
    /// The consumer holds the repo as it is at the job's rev, and follows.
    Complete,
    /// The last attempt failed; it will be tried again. Ops that arrive are discarded.
    Failed {
        /// What failed.
        kind: FailureKind,
        /// How many attempts have failed in a row, from 1.
        attempt: u32,
        /// When the next attempt may begin.
        retry_at: Timestamp,
    },
    /// The account is not to be had now, which is not an error. No retries; an account event or an audit re-arms it.
    Unavailable {
        /// Why.
        status: UnavailableStatus,
    },
}

/// What failed, for counting and for people; it decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The identity could not be looked up.
    Resolve,
    /// The DID document names no PDS or no signing key.
    BrokenIdentity,
    /// The host could not be reached.
    Connect,
    /// The host or its body was slower than a timeout allows.
    Timeout,
    /// The host answered with another 4xx than those that speak of the account.
    HttpClient,
    /// The host answered with a 5xx.
    HttpServer,
    /// The body is not a CAR, or is cut, or a block does not have its hash.
    MalformedCar,
    /// A node or a record that the tree names is not in the CAR.
    MissingBlock,
    /// The tree breaks a rule of its structure.
    InvalidTree,
    /// The commit breaks a rule, or is another account's.
    InvalidCommit,
    /// The signature is not that of the account's current key.
    BadSignature,
    /// The repo is larger than the configured cap.
    TooLarge,
    /// The checkout is older than what is known of the repo (I8).
    Stale,
    /// The handler did not acknowledge.
    Handler,
    /// The local machine: disk or memory.
    Local,
}

/// Why an account is not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnavailableStatus {
    /// The user switched it off.
    Deactivated,
    /// The host or a service took it down.
    Takendown,
    /// The host suspended it.
    Suspended,
    /// It was deleted, or its DID is tombstoned.
    Deleted,
    /// The host does not have it, or the DID is not registered.
    NotFound,
}

/// What happens to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// Somebody asks for a checkout (again): an audit, a user, an account that became active.
    Wanted,
    /// A worker takes it.
    Claimed,
    /// The host turned the request down for load, or the program stops: no attempt was made.
    Released,
    /// The worker that held it is gone: the process restarted or its lease ran out.
    Abandoned,
    /// Checkout and flush are done and acknowledged.
    Finished,
    /// The attempt failed.
    Failed {
        /// What failed.
        kind: FailureKind,
        /// How many attempts have now failed in a row, from 1.
        attempt: u32,
        /// When the next one may begin.
        retry_at: Timestamp,
    },
    /// The checkout is older than what is known of the repo, and the account's own host gave it: fails as [`FailureKind::Stale`], and is remembered (I8).
    Older {
        /// What is remembered.
        older: OlderRev,
        /// How many attempts have now failed in a row, from 1.
        attempt: u32,
        /// When the next one may begin.
        retry_at: Timestamp,
    },
    /// An op set does not start where the job stands, or more arrived than the buffer may hold, or the checkout is older than `min_rev` demands.
    Gap,
    /// The account is not to be had.
    Unavailable {
        /// Why.
        status: UnavailableStatus,
    },
}

/// An event that cannot happen to a job in this state: a fault of this program, never of upstream data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a job that is {state:?}")]
pub struct IllegalMove {
    /// The state.
    pub state: JobState,
    /// The event.
    pub event: JobEvent,
}
