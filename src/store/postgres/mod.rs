//! The store on PostgreSQL, 14 or later: one database, one process.

mod address;
mod backend;
mod enqueue;
mod place;
mod session;
#[path = "../sql/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one implementation, compiled once for each database")]
mod sql;
mod writing;

pub use self::place::PostgresOptions;

use self::PostgresStore as Database;
use self::place::Place;
use self::writing::Writing;
use super::{StoreCheck, StoreError, StoreStats};

/// A durable store in one PostgreSQL database, held by one process at a time.
///
/// That is what an advisory lock is for, which the session that writes holds: no session without the lock ever writes. So the server must be reached
/// directly, or through a pooler that pools whole sessions. Dropping the store waits until everything that was asked for is written.
///
/// A connection that is lost is opened anew for the next act. When it was lost in the middle of a commit, whether that was done is asked of the server, by the
/// number of the transaction, before anything else; acts wait for that, and for a server that does not come back within a minute they fail as
/// [`StoreError::OutcomeUnknown`].
#[derive(Debug)]
pub struct PostgresStore {
    threads: sql::Threads,
}

impl PostgresStore {
    /// Opens the database at a `postgres://` URL, as libpq understands it (`sslmode` among it), and brings its schema up to date.
    /// The database exists, its encoding is UTF8, and the role may make tables in it.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it, [`StoreError::NewerSchema`], and [`StoreError::Unavailable`] when it cannot be opened.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, PostgresOptions::default())
    }

    /// As [`PostgresStore::open`], with options.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub fn open_with(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let place = Place::new(url, options)?;
        let mut writing = Writing::new(place.clone());
        writing.with_connection(sql::migrate)?;
        Ok(Self { threads: sql::Threads::start(place, writing, backend::Numbers)? })
    }

    /// Reads the whole database in one snapshot, and says what no history of acts leads to. Nothing is changed; another process may work with it meanwhile. Blocks.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], and [`StoreError::Unavailable`] when it cannot be read.
    pub fn check(url: &str) -> Result<StoreCheck, StoreError> {
        sql::check(&mut Place::new(url, PostgresOptions::default())?.connect_reader()?)
    }

    /// What is in the database. Nothing is changed; another process may work with it meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`PostgresStore::check`].
    pub fn stats(url: &str) -> Result<StoreStats, StoreError> {
        sql::stats(&mut Place::new(url, PostgresOptions::default())?.connect_reader()?)
    }
}
