//! A database that outlives the processes which work on it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atproto_backfill::job::Job;
#[cfg(feature = "postgres")]
use atproto_backfill::store::PostgresStore;
use atproto_backfill::store::{MemoryStore, SqliteStore, Store, StoreCheck, StoreError, StoreStats, Totals};
use tempfile::TempDir;

#[cfg(feature = "postgres")]
use crate::database::Database;

const UNLOCKED_WITHIN: Duration = Duration::from_secs(10);

/// A folder, with a database in it or elsewhere. Goes with this.
pub(crate) struct Ground {
    pub(crate) folder: TempDir,
    memory: Option<Arc<MemoryStore>>,
    #[cfg(feature = "postgres")]
    database: Option<Database>,
}

impl Ground {
    pub(crate) fn sqlite() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            memory: None,
            #[cfg(feature = "postgres")]
            database: None,
        }
    }

    /// None, with a line on stderr, where there is no cluster.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(test: &str) -> Option<Self> {
        let database = Some(Database::create(test)?);
        Some(Self { folder: tempfile::tempdir().expect("a folder"), memory: None, database })
    }

    /// No database at all, but a store that this process keeps.
    pub(crate) fn memory() -> Self {
        Self { memory: Some(Arc::new(MemoryStore::new())), ..Self::sqlite() }
    }

    /// The store that this process keeps.
    pub(crate) fn in_memory(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::clone(self.memory.as_ref()?) as _)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What `--db` names.
    pub(crate) fn db(&self) -> String {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            return database.url.clone();
        }
        self.file("backfill.db").to_str().expect("a path in UTF-8").to_owned()
    }

    /// Whether several processes may work on it.
    pub(crate) fn is_shared(&self) -> bool {
        is_url(&self.db())
    }

    /// Checks what a process has left. None while its schema is not made yet.
    pub(crate) fn check(&self) -> Option<StoreCheck> {
        match check(&self.db()) {
            Ok(check) => Some(check),
            Err(StoreError::Unavailable { .. }) => None,
            Err(error) => panic!("the database cannot be checked: {error}"),
        }
    }

    /// Whether nothing is left to do for any job.
    pub(crate) fn is_at_rest(&self) -> bool {
        let stats = stats(&self.db()).expect("a database");
        let left = |totals: &Totals| totals.enqueued + totals.in_progress + totals.failed + totals.buffered_op_sets + totals.untold;
        stats.consumers.iter().all(|(_, totals)| left(totals) == 0)
    }

    /// Everything that the database holds of jobs; nobody else has it.
    pub(crate) async fn jobs(&self, consumer: &str) -> Vec<Job> {
        let store = self.in_memory().unwrap_or_else(|| open(&self.db()).expect("a sound database opens"));
        let consumer = store.consumer(consumer).await.expect("a consumer");
        store.jobs(consumer, None, 10_000).await.expect("jobs")
    }
}

fn is_url(db: &str) -> bool {
    db.starts_with("postgres://")
}

fn check(db: &str) -> Result<StoreCheck, StoreError> {
    #[cfg(feature = "postgres")]
    if is_url(db) {
        return PostgresStore::check(db);
    }
    SqliteStore::check(db)
}

fn stats(db: &str) -> Result<StoreStats, StoreError> {
    #[cfg(feature = "postgres")]
    if is_url(db) {
        return PostgresStore::stats(db);
    }
    SqliteStore::stats(db)
}

/// Opens what [`Ground::db`] names. A process that is being started has what this one had open, until it runs: a lock may so outlast its owner by a moment.
pub(crate) fn open(db: &str) -> Result<Arc<dyn Store>, StoreError> {
    let began = Instant::now();
    loop {
        match open_now(db) {
            Err(StoreError::InUse { .. }) if began.elapsed() < UNLOCKED_WITHIN => std::thread::sleep(Duration::from_millis(2)),
            opened => return opened,
        }
    }
}

fn open_now(db: &str) -> Result<Arc<dyn Store>, StoreError> {
    #[cfg(feature = "postgres")]
    if is_url(db) {
        return Ok(Arc::new(PostgresStore::open(db)?));
    }
    Ok(Arc::new(SqliteStore::open(db)?))
}
