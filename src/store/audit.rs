use crate::job::{JobId, Timestamp};

/// Names one audit of a consumer; no two have the same while either is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuditId(pub i64);

/// An audit that is due or under way: the revs of a consumer's jobs are compared with what hosts report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditState {
    /// Which audit it is. One that is begun while another runs takes its place, under another id.
    pub id: AuditId,
    /// Why it was asked for, in words, at most 512 bytes.
    pub reason: String,
    /// When it was asked for.
    pub begun: Timestamp,
    /// The last job that it is done with; all jobs before it are done too. None: it has to begin at the first.
    pub after: Option<JobId>,
    /// How many jobs it is done with, up to and with `after`.
    pub passed: u64,
}
