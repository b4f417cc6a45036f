//! The store on SQLite: one file, one process.

mod backend;
mod checkpoints;
mod enqueue;
mod known;
mod place;
#[path = "../sql/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one implementation, compiled once for each database")]
mod sql;

use std::path::Path;

pub use self::place::SqliteOptions;

use self::SqliteStore as Database;
use self::place::Place;
use super::{Fleet, StoreCheck, StoreError, StoreStats};

/// A durable store in one SQLite file, held by one process at a time.
///
/// Dropping it waits until everything that was asked for is written.
#[derive(Debug)]
pub struct SqliteStore {
    // In this order: the database closes before its lock goes.
    threads: sql::Threads,
    _lock: place::Lock,
}

impl SqliteStore {
    /// Opens the database at `path`, makes it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it, [`StoreError::NewerSchema`], [`StoreError::Corrupt`] when it is not a database, and
    /// [`StoreError::Unavailable`] when it cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// As [`SqliteStore::open`], with options.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        let place = Place::new(path.as_ref(), options);
        Self::open_at(&place).map_err(|error| error.with_place(&place))
    }

    fn open_at(place: &Place) -> Result<Self, StoreError> {
        let lock = place.lock()?;
        let mut connection = place.connect()?;
        sql::migrate(&mut connection)?;
        Place::try_writing(&mut connection)?;
        let numbers = backend::Numbers::of(&mut connection)?;
        let writing = backend::Writing::new(place.clone(), connection)?;
        Ok(Self { threads: sql::Threads::start(place.clone(), writing, numbers)?, _lock: lock })
    }

    /// Reads the whole database at `path` in one snapshot, and says what no history of acts leads to. Nothing is changed; another process may work with it
    /// meanwhile. Blocks.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], [`StoreError::Corrupt`] when it is not a database, and [`StoreError::Unavailable`] when it is not there or cannot be read.
    pub fn check(path: impl AsRef<Path>) -> Result<StoreCheck, StoreError> {
        let place = Place::new(path.as_ref(), SqliteOptions::default());
        place.connect_onlooker().and_then(|mut connection| sql::check(&mut connection)).map_err(|error| error.with_place(&place))
    }

    /// What is in the database at `path`. Nothing is changed; another process may work with it meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`SqliteStore::check`].
    pub fn stats(path: impl AsRef<Path>) -> Result<StoreStats, StoreError> {
        let place = Place::new(path.as_ref(), SqliteOptions::default());
        place.connect_onlooker().and_then(|mut connection| sql::stats(&mut connection)).map_err(|error| error.with_place(&place))
    }

    #[allow(clippy::unused_self, reason = "the other database's answers by itself")]
    fn as_fleet(&self) -> Option<&dyn Fleet> {
        None
    }
}
