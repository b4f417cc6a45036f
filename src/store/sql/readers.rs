//! The threads that read, each with a connection of its own. What was committed before a read was asked for is seen by it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::backend::{Connection, Place, is_lost};
use crate::store::StoreError;

/// How many threads read.
pub(super) const THREADS: usize = 2;
/// The most reads that wait; whoever comes then waits for room.
pub(super) const QUEUE: usize = 256;

/// A read with its answer built in. It is given a connection, or why there is none, and says whether it went well.
pub(super) type Read = Box<dyn FnOnce(Result<&mut Connection, StoreError>) -> bool + Send>;

/// Reads until nobody can ask any more. A connection that was lost is opened anew for the next read.
pub(super) fn run(queue: &Arc<Mutex<mpsc::Receiver<Read>>>, place: &Place, connection: Connection) {
    let mut kept = Some(connection);
    loop {
        // One thread waits in the queue, the others wait for it to leave.
        let mut waiting = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(read) = waiting.blocking_recv() else {
            // Connections close one after the other (see `Threads`).
            drop(kept);
            return;
        };
        drop(waiting);
        match kept.take().map_or_else(|| place.connect_reader(), Ok) {
            Ok(mut connection) => {
                let usable = read(Ok(&mut connection)) || !is_lost(&mut connection);
                kept = usable.then_some(connection);
            }
            Err(error) => {
                read(Err(error));
            }
        }
    }
}
