//! The places where a process is stopped.

/// How often a place is come to, which says at which times the process is stopped there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Often {
    /// Again and again: at the first time, at the third, and at one that the seed chooses.
    Many,
    /// Not much more often than there are repos: at the first time, and at the third.
    Few,
    /// Once in each process, so twice the first time.
    EachLife,
    /// Once in all.
    Once,
}

/// A place, and how often it is come to. `before:` and `after:` a verb of the store: for the second it has answered, and nobody has heard the answer yet.
///
/// `batch` is the advance that records a delivery of a checkout (before it: between acknowledgement and commit), `flush` the one that records a delivery of op
/// sets, `position` the one at the end of a checkout, `finish` the one between the last row of a buffer and the complete job.
pub(crate) const POINTS: &[(&str, Often)] = &[
    ("after:consumer", Often::EachLife),
    ("before:enqueue", Often::Many),
    ("after:enqueue", Often::Many),
    ("after:upstream", Often::EachLife),
    ("before:place", Often::Few),
    ("after:place", Often::Few),
    ("before:claim", Often::Many),
    ("after:claim", Often::Many),
    ("body", Often::Many),
    ("before:intend", Often::Many),
    ("after:intend", Often::Many),
    ("handler:nothing", Often::Many),
    ("handler:half", Often::Many),
    ("handler:all", Often::Many),
    ("before:batch", Often::Many),
    ("after:batch", Often::Many),
    ("before:position", Often::Many),
    ("after:position", Often::Many),
    ("before:append", Often::Many),
    ("after:append", Often::Many),
    ("before:flush", Often::Many),
    ("after:flush", Often::Many),
    ("before:finish", Often::Many),
    ("after:finish", Often::Many),
    ("before:settle", Often::Many),
    ("after:settle", Often::Many),
    ("before:gap", Often::Many),
    ("after:gap", Often::Many),
    ("before:account", Often::Many),
    ("after:account", Often::Many),
    ("handler:account", Often::Many),
    ("before:told", Often::Many),
    ("after:told", Often::Many),
    ("before:save_cursor", Often::Many),
    ("after:save_cursor", Often::Many),
    ("before:restart_upstream", Often::EachLife),
    ("after:restart_upstream", Often::Once),
    ("before:want", Often::Many),
    ("after:want", Often::Many),
    ("before:purge", Often::Many),
    ("after:purge", Often::Many),
    ("before:audit_begin", Often::EachLife),
    ("after:audit_begin", Often::EachLife),
];

/// Places where the store is one process's alone.
pub(crate) const OF_ONE: &[(&str, Often)] = &[
    ("before:recover", Often::EachLife),
    ("after:recover", Often::EachLife),
    ("before:audit_checkpoint", Often::EachLife),
    ("after:audit_checkpoint", Often::EachLife),
    ("before:audit_end", Often::EachLife),
    ("after:audit_end", Often::EachLife),
];

/// Places where others may share the store.
pub(crate) const OF_SEVERAL: &[(&str, Often)] = &[
    ("before:renew", Often::Few),
    ("after:renew", Often::Few),
    ("before:know", Often::EachLife),
    ("after:know", Often::EachLife),
    ("before:audited", Often::EachLife),
    ("after:audited", Often::EachLife),
];

/// Places within a database's own machinery: the acts are done and not committed, and committed but not answered.
pub(crate) const OF_DATABASES: &[(&str, Often)] = &[("before:commit", Often::Many), ("after:commit", Often::Many)];

impl Often {
    /// At which times a process is stopped, one life after the other.
    pub(crate) fn times(self, chosen: u64) -> Vec<u64> {
        match self {
            Often::Many => vec![1, 3, 4 + chosen % 9],
            Often::Few => vec![1, 3],
            Often::EachLife => vec![1, 1],
            Often::Once => vec![1],
        }
    }
}
