use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text};

use super::sql::{Act, BodyRow, Tx};
use crate::job::ConsumerId;
use crate::store::rules::Body;
use crate::syntax::Did;

/// Names the advisory lock between those who add jobs, who share it, and those who read which are new: "new jobs" in ASCII.
pub(super) const NEW_JOBS: i64 = 0x6e65_7720_6a6f_6273;
/// How many repos are sent at once, so that one statement ends in good time.
const AT_ONCE: usize = 10_000;

/// Adds jobs that are not there yet, in the order of the list. Returns how many were added.
pub(super) fn enqueue(tx: &mut Tx<'_>, of: ConsumerId, dids: &[Did]) -> Act<u64> {
    // Whoever follows an upstream reads new jobs by their ids, and must miss none that is still to be committed.
    diesel::sql_query(format!("SELECT pg_advisory_xact_lock_shared({NEW_JOBS})")).execute(tx.connection)?;
    let mut added = 0;
    for dids in dids.chunks(AT_ONCE) {
        let names: Vec<&str> = dids.iter().map(Did::as_str).collect();
        let repos = diesel::sql_query("INSERT INTO repo (did) SELECT unnest($1) ON CONFLICT (did) DO NOTHING");
        repos.bind::<Array<Text>, _>(&names).execute(tx.connection)?;
        added += jobs(tx, of, &names)?;
    }
    tx.tallies.entry(of).or_default().count(&Body::new(), i64::try_from(added).unwrap_or(i64::MAX));
    Ok(added)
}

/// Adds the jobs of repos that are there. The repos are locked, so that none is placed meanwhile: a new job has the host of its repo.
fn jobs(tx: &mut Tx<'_>, of: ConsumerId, names: &[&str]) -> Act<u64> {
    let row = BodyRow::of(&Body::new());
    let insert = diesel::sql_query(
        "INSERT INTO job (id, consumer, repo, host, state, due_at, epoch, rev, data, min_rev, older, failures, failure, account, untold, records) \
         SELECT nextval('number'), $2, known.id, known.host, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 FROM \
         (SELECT repo.id, repo.host FROM unnest($1) WITH ORDINALITY AS listed (did, place) JOIN repo ON repo.did = listed.did \
         ORDER BY listed.place FOR SHARE OF repo) AS known \
         ON CONFLICT (repo, consumer) DO NOTHING",
    );
    let added = insert
        .bind::<Array<Text>, _>(names)
        .bind::<BigInt, _>(of.0)
        .bind::<Text, _>(row.state)
        .bind::<Nullable<BigInt>, _>(row.due_at)
        .bind::<BigInt, _>(row.epoch)
        .bind::<Nullable<Text>, _>(row.rev)
        .bind::<Nullable<Binary>, _>(row.data)
        .bind::<Nullable<Text>, _>(row.min_rev)
        .bind::<Nullable<Text>, _>(row.older)
        .bind::<BigInt, _>(row.failures)
        .bind::<Text, _>(row.failure)
        .bind::<Nullable<Text>, _>(row.account)
        .bind::<Nullable<Text>, _>(row.untold)
        .bind::<BigInt, _>(row.records)
        .execute(tx.connection)?;
    Ok(added as u64)
}
