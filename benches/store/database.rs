//! The database that is measured, and a second way into it: to prepare what would take the store hours, and to measure what the database itself costs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atproto_backfill::store::{Durability, SqliteOptions, SqliteStore, Store};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

/// A store and where it is.
pub(crate) struct Database {
    pub(crate) store: Arc<dyn Store>,
    place: Place,
}

enum Place {
    File(PathBuf),
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "made with the feature only"))]
    Url(String),
}

impl Database {
    pub(crate) fn sqlite(path: &Path, durability: Option<Durability>) -> Self {
        let defaults = SqliteOptions::default();
        let options = SqliteOptions { durability: durability.unwrap_or(defaults.durability), ..defaults };
        let store = SqliteStore::open_with(path, options).expect("open");
        Self { store: Arc::new(store), place: Place::File(path.to_owned()) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(url: &str, durability: Option<Durability>) -> Self {
        use atproto_backfill::store::{PostgresOptions, PostgresStore};
        let defaults = PostgresOptions::default();
        let options = PostgresOptions { durability: durability.unwrap_or(defaults.durability), ..defaults };
        let store = PostgresStore::open_with(url, options).expect("open");
        Self { store: Arc::new(store), place: Place::Url(url.to_owned()) }
    }

    #[cfg(not(feature = "postgres"))]
    pub(crate) fn postgres(_: &str, _: Option<Durability>) -> Self {
        panic!("--postgres needs the feature \"postgres\"")
    }

    /// Runs statements beside the store.
    pub(crate) fn execute(&self, statements: &str) {
        match &self.place {
            Place::File(path) => {
                let mut connection = SqliteConnection::establish(path.to_str().expect("UTF-8")).expect("connect");
                connection.batch_execute("PRAGMA busy_timeout = 60000; PRAGMA cache_size = -262144").expect("pragmas");
                connection.batch_execute(statements).expect("statements");
            }
            #[cfg(feature = "postgres")]
            Place::Url(url) => {
                let mut connection = diesel::pg::PgConnection::establish(url).expect("connect");
                connection.batch_execute(statements).expect("statements");
            }
            #[cfg(not(feature = "postgres"))]
            Place::Url(_) => {}
        }
    }

    /// Where it is, if it is a file.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => path.parent(),
            Place::Url(_) => None,
        }
    }

    /// Whether it is SQLite's.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    /// The bytes of the database's file, if it is one.
    pub(crate) fn file_size(&self) -> Option<u64> {
        match &self.place {
            Place::File(path) => std::fs::metadata(path).ok().map(|file| file.len()),
            Place::Url(_) => None,
        }
    }

    /// What each database does of its own when time has passed.
    pub(crate) fn tidy(&self) {
        match &self.place {
            Place::File(_) => self.execute("PRAGMA wal_checkpoint(TRUNCATE)"),
            Place::Url(_) => self.execute("VACUUM ANALYZE"),
        }
    }
}
