//! What only PostgreSQL has to do: with connections that are lost, a server that comes and goes, and strangers in the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::job::{ConsumerId, Job, Route};
use atproto_backfill::store::{Advance, ManifestChange, PostgresStore, Store, StoreCheck, StoreError, StoreStats};
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};

use crate::database::{Database, cluster};
use crate::own_cluster::OwnCluster;
use crate::relay::{Cut, Relay};
use crate::support::{Count, Ground, advance, at, chunks, claimed, did, everything, op_set};
use crate::words::words;

/// The longest that any wait of a test may take.
const LIMIT: Duration = Duration::from_secs(30);

impl Ground for Database {
    fn name(&self) -> String {
        self.url.rsplit_once('/').and_then(|_| self.url.split('?').next()?.rsplit('/').next()).unwrap().to_owned()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        PostgresStore::open(&self.url).map(|store| Arc::new(store) as _)
    }

    fn check(&self) -> Result<StoreCheck, StoreError> {
        PostgresStore::check(&self.url)
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        PostgresStore::stats(&self.url)
    }

    fn execute(&self, sql: &str) {
        execute(&mut stranger(self), sql);
    }

    fn tables(&self) -> i64 {
        let own = "SELECT count(*) AS n FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'S') \
                   AND relname NOT LIKE '\\_\\_diesel%'";
        count(&mut stranger(self), own)
    }

    fn up(&self) {
        stranger(self).run_pending_migrations(migrations()).unwrap();
    }

    fn down(&self) {
        stranger(self).revert_all_migrations(migrations()).unwrap();
    }

    fn down_to(&self, version: &str) {
        let mut stranger = stranger(self);
        while stranger.applied_migrations().unwrap()[0].to_string().as_str() > version {
            stranger.revert_last_migration(migrations()).unwrap();
        }
    }

    fn number(&self, sql: &str) -> i64 {
        count(&mut stranger(self), sql)
    }

    fn zero(&self) -> &'static str {
        "'\\x00'::bytea"
    }
}

fn migrations() -> FileBasedMigrations {
    FileBasedMigrations::from_path("migrations/postgres").unwrap()
}

/// Another program's connection to the same database.
pub(crate) fn stranger(database: &Database) -> PgConnection {
    PgConnection::establish(&database.url).unwrap()
}

pub(crate) fn execute(connection: &mut PgConnection, sql: &str) {
    diesel::sql_query(sql).execute(connection).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn count(connection: &mut PgConnection, sql: &str) -> i64 {
    diesel::sql_query(sql).get_result::<Count>(connection).unwrap().n
}

/// The other sessions in the stranger's database, by what they wait for: "%" is anything.
fn others(waiting_for: &str) -> String {
    format!(
        "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND coalesce(wait_event_type, '') LIKE '{waiting_for}'"
    )
}

/// Waits until a session waits for a lock.
async fn blocked(connection: &mut PgConnection) {
    let begun = Instant::now();
    while count(connection, &format!("SELECT count(*) AS n {}", others("Lock"))) == 0 {
        assert!(begun.elapsed() < LIMIT, "nobody waits for the lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn terminate(connection: &mut PgConnection, waiting_for: &str) -> i64 {
    let end = format!("SELECT count(pg_terminate_backend(pid, 5000)) AS n {}", others(waiting_for));
    count(connection, &end)
}

/// A complete job, at rev 5.
pub(crate) async fn complete(store: &dyn Store) -> (ConsumerId, Job) {
    let consumer = store.consumer("posts@1").await.unwrap();
    let job = claimed(store, consumer, &did(1)).await;
    store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
    (consumer, job)
}

#[tokio::test]
async fn sessions_that_the_server_ended_are_opened_anew() {
    let Some(database) = Database::create("sessions_that_the_server_ended_are_opened_anew") else { return };
    let store = database.open().unwrap();
    let (consumer, _) = complete(&*store).await;
    let held = everything(&*store, consumer).await;
    for _ in 0..3 {
        assert!(terminate(&mut stranger(&database), "%") >= 2);
        // What was lost before an act of it began is nobody's business.
        assert_eq!(store.enqueue(consumer, &[did(1)]).await.unwrap(), 0);
        readable(&*store, consumer).await;
    }
    assert_eq!(everything(&*store, consumer).await, held);
}

/// Reads until each reading thread has found out that its connection was lost.
async fn readable(store: &dyn Store, consumer: ConsumerId) {
    for _ in 0..100 {
        let reads = (0..8).map(|_| store.totals(consumer));
        let failed = futures::future::join_all(reads).await.into_iter().filter_map(Result::err).collect::<Vec<_>>();
        assert!(failed.iter().all(|error| matches!(error, StoreError::Unavailable { action: "reading totals", .. })), "{failed:?}");
        if failed.is_empty() {
            return;
        }
    }
    panic!("reading threads go on with connections that are lost");
}

#[tokio::test]
async fn an_act_whose_connection_is_lost_in_its_midst_is_undone_and_can_be_done_again() {
    let Some(database) = Database::create("an_act_whose_connection_is_lost_in_its_midst_is_undone_and_can_be_done_again") else { return };
    let store = database.open().unwrap();
    let (consumer, job) = complete(&*store).await;
    let mut stranger = stranger(&database);
    execute(&mut stranger, "BEGIN");
    execute(&mut stranger, &format!("SELECT id FROM job WHERE id = {} FOR UPDATE", job.id.0));
    let cut = async {
        blocked(&mut stranger).await;
        // Between two attempts it waits for nothing.
        while terminate(&mut stranger, "Lock") == 0 {}
        execute(&mut stranger, "ROLLBACK");
    };
    let op_set = op_set(&did(1), 5, 6, 100);
    let (answer, ()) = tokio::join!(store.append(consumer, &op_set, u64::MAX), cut);
    let error = answer.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { action: "buffering an op set", .. }), "{error:?}");
    assert_eq!(store.append(consumer, &op_set, u64::MAX).await.unwrap(), Route::Buffered { complete: true });
    assert_eq!(store.buffered(job.id, u64::MAX).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_known_to_be_done() {
    let Some(database) = Database::create("a_commit_whose_answer_is_lost_is_known_to_be_done") else { return };
    let relay = Relay::to(&database.url);
    let store = PostgresStore::open(&relay.url).unwrap();
    let (consumer, job) = complete(&store).await;
    for n in 0..5 {
        relay.cut(Cut::Answer);
        let append = Advance { manifest: ManifestChange::Append(chunks(n * 100..n * 100 + 100)), ..advance(&job) };
        // Done a second time, it would be out of order.
        store.advance(append).await.unwrap();
        assert!(relay.has_cut());
    }
    readable(&store, consumer).await;
    assert_eq!(store.totals(consumer).await.unwrap().records, 500);
}

#[tokio::test]
async fn a_commit_that_never_arrives_is_known_to_be_undone() {
    let Some(database) = Database::create("a_commit_that_never_arrives_is_known_to_be_undone") else { return };
    let relay = Relay::to(&database.url);
    let store = PostgresStore::open(&relay.url).unwrap();
    let (consumer, job) = complete(&store).await;
    for n in 0..5 {
        relay.cut(Cut::Request);
        let append = Advance { manifest: ManifestChange::Append(chunks(n * 100..n * 100 + 100)), ..advance(&job) };
        let error = store.advance(append.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { action: "advancing a job", .. }), "{error:?}");
        assert!(relay.has_cut());
        store.advance(append).await.unwrap();
    }
    readable(&store, consumer).await;
    assert_eq!(store.totals(consumer).await.unwrap().records, 500);
}

#[tokio::test]
async fn an_act_that_another_session_stands_in_the_way_of_waits_alone() {
    let Some(database) = Database::create("an_act_that_another_session_stands_in_the_way_of_waits_alone") else { return };
    let store = database.open().unwrap();
    let (consumer, job) = complete(&*store).await;
    let mut stranger = stranger(&database);
    execute(&mut stranger, "BEGIN");
    execute(&mut stranger, &format!("SELECT id FROM job WHERE id = {} FOR UPDATE", job.id.0));
    let op_set = op_set(&did(1), 5, 6, 100);
    let others = [did(2)];
    let mut slow = store.append(consumer, &op_set, u64::MAX);
    let quick = tokio::select! {
        slow = &mut slow => panic!("{slow:?}"),
        quick = store.enqueue(consumer, &others) => quick,
    };
    assert_eq!(quick.unwrap(), 1);
    execute(&mut stranger, "ROLLBACK");
    assert_eq!(slow.await.unwrap(), Route::Buffered { complete: true });
}

#[tokio::test]
async fn a_database_that_may_only_be_read_is_unavailable_until_it_may_be_written_to() {
    let Some(database) = Database::create("a_database_that_may_only_be_read_is_unavailable_until_it_may_be_written_to") else { return };
    let store = database.open().unwrap();
    let (consumer, _) = complete(&*store).await;
    let mut stranger = stranger(&database);
    let read_only = |words: &str| format!("ALTER DATABASE {} {words} default_transaction_read_only", database.name());
    execute(&mut stranger, &format!("{} = on", read_only("SET")));
    terminate(&mut stranger, "%");
    let error = store.enqueue(consumer, &[did(2)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { action: "enqueuing repos", .. }), "{error:?}");
    readable(&*store, consumer).await;
    assert_eq!(store.totals(consumer).await.unwrap().complete, 1);
    execute(&mut stranger, "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE");
    execute(&mut stranger, &read_only("RESET"));
    terminate(&mut stranger, "%");
    assert_eq!(store.enqueue(consumer, &[did(2)]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_server_that_crashes_and_comes_back_holds_what_it_had_committed() {
    if cluster("a_server_that_crashes_and_comes_back_holds_what_it_had_committed").is_none() {
        return;
    }
    let own = OwnCluster::start();
    let database = Database::in_cluster(&own.url);
    let store = database.open().unwrap();
    let (consumer, job) = complete(&*store).await;
    let mut held = 5;
    for _ in 0..3 {
        let restart = tokio::task::spawn_blocking({
            let folder = own.folder();
            move || OwnCluster::run("restart", &folder)
        });
        // All the time, until the server has gone and come back, and some more.
        let mut beyond = 0;
        while beyond < 20 {
            match store.append(consumer, &op_set(&did(1), held, held + 1, 100), u64::MAX).await {
                Ok(route) => {
                    assert_eq!(route, Route::Buffered { complete: true }, "{held}");
                    held += 1;
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            beyond += u32::from(restart.is_finished());
        }
        restart.await.unwrap();
    }
    let begun = Instant::now();
    let buffered = loop {
        match store.buffered(job.id, u64::MAX).await {
            Ok(buffered) => break buffered,
            Err(error) => assert!(error.is_retryable() && begun.elapsed() < LIMIT, "{error:?}"),
        }
    };
    assert_eq!(buffered.len() as u64, held - 5, "an op set was lost or written twice");
}

#[test]
fn no_error_and_no_debug_output_names_the_password() {
    for url in [
        "postgres://me:geheim@/store?host=/nowhere",
        "postgres://me:gehe%im@/store?host=/nowhere",
        "postgres:///store?host=/nowhere&password=geheim",
        "postgres://me:ge/heim@db.test/store",
        "mysql://me:geheim@db.test/store",
    ] {
        let error = PostgresStore::open(url).unwrap_err();
        let said = format!("{error:?} {}", words(&error));
        assert!(matches!(error, StoreError::Unavailable { .. }), "{said}");
        assert!(!said.contains("heim") && !said.contains("gehe"), "{said}");
    }
}

#[test]
fn a_database_of_another_encoding_is_refused() {
    let Some(database) = Database::create("a_database_of_another_encoding_is_refused") else { return };
    let name = format!("{}_ascii", database.name());
    database.execute(&format!("CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"));
    let error = PostgresStore::open(&database.url.replace(&database.name(), &name)).unwrap_err();
    database.execute(&format!("DROP DATABASE {name} WITH (FORCE)"));
    let said = words(&error);
    assert!(said.contains("SQL_ASCII") && said.contains(&name), "{said}");
}

#[derive(QueryableByName)]
struct Plan {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    line: String,
}

#[test]
fn no_frequent_query_scans_or_sorts_a_table() {
    let Some(database) = Database::create("no_frequent_query_scans_or_sorts_a_table") else { return };
    drop(database.open().unwrap());
    let mut connection = stranger(&database);
    // As the store sets them.
    for setting in [
        "plan_cache_mode = force_generic_plan",
        "enable_seqscan = off",
        "enable_bitmapscan = off",
        "enable_hashjoin = off",
        "enable_mergejoin = off",
    ] {
        execute(&mut connection, &format!("SET {setting}"));
    }
    let mut wrong = Vec::new();
    let due = "SELECT repo.did FROM job JOIN repo ON repo.id = job.repo WHERE job.due_at <= $1";
    // The statements that the verbs run, as diesel spells them, less the columns.
    for (query, index) in [
        (
            "SELECT job.epoch FROM job JOIN repo ON repo.id = job.repo WHERE repo.did = $1 AND job.consumer + 0 = $2 FOR UPDATE OF job",
            "job_repo_consumer_key",
        ),
        (
            "SELECT job.id FROM job JOIN repo ON repo.id = job.repo LEFT JOIN host ON host.id = job.host \
             WHERE repo.did = $1 AND job.due_at <= $2 ORDER BY job.id FOR UPDATE OF job",
            "job_repo_consumer_key",
        ),
        (&format!("{due} AND job.host = $2 ORDER BY job.due_at, job.id LIMIT $3"), "job_due "),
        (&format!("{due} AND job.host IS NULL ORDER BY job.due_at, job.id LIMIT $2"), "job_due_unplaced"),
        (
            "WITH RECURSIVE place (host) AS (SELECT (SELECT host FROM job WHERE host IS NOT NULL AND due_at IS NOT NULL ORDER BY host, due_at LIMIT 1) \
             UNION ALL SELECT (SELECT job.host FROM job WHERE job.host > place.host AND job.due_at IS NOT NULL ORDER BY job.host, job.due_at LIMIT 1) \
             FROM place WHERE place.host IS NOT NULL) \
             SELECT (SELECT name FROM host WHERE host.id = place.host), EXISTS (SELECT 1 FROM job WHERE job.host = place.host AND job.due_at <= $1), \
             (SELECT job.due_at FROM job WHERE job.host = place.host AND job.due_at > $2 ORDER BY job.due_at LIMIT 1) FROM place WHERE place.host IS NOT NULL",
            "job_due ",
        ),
        ("SELECT due_at FROM job WHERE host IS NULL AND due_at > $1 ORDER BY due_at LIMIT 1", "job_due_unplaced"),
        ("SELECT id FROM job WHERE state = 'in_progress'", "job_in_progress"),
        ("SELECT epoch FROM job WHERE consumer = $1 AND id > $2 ORDER BY id LIMIT $3", "job_by_consumer"),
        ("SELECT id FROM job WHERE id > $1 AND untold IS NOT NULL ORDER BY id LIMIT 1", "job_untold"),
        ("SELECT job FROM op_set WHERE job > $1 ORDER BY job LIMIT 1", "op_set_by_job"),
        ("SELECT seq FROM op_set WHERE job = $1 ORDER BY seq DESC LIMIT 1", "op_set_by_job"),
        ("SELECT body FROM op_set WHERE job = $1 AND seq > $2 ORDER BY seq LIMIT $3", "op_set_by_job"),
        ("DELETE FROM op_set WHERE job = $1 AND seq <= $2", "op_set_by_job"),
        ("DELETE FROM intent WHERE job = $1 AND epoch < $2", "intent_by_job"),
        ("SELECT bytes FROM manifest_chunk WHERE job = $1 AND first <= $2 ORDER BY first DESC LIMIT 1", "manifest_chunk_job_first_key"),
    ] {
        execute(&mut connection, "DEALLOCATE ALL");
        execute(&mut connection, &format!("PREPARE verb AS {query}"));
        let values = (0..3).filter(|n| query.contains(&format!("${}", n + 1))).map(|_| "NULL").collect::<Vec<_>>().join(", ");
        let values = if values.is_empty() { values } else { format!("({values})") };
        let plan: Vec<Plan> = diesel::sql_query(format!("EXPLAIN EXECUTE verb{values}")).load(&mut connection).unwrap();
        let plan = plan.into_iter().map(|step| step.line).collect::<Vec<_>>().join("\n");
        if !plan.contains(index) || (plan.contains("Sort") && !query.contains("FOR UPDATE")) || plan.contains("Seq Scan") {
            wrong.push(format!("{query}:\n{plan}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
