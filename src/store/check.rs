use super::Totals;
use crate::firehose::SavedCursor;

/// Faults that a check names; it counts them all.
pub(super) const NAMED: usize = 100;

/// What a check of a whole store has found: it reads every row once, in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreCheck {
    /// Jobs of all consumers.
    pub jobs: u64,
    /// Records in their manifests.
    pub records: u64,
    /// Op sets in their buffers.
    pub op_sets: u64,
    /// Intents: deliveries that were not acknowledged yet.
    pub intents: u64,
    /// What is wrong, in words, with the row; the first hundred.
    pub faults: Vec<String>,
    /// How many faults there are.
    pub fault_count: u64,
}

impl StoreCheck {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.fault_count == 0
    }

    pub(super) fn fault(&mut self, what: impl std::fmt::Display) {
        self.fault_count += 1;
        if self.faults.len() < NAMED {
            self.faults.push(what.to_string());
        }
    }
}

/// What is in a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreStats {
    /// The version of the schema.
    pub schema: String,
    /// The size of the database in bytes, with what is free in it.
    pub bytes: u64,
    /// Repos that ever had a job.
    pub repos: u64,
    /// Hosts that repos were found at.
    pub hosts: u64,
    /// Each consumer by name, with the sums over its jobs.
    pub consumers: Vec<(String, Totals)>,
    /// Each upstream by name, with its saved cursor.
    pub upstreams: Vec<(String, Option<SavedCursor>)>,
}
