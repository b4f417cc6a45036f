//! Who works on what, in the database: leases, shares, and what processes tell each other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Double, Nullable, Text};
use futures::FutureExt;

use super::PostgresStore;
use super::enqueue::NEW_JOBS;
use super::machine;
use super::session::HAND_OVER;
use super::sql::{Act, Tx, dids_of, read_jobs};
use crate::job::{ConsumerId, Job, JobEvent, JobId, Timestamp};
use crate::store::rules::latest_retry;
use crate::store::{AuditId, Fleet, Renewal, Share, StoreFuture};
use crate::syntax::Did;

/// The process for which the session works.
const ME: &str = "current_setting('backfill.process')::bigint";
/// The duty to look up jobs without a host, and to have them claimed.
const UNPLACED: &str = "unplaced";
/// Further ahead than any lease or pause of a host ends: what does was dated before the server's clock was set back.
const MISDATED: &str = "clock_timestamp() + interval '2 hours'";
/// Repos that are woken at once; the rest with the next renewal.
const WOKEN: usize = 8192;

impl Fleet for PostgresStore {
    fn lease(&self) -> Duration {
        self.lease
    }

    fn renew<'a>(&'a self, upstreams: &'a [String]) -> StoreFuture<'a, Renewal> {
        let (lease, upstreams) = (self.lease, upstreams.to_vec());
        // Before it holds anything: from then on its lease can be lost.
        let member = std::sync::Arc::clone(&self.member);
        let renew = move |tx: &mut Tx<'_>| {
            member.is_working.store(true, Ordering::Release);
            renew(tx, lease, &upstreams)
        };
        self.threads.write("renewing the lease of this process", renew).boxed()
    }

    fn give_up<'a>(&'a self, hosts: &'a [(String, Duration)]) -> StoreFuture<'a, ()> {
        let (names, pauses): (Vec<String>, Vec<f64>) = hosts.iter().map(|(name, pause)| (name.clone(), pause.as_secs_f64())).unzip();
        let give_up = move |tx: &mut Tx<'_>| {
            let query = diesel::sql_query(format!(
                "UPDATE host SET holder = NULL, free_at = clock_timestamp() + greatest(make_interval(secs => given.pause), {HAND_OVER}) \
                 FROM unnest($1, $2) AS given (name, pause) WHERE host.name = given.name AND host.holder = {ME}"
            ));
            query.bind::<Array<Text>, _>(&names).bind::<Array<Double>, _>(&pauses).execute(tx.connection)?;
            Ok(())
        };
        self.threads.write("giving up hosts", give_up).boxed()
    }

    fn leave(&self) -> StoreFuture<'_, ()> {
        let member = std::sync::Arc::clone(&self.member);
        let leave = move |tx: &mut Tx<'_>| {
            tx.connection.batch_execute(&format!(
                "UPDATE host SET holder = NULL, free_at = clock_timestamp() + {HAND_OVER} WHERE holder = {ME}; \
                 UPDATE duty SET holder = NULL WHERE holder = {ME}; DELETE FROM wake WHERE process = {ME}; \
                 UPDATE process SET working = FALSE WHERE id = {ME}"
            ))?;
            Ok(())
        };
        async move {
            self.threads.write("leaving the work to others", leave).await?;
            member.is_working.store(false, Ordering::Release);
            Ok(())
        }
        .boxed()
    }

    fn wake(&self, job: JobId) -> StoreFuture<'_, ()> {
        let wake = move |tx: &mut Tx<'_>| {
            let query = diesel::sql_query(format!(
                "INSERT INTO wake (process, job) SELECT coalesce(host.holder, duty.holder), job.id FROM job LEFT JOIN host ON host.id = job.host \
                 LEFT JOIN duty ON job.host IS NULL AND duty.name = '{UNPLACED}' \
                 WHERE job.id = $1 AND coalesce(host.holder, duty.holder) IS NOT NULL ON CONFLICT DO NOTHING"
            ));
            query.bind::<BigInt, _>(job.0).execute(tx.connection)?;
            Ok(())
        };
        self.threads.write("waking another process", wake).boxed()
    }

    fn newcomers(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        let read = move |connection: &mut PgConnection| {
            connection.transaction(|connection| {
                // Who adds jobs holds it until he has committed, so that none appears below the last that is read.
                connection.batch_execute(&format!("SET LOCAL lock_timeout = '5s'; SELECT pg_advisory_xact_lock({NEW_JOBS})"))?;
                read_jobs(connection, consumer, after, limit)
            })
        };
        self.threads.read("reading which jobs are new", read).boxed()
    }

    fn known<'a>(&'a self, upstream: &'a str) -> StoreFuture<'a, Option<JobId>> {
        let name = duty_of(upstream);
        let read = move |connection: &mut PgConnection| {
            let query = diesel::dsl::sql::<Nullable<BigInt>>("SELECT known FROM duty WHERE name = ").bind::<Text, _>(&name);
            Ok(query.get_result::<Option<i64>>(connection).optional()?.flatten().map(JobId))
        };
        self.threads.read("reading which repos were followed", read).boxed()
    }

    fn know(&self, job: JobId) -> StoreFuture<'_, ()> {
        let know = move |tx: &mut Tx<'_>| {
            let query = diesel::sql_query(format!("UPDATE duty SET known = $1 WHERE holder = {ME} AND name <> '{UNPLACED}'"));
            query.bind::<BigInt, _>(job.0).execute(tx.connection)?;
            Ok(())
        };
        self.threads.write("recording which repos are followed", know).boxed()
    }

    fn unaudited(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, Vec<Share>> {
        // By the session that writes: only that knows for which process it works.
        let read = move |tx: &mut Tx<'_>| {
            let query = diesel::sql_query(format!(
                "SELECT mine.name FROM (SELECT name FROM host WHERE holder = {ME} UNION ALL SELECT '' FROM duty WHERE name = '{UNPLACED}' AND holder = {ME}) AS mine \
                 WHERE NOT EXISTS (SELECT FROM audited WHERE consumer = $1 AND audit = $2 AND audited.host = mine.name)"
            ));
            let names: Vec<Name> = query.bind::<BigInt, _>(consumer.0).bind::<BigInt, _>(audit.0).load(tx.connection)?;
            Ok(names.into_iter().map(|row| if row.name.is_empty() { Share::Unplaced } else { Share::Host(row.name) }).collect())
        };
        self.threads.write("reading what is to be audited", read).boxed()
    }

    fn audited<'a>(&'a self, consumer: ConsumerId, audit: AuditId, shares: &'a [Share]) -> StoreFuture<'a, bool> {
        let hosts: Vec<String> = shares.iter().filter_map(host_of).collect();
        let note = move |tx: &mut Tx<'_>| audited(tx, consumer, audit, &hosts);
        self.threads.write("recording what was audited", note).boxed()
    }
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

#[derive(QueryableByName)]
struct Numbered {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    name: String,
}

fn duty_of(upstream: &str) -> String {
    format!("upstream {upstream}")
}

/// A share as audits name it; an upstream is none of theirs.
fn host_of(share: &Share) -> Option<String> {
    match share {
        Share::Host(name) => Some(name.clone()),
        Share::Unplaced => Some(String::new()),
        Share::Upstream(_) => None,
    }
}

fn renew(tx: &mut Tx<'_>, lease: Duration, upstreams: &[String]) -> Act<Renewal> {
    let renewed = diesel::sql_query(format!(
        "UPDATE process SET expires = clock_timestamp() + make_interval(secs => $1), working = TRUE WHERE id = {ME}"
    ));
    renewed.bind::<Double, _>(lease.as_secs_f64()).execute(tx.connection)?;
    forget_the_dead(tx, lease)?;
    let (hosts, surplus) = take_hosts(tx)?;
    let duties = take_duties(tx, upstreams)?;
    let abandoned = abandon(tx, &hosts, duties.contains(&Share::Unplaced))?;
    let taken = hosts.into_iter().map(|host| Share::Host(host.name)).chain(duties).collect();
    Ok(Renewal { taken, abandoned, surplus, woken: woken(tx)? })
}

/// Ends the leases that ran out, and those of processes that are known to be dead. What they held is free.
fn forget_the_dead(tx: &mut Tx<'_>, lease: Duration) -> Act<()> {
    #[derive(QueryableByName)]
    struct Other {
        #[diesel(sql_type = BigInt)]
        id: i64,
        #[diesel(sql_type = Text)]
        place: String,
        #[diesel(sql_type = Bool)]
        expired: bool,
    }
    // One that lives renews it, one that does not is not waited for.
    let misdated = diesel::sql_query(format!(
        "UPDATE process SET expires = clock_timestamp() + make_interval(secs => $1) \
         WHERE id IN (SELECT id FROM process WHERE id <> {ME} AND expires > {MISDATED} + make_interval(secs => $1) FOR UPDATE SKIP LOCKED)"
    ));
    misdated.bind::<Double, _>(lease.as_secs_f64()).execute(tx.connection)?;
    // While the server was down nobody could renew anything.
    let others = diesel::sql_query(format!(
        "SELECT id, place, expires < clock_timestamp() AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => $1) AS expired \
         FROM process WHERE id <> {ME}"
    ));
    let others: Vec<Other> = others.bind::<Double, _>(lease.as_secs_f64()).load(tx.connection)?;
    for other in others {
        let ended = machine::has_ended(&other.place);
        if !ended && !other.expired {
            continue;
        }
        // One that writes at this moment keeps its row locked, and is looked at again with the next renewal.
        let lock = diesel::dsl::sql::<BigInt>("SELECT id FROM process WHERE id = ").bind::<BigInt, _>(other.id).sql(" AND (");
        let lock = lock.bind::<Bool, _>(ended).sql(" OR expires < clock_timestamp()) FOR UPDATE SKIP LOCKED");
        let Some(dead) = lock.get_result::<i64>(tx.connection).optional()? else { continue };
        tracing::warn!(process = dead, ended, "a process is not heard of any more: its work is taken by others");
        tx.connection.batch_execute(&format!(
            "UPDATE host SET free_at = clock_timestamp() + {HAND_OVER} WHERE holder = {dead}; DELETE FROM process WHERE id = {dead}"
        ))?;
    }
    Ok(())
}

/// Takes hosts that are free, up to an even part. Answers them, and how many this process has beyond that.
fn take_hosts(tx: &mut Tx<'_>) -> Act<(Vec<Numbered>, usize)> {
    #[derive(QueryableByName)]
    struct Counted {
        #[diesel(sql_type = BigInt)]
        hosts: i64,
        #[diesel(sql_type = BigInt)]
        mine: i64,
        #[diesel(sql_type = BigInt)]
        processes: i64,
    }
    let counted = diesel::sql_query(format!(
        "SELECT (SELECT count(*) FROM host) AS hosts, (SELECT count(*) FROM host WHERE holder = {ME}) AS mine, \
         (SELECT count(*) FROM process WHERE working) AS processes"
    ));
    let Counted { hosts, mine, processes } = counted.get_result(tx.connection)?;
    let even = (hosts + processes - 1) / processes.max(1);
    if mine >= even {
        return Ok((Vec::new(), usize::try_from(mine - even).unwrap_or(0)));
    }
    let take = diesel::sql_query(format!(
        "UPDATE host SET holder = {ME}, free_at = NULL WHERE id IN \
         (SELECT id FROM host WHERE holder IS NULL AND coalesce(free_at <= clock_timestamp() OR free_at > {MISDATED}, TRUE) \
         ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) \
         RETURNING id, name"
    ));
    Ok((take.bind::<BigInt, _>(even - mine).load(tx.connection)?, 0))
}

/// Takes the duties that nobody has.
fn take_duties(tx: &mut Tx<'_>, upstreams: &[String]) -> Act<Vec<Share>> {
    let names: Vec<String> = std::iter::once(UNPLACED.to_owned()).chain(upstreams.iter().map(|name| duty_of(name))).collect();
    let missing = diesel::sql_query(
        "INSERT INTO duty (name) SELECT wanted.name FROM unnest($1) AS wanted (name) WHERE NOT EXISTS (SELECT FROM duty WHERE duty.name = wanted.name) \
         ON CONFLICT DO NOTHING",
    );
    missing.bind::<Array<Text>, _>(&names).execute(tx.connection)?;
    let take = diesel::sql_query(format!(
        "UPDATE duty SET holder = {ME} WHERE name IN (SELECT name FROM duty WHERE name = ANY($1) AND holder IS NULL FOR UPDATE SKIP LOCKED) RETURNING name"
    ));
    let taken: Vec<Name> = take.bind::<Array<Text>, _>(&names).load(tx.connection)?;
    let share = |duty: Name| match duty.name.strip_prefix("upstream ") {
        Some(upstream) => Share::Upstream(upstream.to_owned()),
        None => Share::Unplaced,
    };
    Ok(taken.into_iter().map(share).collect())
}

/// Enqueues the jobs again that were in progress where this process now works, and those that failed and whose next attempt was dated by a clock that has been
/// set back since. Returns how many were in progress.
fn abandon(tx: &mut Tx<'_>, hosts: &[Numbered], unplaced: bool) -> Act<u64> {
    if hosts.is_empty() && !unplaced {
        return Ok(0);
    }
    let ids: Vec<i64> = hosts.iter().map(|host| host.id).collect();
    let jobs = diesel::dsl::sql::<BigInt>("SELECT id FROM job WHERE state = 'in_progress' AND (host = ANY(")
        .bind::<Array<BigInt>, _>(&ids)
        .sql(") OR host IS NULL AND ")
        .bind::<Bool, _>(unplaced)
        .sql(")");
    let jobs: Vec<i64> = jobs.load(tx.connection)?;
    let now = diesel::dsl::sql::<BigInt>("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").get_result(tx.connection)?;
    let latest = latest_retry(Timestamp(now)).0;
    let late = diesel::dsl::sql::<BigInt>("SELECT id FROM job WHERE due_at > ").bind::<BigInt, _>(latest).sql(" AND host = ANY(");
    let mut late: Vec<i64> = late.bind::<Array<BigInt>, _>(&ids).sql(")").load(tx.connection)?;
    if unplaced {
        let more = diesel::dsl::sql::<BigInt>("SELECT id FROM job WHERE host IS NULL AND due_at > ").bind::<BigInt, _>(latest);
        late.extend(more.load::<i64>(tx.connection)?);
    }
    tx.each_on(&late, &JobEvent::Wanted)?;
    tx.each_on(&jobs, &JobEvent::Abandoned)
}

/// What others have told this process.
fn woken(tx: &mut Tx<'_>) -> Act<Vec<Did>> {
    let query = format!(
        "WITH told AS (DELETE FROM wake WHERE process = {ME} AND job IN (SELECT job FROM wake WHERE process = {ME} LIMIT {WOKEN}) RETURNING job) \
         SELECT repo.did FROM told JOIN job ON job.id = told.job JOIN repo ON repo.id = job.repo"
    );
    let dids: Vec<String> = diesel::dsl::sql::<Text>(&query).load(tx.connection)?;
    dids_of(dids)
}

fn audited(tx: &mut Tx<'_>, consumer: ConsumerId, audit: AuditId, hosts: &[String]) -> Act<bool> {
    let forget = diesel::sql_query("DELETE FROM audited WHERE consumer = $1 AND audit <> $2");
    forget.bind::<BigInt, _>(consumer.0).bind::<BigInt, _>(audit.0).execute(tx.connection)?;
    let note = diesel::sql_query(
        "INSERT INTO audited (consumer, audit, host) SELECT $1, $2, unnest($3) WHERE EXISTS (SELECT FROM audit WHERE consumer = $1 AND id = $2) \
         ON CONFLICT DO NOTHING",
    );
    note.bind::<BigInt, _>(consumer.0).bind::<BigInt, _>(audit.0).bind::<Array<Text>, _>(hosts).execute(tx.connection)?;
    let end = diesel::sql_query(
        "DELETE FROM audit WHERE consumer = $1 AND id = $2 AND NOT EXISTS (SELECT FROM (SELECT name FROM host UNION ALL SELECT '') AS whole (name) \
         WHERE NOT EXISTS (SELECT FROM audited WHERE audited.consumer = $1 AND audited.audit = $2 AND audited.host = whole.name))",
    );
    let ended = end.bind::<BigInt, _>(consumer.0).bind::<BigInt, _>(audit.0).execute(tx.connection)? > 0;
    if ended {
        diesel::sql_query("DELETE FROM audited WHERE consumer = $1").bind::<BigInt, _>(consumer.0).execute(tx.connection)?;
    }
    Ok(ended)
}
