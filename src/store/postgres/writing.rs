//! The session that writes: it has the lock that keeps other processes out, and it knows of every commit whether it was done.

use std::fmt;
use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::pg::PgConnection;
use diesel::prelude::*;

use super::backend::is_lost;
use super::place::Place;
use super::session::{self, ServerProcess};
use super::sql::from_sql;
use crate::store::StoreError;

/// Names the advisory lock of a database: "backfill" in ASCII.
const LOCK: i64 = 0x6261_636b_6669_6c6c;
/// How long the session of a process that has just ended may take to give up the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How long a server may take to come back and say what became of a commit.
const DOUBT_PATIENCE: Duration = Duration::from_secs(60);
/// Between attempts: the first pause, which doubles, and the longest. There is one such waiter for a database, so they are not spread.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Why a transaction was not committed, or that it is not known.
#[derive(Debug, Clone)]
pub(super) enum NotCommitted {
    /// It was undone.
    Undone(String),
    /// The server did not come back to say.
    Unknown(String),
    /// Another process has the database now. Nothing was written.
    InUse { path: String },
}

impl NotCommitted {
    pub(super) fn into_error(self, action: &'static str) -> StoreError {
        match self {
            Self::Undone(why) => StoreError::Unavailable { action, source: why.into() },
            Self::Unknown(why) => StoreError::OutcomeUnknown { action, source: why.into() },
            Self::InUse { path } => StoreError::InUse { path },
        }
    }

    /// Of an error that came before anything was written.
    fn before(error: &StoreError) -> Self {
        match error {
            StoreError::InUse { path } => Self::InUse { path: path.clone() },
            error => Self::Undone(with_cause(error)),
        }
    }
}

fn with_cause(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// The connection that writes.
pub(super) struct Writing {
    place: Place,
    connection: Option<PgConnection>,
    /// The server's process for the last connection; it may outlive that, and would keep the lock.
    server: Option<ServerProcess>,
}

impl Writing {
    pub(super) fn new(place: Place) -> Self {
        Self { place, connection: None, server: None }
    }

    /// Does something outside of a transaction.
    pub(super) fn with_connection<T>(&mut self, act: impl FnOnce(&mut PgConnection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut connection = self.take()?;
        let done = act(&mut connection);
        if done.is_ok() {
            self.connection = Some(connection);
        } else {
            self.keep_unless_lost(connection);
        }
        done
    }

    /// Runs acts in a transaction. An error of theirs undoes all of it.
    pub(super) fn transact(&mut self, acts: impl FnOnce(&mut PgConnection) -> QueryResult<()>) -> Result<(), NotCommitted> {
        let mut connection = self.begun()?;
        let ready = acts(&mut connection).and_then(|()| session::transaction(&mut connection));
        let number = match ready {
            Ok(number) => number,
            Err(error) => {
                // What cannot be undone on a connection that is gone, the server undoes.
                let _ = AnsiTransactionManager::rollback_transaction(&mut connection);
                self.keep_unless_lost(connection);
                return Err(NotCommitted::Undone(error.to_string()));
            }
        };
        let Err(error) = AnsiTransactionManager::commit_transaction(&mut connection) else {
            self.connection = Some(connection);
            return Ok(());
        };
        match (self.keep_unless_lost(connection), number) {
            (false, Some(number)) => self.outcome(&number, &error.to_string()),
            _ => Err(NotCommitted::Undone(error.to_string())),
        }
    }

    /// A connection in a new transaction with its first savepoint. One that was lost while nothing was done on it is opened anew at once.
    fn begun(&mut self) -> Result<PgConnection, NotCommitted> {
        let mut anew = self.connection.is_none();
        loop {
            let mut connection = self.take().map_err(|error| NotCommitted::before(&error))?;
            match AnsiTransactionManager::begin_transaction_sql(&mut connection, "BEGIN; SAVEPOINT act") {
                Ok(()) => return Ok(connection),
                Err(error) => {
                    if self.keep_unless_lost(connection) || anew {
                        return Err(NotCommitted::Undone(error.to_string()));
                    }
                    anew = true;
                }
            }
        }
    }

    /// After a failure: keeps the connection if it can be used again; says whether.
    fn keep_unless_lost(&mut self, mut connection: PgConnection) -> bool {
        self.connection = (!is_lost(&mut connection)).then_some(connection);
        self.connection.is_some()
    }

    fn take(&mut self) -> Result<PgConnection, StoreError> {
        self.connection.take().map_or_else(|| self.open(), Ok)
    }

    /// Opens a connection that has the lock.
    fn open(&mut self) -> Result<PgConnection, StoreError> {
        let failed = |error| from_sql(error, "opening the database");
        let mut connection = self.place.connect()?;
        let server = ServerProcess::of(&mut connection)?;
        if let Some(before) = &self.server {
            before.end(&mut connection).map_err(failed)?;
        }
        let begun = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            if session::lock(&mut connection, LOCK).map_err(failed)? {
                break;
            }
            if begun.elapsed() >= LOCK_PATIENCE {
                return Err(StoreError::InUse { path: self.place.to_string() });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOCK_PATIENCE / 8);
        }
        self.server = Some(server);
        Ok(connection)
    }

    /// What became of a commit in whose midst the connection was lost. The session is ended before the server is asked, so that the answer is final.
    fn outcome(&mut self, number: &str, lost: &str) -> Result<(), NotCommitted> {
        let begun = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let answer = self
                .with_connection(|connection| session::status(connection, number).map_err(|error| from_sql(error, "asking for a commit")));
            let why = match answer {
                Ok(Some(status)) if status == "committed" => return Ok(()),
                Ok(Some(status)) if status == "aborted" => return Err(NotCommitted::Undone(lost.to_owned())),
                Ok(Some(status)) => status,
                Ok(None) => return Err(NotCommitted::Unknown(format!("{lost}; the server has forgotten the transaction"))),
                Err(StoreError::InUse { path }) => return Err(NotCommitted::Unknown(format!("{lost}; another process has {path} now"))),
                Err(error) => with_cause(&error),
            };
            if begun.elapsed() >= DOUBT_PATIENCE {
                return Err(NotCommitted::Unknown(format!("{lost}; then {why}")));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").field("place", &self.place).finish_non_exhaustive()
    }
}
