//! The verbs of an audit.

use super::state::Memory;
use crate::job::{ConsumerId, JobId, Timestamp};
use crate::store::rules::cut;
use crate::store::{AuditId, AuditState};

impl Memory {
    pub(super) fn audit_begin(&mut self, consumer: ConsumerId, reason: &str, now: Timestamp) -> AuditId {
        let id = AuditId(self.audits.get(&consumer).map_or(0, |before| before.id.0) + 1);
        self.audits.insert(consumer, AuditState { id, reason: cut(reason), begun: now, after: None, passed: 0 });
        id
    }

    pub(super) fn audit(&self, consumer: ConsumerId) -> Option<AuditState> {
        self.audits.get(&consumer).cloned()
    }

    pub(super) fn audit_checkpoint(&mut self, consumer: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> bool {
        let Some(state) = self.audits.get_mut(&consumer).filter(|state| state.id == audit) else { return false };
        (state.after, state.passed) = (Some(after), passed);
        true
    }

    pub(super) fn audit_end(&mut self, consumer: ConsumerId, audit: AuditId) -> bool {
        let is_it = self.audits.get(&consumer).is_some_and(|state| state.id == audit);
        if is_it {
            self.audits.remove(&consumer);
        }
        is_it
    }
}
