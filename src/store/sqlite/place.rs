use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::checkpoints::HURRY;
use super::sql::from_sql;
use crate::store::{Durability, StoreError};

/// What SQLite takes by itself for a new database, which nothing here changes.
const PAGE_BYTES: i64 = 4096;

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Whether a commit waits until it is on the disk (`PRAGMA synchronous`). Default: [`Durability::Normal`].
    pub durability: Durability,
    /// How large the database may grow, in bytes; past it, whatever would make it larger fails as unavailable. None (the default): as large as the disk.
    pub max_bytes: Option<u64>,
    /// How long to wait for a lock that another program holds on the database. Default: 5 s.
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { durability: Durability::Normal, max_bytes: None, busy_timeout: Duration::from_secs(5) }
    }
}

/// Where a database is and how it is opened: enough to open another connection.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    options: SqliteOptions,
}

/// Keeps other processes out as long as it is there.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // To close the file is not enough: a child of this process that has not yet begun its own program has it too.
        let _ = self.0.unlock();
    }
}

impl Place {
    pub(super) fn new(path: &Path, options: SqliteOptions) -> Self {
        Self { path: path.to_owned(), options }
    }

    /// Takes the lock that keeps other processes out.
    pub(super) fn lock(&self) -> Result<Lock, StoreError> {
        let mut path = OsString::from(&self.path);
        path.push(".lock");
        let unavailable = |source: io::Error| StoreError::Unavailable { action: "locking the database", source: Box::new(source) };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(unavailable)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: self.path.display().to_string() }),
            Err(TryLockError::Error(error)) => Err(unavailable(error)),
        }
    }

    /// A connection that writes.
    pub(super) fn connect(&self) -> Result<SqliteConnection, StoreError> {
        let unavailable = |source| StoreError::Unavailable { action: "opening the database", source };
        let path = self.path.to_str().ok_or_else(|| unavailable("the path is not UTF-8".into()))?;
        let mut connection = SqliteConnection::establish(path).map_err(|error| unavailable(Box::new(error)))?;
        let synchronous = match self.options.durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
        };
        let pragmas = format!(
            "PRAGMA busy_timeout = {}; PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA temp_store = MEMORY; \
             PRAGMA cache_size = -16384; PRAGMA wal_autocheckpoint = {HURRY}; PRAGMA journal_size_limit = {}; PRAGMA foreign_keys = OFF;",
            self.options.busy_timeout.as_millis(),
            // Its file keeps what it needs when it is busy: to grow again costs more than to be written over.
            i64::from(HURRY) * PAGE_BYTES,
        );
        connection.batch_execute(&pragmas).map_err(|error| from_sql(error, "opening the database"))?;
        if let Some(bytes) = self.options.max_bytes {
            connection
                .batch_execute(&format!("PRAGMA max_page_count = {};", (bytes / PAGE_BYTES as u64).max(1)))
                .map_err(|error| from_sql(error, "opening the database"))?;
        }
        Ok(connection)
    }

    /// Refuses a database that cannot be written, such as a file that may only be read.
    pub(super) fn try_writing(connection: &mut SqliteConnection) -> Result<(), StoreError> {
        connection.batch_execute("DELETE FROM job WHERE FALSE").map_err(|error| from_sql(error, "opening the database to write"))
    }

    /// A connection that only looks, at a database that is there, whoever works with it meanwhile.
    pub(super) fn connect_onlooker(&self) -> Result<SqliteConnection, StoreError> {
        let unavailable = |source| StoreError::Unavailable { action: "opening the database", source };
        std::fs::metadata(&self.path).map_err(|error| unavailable(Box::new(error)))?;
        let path = self.path.to_str().ok_or_else(|| unavailable("the path is not UTF-8".into()))?;
        let mut connection = SqliteConnection::establish(path).map_err(|error| unavailable(Box::new(error)))?;
        connection
            .batch_execute(&format!("PRAGMA query_only = ON; PRAGMA busy_timeout = {};", self.options.busy_timeout.as_millis()))
            .map_err(|error| from_sql(error, "opening the database"))?;
        Ok(connection)
    }

    /// A connection that only reads.
    pub(super) fn connect_reader(&self) -> Result<SqliteConnection, StoreError> {
        let mut connection = self.connect()?;
        connection
            .batch_execute("PRAGMA query_only = ON; PRAGMA cache_size = -4096;")
            .map_err(|error| from_sql(error, "opening the database"))?;
        Ok(connection)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use diesel::sql_types::BigInt;

    use super::*;
    use crate::error_chain::error_chain;

    #[test]
    fn a_database_that_may_only_be_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut writer = Place::new(&path, SqliteOptions::default()).connect().unwrap();
        super::super::sql::migrate(&mut writer).unwrap();
        Place::try_writing(&mut writer).unwrap();
        let mut reader = SqliteConnection::establish(&format!("file:{}?mode=ro", path.display())).unwrap();
        let refused = Place::try_writing(&mut reader).unwrap_err();
        assert!(refused.is_retryable() && error_chain(&refused).contains("readonly"), "{refused:?}");
    }

    #[derive(QueryableByName)]
    struct Level {
        #[diesel(sql_type = BigInt)]
        synchronous: i64,
    }

    #[test]
    fn a_durability_is_what_the_connection_that_writes_has() {
        let folder = tempfile::tempdir().expect("a folder");
        // 1 is what SQLite calls NORMAL, 2 FULL.
        for (durability, expected) in [(Durability::Normal, 1), (Durability::Full, 2)] {
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            let mut connection = Place::new(&folder.path().join("store.db"), options).connect().expect("open");
            let found: Level = diesel::sql_query("PRAGMA synchronous").get_result(&mut connection).expect("a level");
            assert_eq!(found.synchronous, expected, "{durability:?}");
        }
    }
}
