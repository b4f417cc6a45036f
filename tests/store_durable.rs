//! What only a durable store has to do: survive a restart, a full disk, a locked or damaged database, and another process.
#![cfg(feature = "sqlite")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use atproto_backfill::job::{ConsumerId, Job, JobEvent, JobState, Op, OpAction, OpSet, Position, Route, Timestamp};
use atproto_backfill::manifest::{Builder, Chunk, Edit};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, ManifestChange, SqliteOptions, SqliteStore, Standing, Store, StoreError};
use atproto_backfill::syntax::{Did, RecordPath, Rev};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

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

fn did(n: u32) -> Did {
    Did::new(&format!("did:web:repo{n}.test")).unwrap()
}

fn rev(n: u64) -> Rev {
    Rev::from_parts(1_700_000_000_000_000 + n, 0)
}

fn at(n: u64) -> Option<Position> {
    Some(Position { rev: rev(n), data: Some(Link::of(&n.to_le_bytes())) })
}

fn path(n: u64) -> RecordPath {
    RecordPath::new(&format!("app.bsky.feed.post/{}", rev(n))).unwrap()
}

fn chunks(range: std::ops::Range<u64>) -> Vec<Chunk> {
    let mut builder = Builder::default();
    let mut chunks: Vec<Chunk> = range.filter_map(|n| builder.push(path(n).as_ref(), Link::of(&n.to_le_bytes())).unwrap()).collect();
    chunks.extend(builder.finish());
    chunks
}

fn op_set(did: &Did, from: u64, to: u64, size: usize) -> OpSet {
    let create = OpAction::Create { cid: Link::of(&to.to_le_bytes()), record: vec![7; size].into() };
    let data = |n| at(n).and_then(|position| position.data);
    OpSet {
        did: did.clone(),
        rev: rev(to),
        since: Some(rev(from)),
        data: data(to),
        prev_data: data(from),
        ops: vec![Op { path: path(to), action: create }],
    }
}

fn advance(job: &Job) -> Advance {
    Advance::new(job.id, job.epoch)
}

async fn claimed(store: &SqliteStore, consumer: ConsumerId, did: &Did) -> Job {
    store.enqueue(consumer, std::slice::from_ref(did)).await.unwrap();
    store.claim(did, NOW).await.unwrap().pop().unwrap()
}

/// Everything that the trait gives out about the jobs of a consumer.
async fn everything(store: &SqliteStore, consumer: ConsumerId) -> String {
    let mut all = vec![format!("{:?}", store.totals(consumer).await.unwrap())];
    for job in store.jobs(consumer, None, 1000).await.unwrap() {
        let buffer = store.buffered(job.id, u64::MAX).await.unwrap();
        let doubt = store.in_doubt(job.id).await.unwrap();
        let manifest = store.manifest(job.id, None, 1000).await.unwrap();
        all.push(format!("{job:?} {buffer:?} {doubt:?} {manifest:?}"));
    }
    all.join("\n")
}

#[tokio::test]
async fn a_database_that_is_opened_again_holds_what_it_held() {
    let (_directory, file) = database();
    let store = SqliteStore::open(&file).unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    for n in 0..4 {
        let job = claimed(&store, consumer, &did(n)).await;
        store.place(&did(n), "a.test").await.unwrap();
        let append = Advance { manifest: ManifestChange::Append(chunks(0..600)), ..advance(&job) };
        store.advance(append).await.unwrap();
        store.intend(job.id, job.epoch, &[path(900), path(901)]).await.unwrap().unwrap();
        if n > 0 {
            store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
            assert_eq!(store.append(consumer, &op_set(&did(n), 5, 6, 100), 1 << 20).await.unwrap(), Route::Buffered { complete: true });
        }
        if n == 3 {
            let event = JobEvent::Failed { kind: atproto_backfill::job::FailureKind::Handler, attempt: 2, retry_at: Timestamp(NOW.0 + 5) };
            store.settle(job.id, job.epoch, event, "said no", &[path(1000)]).await.unwrap();
        }
    }
    let before = everything(&store, consumer).await;
    drop(store);
    let store = SqliteStore::open(&file).unwrap();
    assert_eq!(store.consumer("posts@1").await.unwrap(), consumer);
    assert_eq!(everything(&store, consumer).await, before);
    assert_eq!(store.recover().await.unwrap(), 1);
    assert_eq!(store.unflushed(None, 9).await.unwrap().len(), 2);
    // A retry time outlives the restart, and so does the count of failures.
    assert!(store.claim(&did(3), NOW).await.unwrap().is_empty());
    assert_eq!(store.claim(&did(3), Timestamp(NOW.0 + 5)).await.unwrap()[0].failures, 2);
}

#[tokio::test]
async fn what_was_asked_for_before_a_drop_is_written() {
    let (_directory, file) = database();
    let store = SqliteStore::open(&file).unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    let dids: Vec<Did> = (0..5000).map(did).collect();
    // Asked for, and then nobody waits for the answer.
    let asked = store.enqueue(consumer, &dids);
    assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err(), "it was done before it could be left alone");
    drop(store);
    let store = SqliteStore::open(&file).unwrap();
    assert_eq!(store.totals(consumer).await.unwrap().enqueued, 5000);
}

#[tokio::test]
async fn a_database_in_use_is_not_opened_a_second_time() {
    let (_directory, file) = database();
    let store = SqliteStore::open(&file).unwrap();
    assert!(matches!(SqliteStore::open(&file), Err(StoreError::InUse { path }) if path.ends_with("store.db")));
    drop(store);
    SqliteStore::open(&file).unwrap();
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
async fn one_act_that_fails_does_not_undo_the_others_of_its_commit() {
    let (_directory, file) = database();
    let store = std::sync::Arc::new(SqliteStore::open(&file).unwrap());
    let consumer = store.consumer("posts@1").await.unwrap();
    let job = claimed(&store, consumer, &did(1)).await;
    let edit = |n: u64| Edit { path: path(n), cid: Some(Link::of(b"x")) };
    let acts = (0..200u64).map(|n| {
        // Every second one writes its first chunk and fails at its second, which does not come after it.
        let [behind, before] = [20_000 + n, 10_000].map(|n| chunks(n..n + 1));
        let manifest = if n % 2 == 0 { ManifestChange::Apply(vec![edit(n)]) } else { ManifestChange::Append([behind, before].concat()) };
        let act = Advance { manifest, ..advance(&job) };
        let store = store.clone();
        tokio::spawn(async move { (n, store.advance(act).await) })
    });
    for outcome in futures::future::join_all(acts.collect::<Vec<_>>()).await {
        match outcome.unwrap() {
            (n, Ok(standing)) => assert_eq!((n % 2, standing), (0, Standing::Held)),
            (n, Err(error)) => assert!(n % 2 == 1 && matches!(error, StoreError::OutOfOrder { .. }), "{n}: {error}"),
        }
    }
    assert_eq!(store.totals(consumer).await.unwrap().records, 100);
    let held: u32 = store.manifest(job.id, None, 100).await.unwrap().iter().map(|chunk| chunk.entries).sum();
    assert_eq!(held, 100);
}

#[tokio::test]
async fn text_that_this_program_never_writes_is_corruption_and_is_loud() {
    for damage in [
        "UPDATE job SET state = 'completed'",
        "UPDATE job SET state = 'failed:tired', due_at = 5",
        "UPDATE job SET state = 'enqueued', due_at = NULL",
        "UPDATE job SET rev = 'zzzzzzzzzzzzz'",
        "UPDATE job SET data = x'00'",
        "UPDATE job SET older = '3k 1 1'",
        "UPDATE job SET records = -1",
    ] {
        let (_directory, file) = database();
        let store = SqliteStore::open(&file).unwrap();
        let consumer = store.consumer("posts@1").await.unwrap();
        let job = claimed(&store, consumer, &did(1)).await;
        store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
        execute(&mut stranger(&file), damage);
        for error in [
            store.job(consumer, &did(1)).await.err(),
            store.append(consumer, &op_set(&did(1), 5, 6, 9), u64::MAX).await.err(),
            store.advance(advance(&job)).await.err(),
        ] {
            assert!(matches!(error, Some(StoreError::Corrupt { ref what }) if what.contains("job 1")), "{damage}: {error:?}");
        }
    }
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

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
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
        ("SELECT host, due_at FROM job WHERE host > ?1 AND due_at IS NOT NULL ORDER BY host, due_at LIMIT 1", "job_due (host>?)"),
        ("SELECT due_at FROM job WHERE host = ?1 AND due_at > ?2 ORDER BY due_at LIMIT 1", "job_due (host=? AND due_at>?)"),
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
        assert!(plan.contains(index) && !plan.contains("TEMP B-TREE") && !plan.contains("SCAN repo"), "{query}: {plan}");
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
    assert_eq!(after.recover().await.unwrap(), 1);
    let again = after.job(consumer, &did(1)).await.unwrap().unwrap();
    assert_eq!((again.state, again.min_rev), (JobState::Enqueued, Some(rev(6))));
    assert_eq!(after.in_doubt(job.id).await.unwrap(), [path(6)]);
}

mod migrations {
    use super::*;
    use diesel_migrations::{FileBasedMigrations, MigrationHarness};

    fn tables(connection: &mut SqliteConnection) -> i64 {
        let own = "SELECT count(*) AS n FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE '\\_\\_diesel%' ESCAPE '\\'";
        diesel::sql_query(own).get_result::<Count>(connection).unwrap().n
    }

    #[test]
    fn migrations_go_up_and_down_and_up_again() {
        let (_directory, file) = database();
        let migrations = || FileBasedMigrations::from_path("migrations/sqlite").unwrap();
        let mut connection = stranger(&file);
        connection.run_pending_migrations(migrations()).unwrap();
        let up = tables(&mut connection);
        assert!(up > 8);
        connection.revert_all_migrations(migrations()).unwrap();
        assert_eq!(tables(&mut connection), 0, "something is left after all migrations were undone");
        connection.run_pending_migrations(migrations()).unwrap();
        assert_eq!(tables(&mut connection), up);
        drop(connection);
        SqliteStore::open(&file).unwrap();
    }

    #[test]
    fn a_newer_schema_is_refused_and_left_alone() {
        let (_directory, file) = database();
        drop(SqliteStore::open(&file).unwrap());
        execute(&mut stranger(&file), "INSERT INTO __diesel_schema_migrations (version) VALUES ('99990101000001')");
        let error = SqliteStore::open(&file).unwrap_err();
        assert!(matches!(error, StoreError::NewerSchema { ref found, .. } if found == "99990101000001"), "{error:?}");
    }
}
