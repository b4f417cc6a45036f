//! What only SQLite has to do: with a full disk, a file that is locked or no database, and its plans.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::job::{JobState, Route};
use atproto_backfill::store::{Advance, SqliteOptions, SqliteStore, Standing, Store, StoreCheck, StoreError, StoreStats};
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};

use crate::support::{Count, Ground, NOW, advance, at, claimed, did, everything, op_set, path, rev};

/// Stores that are closed at once, and how often each.
const CLOSERS: usize = 8;
const CLOSINGS: usize = 300;

/// A database in a folder of its own.
pub(crate) struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    pub(crate) fn new() -> Self {
        let (directory, path) = database();
        Self { _directory: directory, path }
    }

    fn migrations() -> FileBasedMigrations {
        FileBasedMigrations::from_path("migrations/sqlite").unwrap()
    }
}

impl Ground for File {
    fn name(&self) -> String {
        "store.db".to_owned()
    }

    fn open(&self) -> Result<Arc<dyn Store>, StoreError> {
        SqliteStore::open(&self.path).map(|store| Arc::new(store) as _)
    }

    fn check(&self) -> Result<StoreCheck, StoreError> {
        SqliteStore::check(&self.path)
    }

    fn stats(&self) -> Result<StoreStats, StoreError> {
        SqliteStore::stats(&self.path)
    }

    fn execute(&self, sql: &str) {
        execute(&mut stranger(&self.path), sql);
    }

    fn tables(&self) -> i64 {
        let own = "SELECT count(*) AS n FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE '\\_\\_diesel%' ESCAPE '\\'";
        diesel::sql_query(own).get_result::<Count>(&mut stranger(&self.path)).unwrap().n
    }

    fn up(&self) {
        stranger(&self.path).run_pending_migrations(Self::migrations()).unwrap();
    }

    fn down(&self) {
        stranger(&self.path).revert_all_migrations(Self::migrations()).unwrap();
    }

    fn down_to(&self, version: &str) {
        let mut stranger = stranger(&self.path);
        while stranger.applied_migrations().unwrap()[0].to_string().as_str() > version {
            stranger.revert_last_migration(Self::migrations()).unwrap();
        }
    }

    fn number(&self, sql: &str) -> i64 {
        diesel::sql_query(sql).get_result::<Count>(&mut stranger(&self.path)).unwrap().n
    }

    fn zero(&self) -> &'static str {
        "x'00'"
    }
}

fn database() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    (directory, path)
}

/// Another program's connection to the same database.
fn stranger(path: &Path) -> SqliteConnection {
    SqliteConnection::establish(path.to_str().unwrap()).unwrap()
}

fn execute(connection: &mut SqliteConnection, sql: &str) {
    diesel::sql_query(sql).execute(connection).unwrap();
}

#[tokio::test]
async fn a_full_disk_fails_what_does_not_fit_and_nothing_else() {
    let (_directory, file) = database();
    let options = SqliteOptions { max_bytes: Some(512 * 1024), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&file, options).unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    let job = claimed(&store, consumer, &did(1)).await;
    store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
    let mut held = 5;
    let error = loop {
        match store.append(consumer, &op_set(&did(1), held, held + 1, 50_000), u64::MAX).await {
            Ok(route) => assert_eq!(route, Route::Buffered { complete: true }),
            Err(error) => break error,
        }
        held += 1;
        assert!(held < 100, "the quota was never reached");
    };
    assert!(matches!(error, StoreError::Unavailable { action: "buffering an op set", .. }), "{error:?}");
    let full = everything(&store, consumer).await;
    // Acts that fit, in one commit with acts that do not, are done or can be done again.
    let too_large = op_set(&did(1), held, held + 1, 400_000);
    let dids = [did(2)];
    let (large, small) = tokio::join!(store.append(consumer, &too_large, u64::MAX), store.enqueue(consumer, &dids));
    assert!(matches!(large, Err(StoreError::Unavailable { .. })), "{large:?}");
    // A full disk may make SQLite undo the whole commit; then all in it are told so, and nothing of them is there.
    let small = match small {
        Ok(added) => added,
        Err(StoreError::Unavailable { .. }) => store.enqueue(consumer, &dids).await.unwrap(),
        Err(error) => panic!("{error:?}"),
    };
    assert_eq!(small, 1);
    store.purge(consumer, &did(2)).await.unwrap();
    assert_eq!(everything(&store, consumer).await, full, "what failed has left something behind");
    let buffered = store.buffered(job.id, u64::MAX).await.unwrap();
    assert_eq!(buffered.last().map(|(_, op_set)| op_set.rev), Some(rev(held)));
    // Room is made, and it goes on where it stood.
    let flush = Advance { flushed: buffered.last().map(|(seq, _)| *seq), position: at(held), ..advance(&job) };
    assert_eq!(store.advance(flush).await.unwrap(), Standing::Complete);
    let next = store.append(consumer, &op_set(&did(1), held, held + 1, 50_000), u64::MAX).await.unwrap();
    assert_eq!(next, Route::Buffered { complete: true });
}

#[tokio::test]
async fn a_database_that_another_program_has_locked_is_unavailable_until_it_is_not() {
    let (_directory, file) = database();
    let options = SqliteOptions { busy_timeout: Duration::from_millis(20), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&file, options).unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    let mut stranger = stranger(&file);
    execute(&mut stranger, "BEGIN IMMEDIATE");
    let error = store.enqueue(consumer, &[did(1)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { action: "enqueuing repos", .. }), "{error:?}");
    assert_eq!(store.totals(consumer).await.unwrap().enqueued, 0, "reading is not hindered");
    execute(&mut stranger, "ROLLBACK");
    assert_eq!(store.enqueue(consumer, &[did(1)]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let (_directory, file) = database();
    std::fs::write(&file, "no database, and longer than a header of one hundred bytes, so that it cannot be taken for a new and empty one")
        .unwrap();
    let error = SqliteStore::open(&file).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    let (directory, _) = database();
    let error = SqliteStore::open(directory.path().join("no/such/directory/store.db")).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
}

#[derive(QueryableByName)]
struct Plan {
    #[diesel(sql_type = Text)]
    detail: String,
}

#[tokio::test]
async fn no_frequent_query_scans_a_table() {
    let (_directory, file) = database();
    drop(SqliteStore::open(&file).unwrap());
    let mut connection = stranger(&file);
    // The statements that the verbs run, as diesel spells them, less the columns.
    for (query, index) in [
        (
            "SELECT * FROM job JOIN repo ON repo.id = job.repo WHERE repo.did = ?1 AND job.consumer = ?2",
            "sqlite_autoindex_job_1 (repo=? AND consumer=?)",
        ),
        (
            "SELECT repo.did FROM job JOIN repo ON repo.id = job.repo WHERE job.due_at <= ?1 AND job.host = ?2 ORDER BY job.due_at, job.id LIMIT 9",
            "job_due (host=? AND due_at<?)",
        ),
        (
            "SELECT repo.did FROM job JOIN repo ON repo.id = job.repo WHERE job.due_at <= ?1 AND job.host IS NULL ORDER BY job.due_at, job.id LIMIT 9",
            "job_due (host=? AND due_at<?)",
        ),
        (
            "WITH RECURSIVE place (host) AS (SELECT (SELECT host FROM job WHERE host IS NOT NULL AND due_at IS NOT NULL ORDER BY host, due_at LIMIT 1) \
             UNION ALL SELECT (SELECT job.host FROM job WHERE job.host > place.host AND job.due_at IS NOT NULL ORDER BY job.host, job.due_at LIMIT 1) \
             FROM place WHERE place.host IS NOT NULL) \
             SELECT (SELECT name FROM host WHERE host.id = place.host), EXISTS (SELECT 1 FROM job WHERE job.host = place.host AND job.due_at <= ?1), \
             (SELECT job.due_at FROM job WHERE job.host = place.host AND job.due_at > ?2 ORDER BY job.due_at LIMIT 1) FROM place WHERE place.host IS NOT NULL",
            "job_due (host>?)",
        ),
        ("SELECT id FROM job WHERE state = 'in_progress'", "job_in_progress"),
        ("SELECT * FROM job WHERE consumer = ?1 AND id > ?2 ORDER BY id LIMIT 9", "job_by_consumer (consumer=? AND rowid>?)"),
        ("SELECT seq FROM op_set WHERE job = ?1 ORDER BY seq DESC LIMIT 1", "op_set_by_job (job=?)"),
        ("SELECT body FROM op_set WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT 9", "op_set_by_job (job=? AND rowid>?)"),
        ("DELETE FROM op_set WHERE job = ?1 AND seq <= ?2", "op_set_by_job (job=? AND rowid<?)"),
        ("DELETE FROM intent WHERE job = ?1 AND epoch < ?2", "intent_by_job (job=?)"),
        (
            "SELECT bytes FROM manifest_chunk WHERE job = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
            "sqlite_autoindex_manifest_chunk_1",
        ),
    ] {
        let plan: Vec<Plan> = diesel::sql_query(format!("EXPLAIN QUERY PLAN {query}")).load(&mut connection).unwrap();
        let plan = plan.into_iter().map(|step| step.detail).collect::<Vec<_>>().join("; ");
        assert!(
            plan.contains(index) && !plan.contains("TEMP B-TREE") && !plan.contains("SCAN repo") && !plan.contains("SCAN job "),
            "{query}: {plan}"
        );
    }
}

#[tokio::test]
async fn a_job_in_progress_becomes_enqueued_again_after_a_kill() {
    let (directory, file) = database();
    let store = SqliteStore::open(&file).unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    let job = claimed(&store, consumer, &did(1)).await;
    store.append(consumer, &op_set(&did(1), 5, 6, 9), u64::MAX).await.unwrap();
    // What a kill leaves: the files as they are, the last commits only in the log.
    let copy = directory.path().join("after.db");
    std::fs::copy(&file, &copy).unwrap();
    std::fs::copy(file.with_extension("db-wal"), directory.path().join("after.db-wal")).unwrap();
    let after = SqliteStore::open(&copy).unwrap();
    assert_eq!(after.recover(NOW).await.unwrap(), 1);
    let again = after.job(consumer, &did(1)).await.unwrap().unwrap();
    assert_eq!((again.state, again.min_rev), (JobState::Enqueued, Some(rev(6))));
    assert_eq!(after.in_doubt(job.id).await.unwrap(), [path(6)]);
}

/// SQLite 3.51.1 waits for itself for ever when two connections to one file close at once.
#[test]
fn a_store_always_closes() {
    let (closed, closings) = std::sync::mpsc::channel();
    for _ in 0..CLOSERS {
        let closed = closed.clone();
        std::thread::spawn(move || {
            let (_directory, path) = database();
            for _ in 0..CLOSINGS {
                drop(SqliteStore::open(&path).unwrap());
                if closed.send(()).is_err() {
                    return;
                }
            }
        });
    }
    for closing in 0..CLOSERS * CLOSINGS {
        assert!(closings.recv_timeout(Duration::from_secs(30)).is_ok(), "closing {closing} does not end");
    }
}

#[test]
fn a_database_in_use_is_not_opened_a_second_time() {
    let ground = File::new();
    let store = ground.open().unwrap();
    let error = ground.open().unwrap_err();
    assert!(matches!(error, StoreError::InUse { ref path } if path.ends_with(&ground.name())), "{error:?}");
    drop(store);
    ground.open().unwrap();
}

#[test]
fn of_several_starts_at_once_one_has_the_database() {
    let ground = File::new();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| ground.open())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let refused = opened.iter().filter(|opened| matches!(opened, Err(StoreError::InUse { .. }))).count();
    assert_eq!((opened.iter().flatten().count(), refused), (1, 3), "{opened:?}");
}
