//! The store on PostgreSQL, 14 or later: one database, one process or several.

mod address;
mod backend;
mod enqueue;
mod fleet;
mod machine;
mod place;
mod session;
#[path = "../sql/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one implementation, compiled once for each database")]
mod sql;
mod writing;

use std::sync::Arc;
use std::time::Duration;

pub use self::place::PostgresOptions;

use self::PostgresStore as Database;
use self::place::Place;
use self::writing::{Member, Writing};
use super::{Fleet, StoreCheck, StoreError, StoreStats};

/// A durable store in one PostgreSQL database, which several processes may share; see [`Fleet`].
///
/// The server must be reached directly, or through a pooler that pools whole sessions. Dropping the store waits until everything that was asked for is written.
///
/// A connection that is lost is opened anew for the next act. When it was lost in the middle of a commit, whether that was done is found out, by a count of commits in the
/// database, before anything else; acts wait for that, and for a server that does not come back within a minute they fail as
/// [`StoreError::OutcomeUnknown`].
#[derive(Debug)]
pub struct PostgresStore {
    threads: sql::Threads,
    member: Arc<Member>,
    lease: Duration,
}

impl PostgresStore {
    /// Opens the database at a `postgres://` URL, as libpq understands it (`sslmode` among it), and brings its schema up to date.
    /// The database exists, its encoding is UTF8, and the role may make tables in it.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], and [`StoreError::Unavailable`] when it cannot be opened.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, PostgresOptions::default())
    }

    /// As [`PostgresStore::open`], with options.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub fn open_with(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let place = Place::new(url, options)?;
        Self::open_at(&place).map_err(|error| error.with_place(&place))
    }

    fn open_at(place: &Place) -> Result<Self, StoreError> {
        let (member, lease) = (Arc::new(Member::new()), place.lease());
        let mut writing = Writing::new(place.clone(), Arc::clone(&member));
        writing.with_connection(|connection| session::alone(connection, sql::migrate))?;
        writing.join()?;
        Ok(Self { threads: sql::Threads::start(place.clone(), writing, backend::Numbers)?, member, lease })
    }

    /// Reads the whole database in one snapshot, and says what no history of acts leads to. Nothing is changed; another process may work with it meanwhile. Blocks.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], and [`StoreError::Unavailable`] when it cannot be read.
    pub fn check(url: &str) -> Result<StoreCheck, StoreError> {
        let place = Place::new(url, PostgresOptions::default())?;
        place.connect_reader().and_then(|mut connection| sql::check(&mut connection)).map_err(|error| error.with_place(&place))
    }

    /// What is in the database. Nothing is changed; another process may work with it meanwhile. Blocks.
    ///
    /// # Errors
    /// As [`PostgresStore::check`].
    pub fn stats(url: &str) -> Result<StoreStats, StoreError> {
        let place = Place::new(url, PostgresOptions::default())?;
        place.connect_reader().and_then(|mut connection| sql::stats(&mut connection)).map_err(|error| error.with_place(&place))
    }

    #[allow(clippy::unnecessary_wraps, reason = "the other database has none")]
    fn as_fleet(&self) -> Option<&dyn Fleet> {
        Some(self)
    }
}
