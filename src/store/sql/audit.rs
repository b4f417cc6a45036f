//! The verbs of an audit.

use super::backend::Connection;
use diesel::prelude::*;
use diesel::upsert::excluded;

use super::fault::{Act, Fault};
use super::rows::signed;
use super::schema::audit::{self, dsl};
use super::writer::Tx;
use crate::job::{ConsumerId, JobId, Timestamp};
use crate::store::rules::cut;
use crate::store::{AuditId, AuditState};

type AuditRow = (i64, String, i64, Option<i64>, i64);

impl Tx<'_> {
    pub(super) fn audit_begin(&mut self, of: ConsumerId, reason: &str, now: Timestamp) -> Act<AuditId> {
        let values = (
            dsl::consumer.eq(of.0),
            dsl::id.eq(1),
            dsl::reason.eq(cut(reason)),
            dsl::begun.eq(now.0),
            dsl::after.eq(None::<i64>),
            dsl::passed.eq(0),
        );
        let instead = (
            dsl::id.eq(dsl::id + 1),
            dsl::reason.eq(excluded(dsl::reason)),
            dsl::begun.eq(excluded(dsl::begun)),
            dsl::after.eq(None::<i64>),
            dsl::passed.eq(0),
        );
        let begin = diesel::insert_into(audit::table).values(values).on_conflict(dsl::consumer).do_update().set(instead);
        let id = begin.returning(dsl::id).get_result(self.connection)?;
        Ok(AuditId(id))
    }

    pub(super) fn audit_checkpoint(&mut self, of: ConsumerId, audit: AuditId, after: JobId, passed: u64) -> Act<bool> {
        let row = audit::table.filter(dsl::consumer.eq(of.0).and(dsl::id.eq(audit.0)));
        let changed = diesel::update(row).set((dsl::after.eq(after.0), dsl::passed.eq(signed(passed)))).execute(self.connection)?;
        Ok(changed > 0)
    }

    pub(super) fn audit_end(&mut self, of: ConsumerId, audit: AuditId) -> Act<bool> {
        let row = audit::table.filter(dsl::consumer.eq(of.0).and(dsl::id.eq(audit.0)));
        Ok(diesel::delete(row).execute(self.connection)? > 0)
    }
}

pub(super) fn state(connection: &mut Connection, of: ConsumerId) -> Act<Option<AuditState>> {
    let columns = (dsl::id, dsl::reason, dsl::begun, dsl::after, dsl::passed);
    let row: Option<AuditRow> = audit::table.find(of.0).select(columns).get_result(connection).optional()?;
    let Some((id, reason, begun, after, passed)) = row else { return Ok(None) };
    let passed = u64::try_from(passed).map_err(|error| Fault::corrupt(format!("audit of consumer {}", of.0), error))?;
    Ok(Some(AuditState { id: AuditId(id), reason, begun: Timestamp(begun), after: after.map(JobId), passed }))
}
