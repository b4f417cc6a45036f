//! Brings what was committed from the write-ahead log into the database, beside the thread that writes, which would wait for the disk meanwhile.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use diesel::prelude::*;
use diesel::sql_types::Integer;
use diesel::sqlite::SqliteConnection;

use super::place::Place;
use crate::store::StoreError;

/// How many pages the log may hold before it is brought into the database.
pub(super) const BEGIN: i32 = 16_000;
/// At how many the thread that writes does it itself, and waits for the disk. While nothing is written meanwhile the log then begins anew, which it does not as
/// long as the two threads work side by side without a pause.
pub(super) const HURRY: i32 = 4 * BEGIN;
/// How many pages are enough when that is near, so that little is left for it to do.
const RATHER: i32 = 1_000;

/// The thread that does it. Dropping it waits until its connection is closed.
pub(super) struct Checkpoints {
    commits: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts the thread, on a connection of its own.
    pub(super) fn start(place: &Place) -> Result<Self, StoreError> {
        let connection = place.connect()?;
        let (commits, looks) = sync_channel(1);
        let unavailable = |error| StoreError::Unavailable { action: "starting a thread", source: Box::new(error) };
        let body = move || run(connection, &looks);
        let thread = std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn(body).map_err(unavailable)?;
        Ok(Self { commits: Some(commits), thread: Some(thread) })
    }

    /// Tells that something was committed. Does not wait: one look is enough for all that comes before it.
    pub(super) fn committed(&self) {
        if let Some(commits) = &self.commits {
            let _ = commits.try_send(());
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.commits = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that brings the log into the database panicked");
        }
    }
}

/// What SQLite says of the log, in pages.
#[derive(Debug, Clone, Copy, QueryableByName)]
struct Log {
    #[diesel(sql_type = Integer)]
    log: i32,
    #[diesel(sql_type = Integer)]
    checkpointed: i32,
}

fn run(mut connection: SqliteConnection, looks: &Receiver<()>) {
    let mut is_failing = false;
    while looks.recv().is_ok() {
        let outcome = look(&mut connection);
        if let (Err(error), false) = (&outcome, is_failing) {
            tracing::warn!(%error, "the log is not brought into the database; it is tried again with every commit");
        }
        is_failing = outcome.is_err();
    }
}

/// Brings the log into the database if it is long enough.
fn look(connection: &mut SqliteConnection) -> QueryResult<()> {
    let Log { log, checkpointed } = diesel::sql_query("PRAGMA wal_checkpoint(NOOP)").get_result(connection)?;
    let enough = if log < HURRY - BEGIN { BEGIN } else { RATHER };
    if log - checkpointed >= enough {
        diesel::sql_query("PRAGMA wal_checkpoint(PASSIVE)").execute(connection)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use diesel::connection::SimpleConnection;

    use super::super::place::SqliteOptions;
    use super::*;

    fn log(connection: &mut SqliteConnection) -> Log {
        diesel::sql_query("PRAGMA wal_checkpoint(NOOP)").get_result(connection).expect("a look")
    }

    #[test]
    fn a_log_that_is_long_enough_is_brought_into_the_database_by_the_other_thread() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::new(&folder.path().join("store.db"), SqliteOptions::default());
        let mut connection = place.connect().expect("open");
        let checkpoints = Checkpoints::start(&place).expect("start");
        connection.batch_execute("CREATE TABLE filler (bytes BLOB)").expect("a table");
        // 1 MiB each.
        let put = "INSERT INTO filler VALUES (zeroblob(1048576))";
        while log(&mut connection).log < BEGIN - 300 {
            connection.batch_execute(put).expect("a row");
            checkpoints.committed();
        }
        assert_eq!(log(&mut connection).checkpointed, 0, "it was brought in too early");
        connection.batch_execute(&format!("{put}; {put}")).expect("two rows");
        let before = log(&mut connection).log;
        assert!((BEGIN..HURRY).contains(&before), "{before}");
        checkpoints.committed();
        // It looks once more before it ends.
        drop(checkpoints);
        let after = log(&mut connection);
        assert_eq!((after.log, after.checkpointed), (before, before));
    }
}
