//! The threads that read, each with a connection of its own. What was committed before a read was asked for is seen by it.

use std::sync::{Arc, Mutex, PoisonError};

use diesel::sqlite::SqliteConnection;
use tokio::sync::mpsc;

/// How many threads read.
pub(super) const THREADS: usize = 2;
/// The most reads that wait; whoever comes then waits for room.
pub(super) const QUEUE: usize = 256;

/// A read with its answer built in.
pub(super) type Read = Box<dyn FnOnce(&mut SqliteConnection) + Send>;

/// Reads until nobody can ask any more.
pub(super) fn run(queue: &Arc<Mutex<mpsc::Receiver<Read>>>, mut connection: SqliteConnection) {
    loop {
        // One thread waits in the queue, the others wait for it to leave.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(read) = next else { return };
        read(&mut connection);
    }
}
