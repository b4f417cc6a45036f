use diesel::prelude::*;

use super::sql::schema::{job, repo};
use super::sql::{Act, BodyRow, Tx};
use crate::job::ConsumerId;
use crate::store::rules::Body;
use crate::syntax::Did;

/// Adds jobs that are not there yet, one after the other. Returns how many were added.
pub(super) fn enqueue(tx: &mut Tx<'_>, of: ConsumerId, dids: &[Did]) -> Act<u64> {
    let mut added = 0;
    for did in dids {
        let (repo_id, host_id) = repo(tx, did)?;
        let there = job::table
            .filter(job::repo.eq(repo_id).and(job::consumer.eq(of.0)))
            .select(job::id)
            .get_result::<i64>(tx.connection)
            .optional()?;
        if there.is_some() {
            continue;
        }
        let body = Body::new();
        let names = (job::id.eq(tx.numbers.next().0), job::consumer.eq(of.0), job::repo.eq(repo_id), job::host.eq(host_id));
        diesel::insert_into(job::table).values((names, BodyRow::of(&body))).execute(tx.connection)?;
        tx.tallies.entry(of).or_default().count(&body, 1);
        added += 1;
    }
    Ok(added)
}

/// The id of a repo, which is interned, and its host.
fn repo(tx: &mut Tx<'_>, did: &Did) -> Act<(i64, Option<i64>)> {
    let found = repo::table.filter(repo::did.eq(did.as_str())).select((repo::id, repo::host)).get_result(tx.connection).optional()?;
    if let Some(found) = found {
        return Ok(found);
    }
    let id = diesel::insert_into(repo::table).values(repo::did.eq(did.as_str())).returning(repo::id).get_result(tx.connection)?;
    Ok((id, None))
}
