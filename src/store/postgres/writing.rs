//! The session that writes: nothing of a process that has lost its lease is committed, and of every commit it is known whether it was done.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::pg::PgConnection;
use diesel::prelude::*;

use super::backend::is_lost;
use super::machine;
use super::place::Place;
use super::session::{self, CountCommit, ServerProcess};
use super::sql::from_sql;
use crate::error_chain::error_chain;
use crate::store::StoreError;

/// How long the session before may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
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
    /// Others have taken the work of this process. Nothing was written.
    LeaseLost,
}

impl NotCommitted {
    pub(super) fn into_error(self, action: &'static str) -> StoreError {
        match self {
            Self::Undone(why) => StoreError::Unavailable { action, source: why.into() },
            Self::Unknown(why) => StoreError::OutcomeUnknown { action, source: why.into() },
            Self::LeaseLost => StoreError::LeaseLost,
        }
    }

    /// Of an error that came before anything was written.
    fn before(error: &StoreError) -> Self {
        match error {
            StoreError::LeaseLost => Self::LeaseLost,
            error => Self::Undone(error_chain(error)),
        }
    }
}

/// The connection that writes.
pub(super) struct Writing {
    place: Place,
    connection: Option<PgConnection>,
    /// The server's process for the last connection; it may outlive that, and commit.
    server: Option<ServerProcess>,
    member: Arc<Member>,
}

/// This process, as others on the database know it.
#[derive(Debug)]
pub(super) struct Member {
    /// Where it runs.
    pub(super) machine: String,
    /// Its number; 0 before it has one.
    id: AtomicI64,
    /// Whether it holds shares of the work. If not, it loses nothing with its lease.
    pub(super) is_working: AtomicBool,
}

impl Member {
    pub(super) fn new() -> Self {
        Self { machine: machine::place_of(std::process::id()), id: AtomicI64::new(0), is_working: AtomicBool::new(false) }
    }

    fn id(&self) -> Option<i64> {
        Some(self.id.load(Ordering::Acquire)).filter(|id| *id != 0)
    }
}

impl Writing {
    pub(super) fn new(place: Place, member: Arc<Member>) -> Self {
        Self { place, connection: None, server: None, member }
    }

    /// Makes this process known to others.
    pub(super) fn join(&mut self) -> Result<(), StoreError> {
        let (member, lease) = (Arc::clone(&self.member), self.place.lease());
        self.with_connection(|connection| join(&member, lease, connection).map_err(|error| from_sql(error, "joining other processes")))
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
        // Commits are counted in the transaction itself, before all else: nothing of the acts can undo that alone.
        let ready = self.count(&mut connection).and_then(|number| acts(&mut connection).map(|()| number).map_err(undone));
        let number = match ready {
            Ok(number) => number,
            Err(error) => {
                // What cannot be undone on a connection that is gone, the server undoes.
                let _ = AnsiTransactionManager::rollback_transaction(&mut connection);
                self.keep_unless_lost(connection);
                return Err(error);
            }
        };
        let Err(error) = AnsiTransactionManager::commit_transaction(&mut connection) else {
            self.connection = Some(connection);
            return Ok(());
        };
        if self.keep_unless_lost(connection) {
            return Err(undone(error));
        }
        match number {
            Some((process, number)) => self.outcome(process, number, &error.to_string()),
            None => Err(undone(error)),
        }
    }

    /// Numbers the commit of a transaction, which also has this process stay known until that ends. One that is forgotten and has nothing to lose is made known again.
    fn count(&self, connection: &mut PgConnection) -> Result<Option<(i64, i64)>, NotCommitted> {
        let Some(id) = self.member.id() else { return Ok(None) };
        if let Some(number) = CountCommit(id).get_result::<i64>(connection).optional().map_err(undone)? {
            return Ok(Some((id, number)));
        }
        if self.member.is_working.load(Ordering::Acquire) {
            return Err(NotCommitted::LeaseLost);
        }
        join(&self.member, self.place.lease(), connection).map_err(undone)?;
        Ok(self.member.id().map(|id| (id, 0)))
    }

    /// A connection in a new transaction. One that was lost while nothing was done on it is opened anew at once.
    fn begun(&mut self) -> Result<PgConnection, NotCommitted> {
        let mut anew = self.connection.is_none();
        loop {
            let mut connection = self.take().map_err(|error| NotCommitted::before(&error))?;
            match AnsiTransactionManager::begin_transaction_sql(&mut connection, "BEGIN") {
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

    /// Opens a connection; what the one before had begun is over then.
    fn open(&mut self) -> Result<PgConnection, StoreError> {
        let failed = |error| from_sql(error, "opening the database");
        let mut connection = self.place.connect()?;
        let server = ServerProcess::of(&mut connection)?;
        let begun = Instant::now();
        while let Some(before) = &self.server
            && !before.end(&mut connection).map_err(failed)?
        {
            if begun.elapsed() >= END_PATIENCE {
                let why = "the server does not end the session before".into();
                return Err(StoreError::Unavailable { action: "opening the database", source: why });
            }
        }
        if let Some(id) = self.member.id() {
            session::work_for(&mut connection, id).map_err(failed)?;
        }
        self.server = Some(server);
        Ok(connection)
    }

    /// What became of a commit in whose midst the connection was lost. The session is ended before the server is asked, so that the answer is final.
    fn outcome(&mut self, process: i64, number: i64, lost: &str) -> Result<(), NotCommitted> {
        let begun = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let answer = self.with_connection(|connection| {
                session::commits(connection, process).map_err(|error| from_sql(error, "asking for a commit"))
            });
            match answer {
                Ok(Some(done)) if done == number => return Ok(()),
                Ok(Some(_)) => return Err(NotCommitted::Undone(lost.to_owned())),
                // The commit was the one that would have made this process known.
                Ok(None) if number == 0 => return Err(NotCommitted::Undone(lost.to_owned())),
                Ok(None) if self.member.is_working.load(Ordering::Acquire) => return Err(NotCommitted::LeaseLost),
                Ok(None) => return Err(NotCommitted::Unknown(format!("{lost}; this process is not known any more"))),
                Err(error) if begun.elapsed() >= DOUBT_PATIENCE => {
                    return Err(NotCommitted::Unknown(format!("{lost}; then {}", error_chain(&error))));
                }
                Err(_) => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

fn undone(error: diesel::result::Error) -> NotCommitted {
    NotCommitted::Undone(error.to_string())
}

/// Makes a process known under a new number.
fn join(member: &Member, lease: Duration, connection: &mut PgConnection) -> QueryResult<()> {
    let id = session::join(connection, &member.machine, lease)?;
    session::work_for(connection, id)?;
    member.id.store(id, Ordering::Release);
    Ok(())
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Otherwise the lease runs out.
        if let (Some(connection), Some(id)) = (&mut self.connection, self.member.id())
            && let Err(error) = session::part(connection, id)
        {
            tracing::debug!(%error, "this process is not forgotten at once");
        }
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").field("place", &self.place).finish_non_exhaustive()
    }
}
