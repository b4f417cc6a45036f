//! The threads that work on a database, and the way to them.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::backend::{Connection, Numbers, Place, Writing};
use super::fault::Act;
use super::readers::{self, Read};
use super::writer::{self, Command, Tx, Writer};
use crate::store::StoreError;

/// The threads of one store. Dropping it waits until everything that was asked for is written.
pub(crate) struct Threads {
    place: Place,
    writer: Option<mpsc::Sender<Box<dyn Command>>>,
    readers: Option<mpsc::Sender<Read>>,
    /// The writing one first.
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts the threads for a database whose schema is up to date.
    pub(crate) fn start(place: Place, writing: Writing, numbers: Numbers) -> Result<Self, StoreError> {
        let (to_writer, queue) = mpsc::channel(writer::QUEUE);
        let writer = Writer::new(writing, numbers);
        let threads = vec![spawn("store-writer", move || writer.run(queue))?];
        let (to_readers, queue) = mpsc::channel(readers::QUEUE);
        let mut started = Self { place, writer: Some(to_writer), readers: Some(to_readers), threads };
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..readers::THREADS {
            let (queue, place, connection) = (Arc::clone(&queue), started.place.clone(), started.place.connect_reader()?);
            started.threads.push(spawn("store-reader", move || readers::run(&queue, &place, connection))?);
        }
        Ok(started)
    }

    /// Has the writing thread do something, in a transaction, and waits for the commit. The act may be run again, when all it did before was undone.
    pub(crate) async fn write<T, F>(&self, action: &'static str, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Act<T> + Send + 'static,
    {
        let (command, answer) = writer::command(action, act);
        let writer = self.writer.as_ref().ok_or_else(|| gone(action))?;
        writer.send(command).await.map_err(|_| gone(action))?;
        let (outcome, _act) = answer.await.map_err(|_| gone(action))?;
        outcome
    }

    /// Has a reading thread read something.
    pub(crate) async fn read<T, F>(&self, action: &'static str, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Act<T> + Send + 'static,
    {
        let (asker, answer) = oneshot::channel();
        let read = Box::new(move |connection: Result<&mut Connection, StoreError>| {
            let outcome = connection.and_then(|connection| act(connection).map_err(|fault| fault.into_error(action)));
            let went_well = outcome.is_ok();
            // Whoever asked may have gone.
            let _ = asker.send(outcome);
            went_well
        });
        let readers = self.readers.as_ref().ok_or_else(|| gone(action))?;
        readers.send(read).await.map_err(|_| gone(action))?;
        answer.await.map_err(|_| gone(action))?
    }
}

fn gone(action: &'static str) -> StoreError {
    StoreError::Unavailable { action, source: "the thread that works on the database has ended".into() }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let unavailable = |error| StoreError::Unavailable { action: "starting a thread", source: Box::new(error) };
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(unavailable)
}

impl Drop for Threads {
    fn drop(&mut self) {
        // With its queue closed, a thread ends when that is empty; the database closes with the last of them. They close one after the other: SQLite 3.51.1
        // may wait for itself for ever when two connections to one file close at once.
        let mut threads = self.threads.drain(..);
        let join = |thread: JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!(database = %self.place, "a thread of the store panicked");
            }
        };
        self.writer = None;
        threads.next().into_iter().for_each(join);
        self.readers = None;
        threads.for_each(join);
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)
    }
}
