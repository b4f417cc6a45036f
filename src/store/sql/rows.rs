//! A job's row and the job it stands for, read strictly: what this program never writes is corruption.

use diesel::prelude::*;

use super::accounts::{account_text, known, untold_text};
use super::ends::{self, Buffer};
use super::fault::{Act, Fault};
use super::schema::job;
use crate::job::{Epoch, Job, JobId, JobState, OlderRev, Position, Timestamp};
use crate::repo::Link;
use crate::store::rules::Body;
use crate::syntax::{Did, Rev};

/// The columns of a job that the verbs change.
#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = job, check_for_backend(super::backend::Db))]
pub(crate) struct BodyRow {
    pub(in crate::store) state: String,
    pub(in crate::store) due_at: Option<i64>,
    pub(in crate::store) epoch: i64,
    pub(in crate::store) rev: Option<String>,
    pub(in crate::store) data: Option<Vec<u8>>,
    pub(in crate::store) min_rev: Option<String>,
    pub(in crate::store) older: Option<String>,
    pub(in crate::store) failures: i64,
    pub(in crate::store) failure: String,
    pub(in crate::store) account: Option<String>,
    pub(in crate::store) untold: Option<String>,
    pub(in crate::store) records: i64,
}

impl BodyRow {
    pub(in crate::store) fn of(body: &Body) -> Self {
        let text = |rev: Option<Rev>| rev.map(|rev| rev.as_str().to_owned());
        Self {
            state: body.state.to_text(),
            due_at: body.due_at().map(|at| at.0),
            epoch: body.epoch.0,
            rev: text(body.rev),
            data: body.data.map(|data| data.digest().to_vec()),
            min_rev: text(body.min_rev),
            older: body.older.map(older_text),
            failures: i64::from(body.failures),
            failure: body.failure.clone(),
            account: account_text(&body.known),
            untold: untold_text(&body.known),
            records: signed(body.records),
        }
    }

    /// The job's body, of which the buffer tells its own part.
    pub(super) fn body(self, id: JobId, buffer: &Buffer) -> Act<Body> {
        let at = || format!("job {}", id.0);
        let number = |value: i64| u64::try_from(value).map_err(|error| Fault::corrupt(at(), error));
        let failures = u32::try_from(self.failures).map_err(|error| Fault::corrupt(at(), error))?;
        let retry_at = Timestamp(self.due_at.unwrap_or(0));
        let state = JobState::from_text(&self.state, failures, retry_at).map_err(|error| Fault::corrupt(at(), error))?;
        let body = Body {
            state,
            epoch: Epoch(self.epoch),
            rev: self.rev.as_deref().map(|text| rev(at, text)).transpose()?,
            data: self.data.as_deref().map(|bytes| link(at, bytes)).transpose()?,
            min_rev: self.min_rev.as_deref().map(|text| rev(at, text)).transpose()?.max(buffer.rev),
            older: self.older.as_deref().map(|text| older(at, text)).transpose()?,
            failures,
            failure: self.failure,
            known: known(at, self.account.as_deref(), self.untold.as_deref())?,
            records: number(self.records)?,
            buffered_op_sets: buffer.op_sets,
            buffered_bytes: buffer.bytes,
        };
        if body.due_at().map(|at| at.0) != self.due_at {
            return Err(Fault::corrupt(at(), format!("{} is due at {:?}", self.state, self.due_at)));
        }
        Ok(body)
    }
}

/// A job's row with the names that it refers to, and the ends of its buffer: id, DID, host, row, first and last op set.
pub(super) type JobRow = (i64, String, Option<String>, BodyRow, Option<String>, Option<String>);

pub(super) fn job_of((id, text, host, row, first, last): JobRow) -> Act<Job> {
    let id = JobId(id);
    let did = did(|| format!("job {}", id.0), &text)?;
    Ok(row.body(id, &ends::of_columns(id, first.as_deref(), last.as_deref())?)?.into_job(id, did, host))
}

pub(super) fn did(row: impl FnOnce() -> String, text: &str) -> Act<Did> {
    Did::new(text).map_err(|error| Fault::corrupt(row(), error))
}

fn rev(row: impl FnOnce() -> String, text: &str) -> Act<Rev> {
    Rev::new(text).map_err(|error| Fault::corrupt(row(), error))
}

fn link(row: impl FnOnce() -> String, bytes: &[u8]) -> Act<Link> {
    let digest = bytes.try_into().map_err(|_| Fault::corrupt(row(), format!("a digest of {} bytes", bytes.len())))?;
    Ok(Link::from_digest(digest))
}

/// The position after an op set, from the columns of its row.
pub(super) fn position(seq: i64, text: &str, data: Option<&[u8]>) -> Act<Position> {
    let at = || format!("op set {seq}");
    Ok(Position { rev: rev(at, text)?, data: data.map(|bytes| link(at, bytes)).transpose()? })
}

fn older_text(older: OlderRev) -> String {
    format!("{} {} {}", older.rev, older.confirmations, older.since.0)
}

fn older(row: impl FnOnce() -> String, text: &str) -> Act<OlderRev> {
    let read = || {
        let mut words = text.split(' ');
        let older = OlderRev {
            rev: Rev::new(words.next()?).ok()?,
            confirmations: words.next()?.parse().ok()?,
            since: Timestamp(words.next()?.parse().ok()?),
        };
        (words.next().is_none() && older_text(older) == text).then_some(older)
    };
    read().ok_or_else(|| Fault::corrupt(row(), format!("not an older rev: {text:?}")))
}

/// Numbers of the store are below 2^63 by far; one that is not stays at the limit.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
