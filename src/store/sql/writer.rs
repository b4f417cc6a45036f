//! The one thread that writes. Acts that wait in its queue are committed together; one that fails fails alone, and none is answered before its commit.
//!
//! Where a failure is all that can part them, acts run without savepoints, which cost more than all else of a small act; when one fails, the whole group is
//! undone and run again, each act in a savepoint of its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use diesel::prelude::*;
use tokio::sync::{mpsc, oneshot};

use super::backend::{ALWAYS_APART, Connection, GROUP, KnownJobs, NotCommitted, Numbers, Writing, is_contended, savepoint};
use super::fault::{Act, Fault};
use super::statements::AddToTotal;
use crate::job::ConsumerId;
use crate::store::StoreError;
use crate::store::rules::Tally;

/// The most acts that wait; whoever comes then waits for room.
pub(super) const QUEUE: usize = 1024;
/// How long an act is tried again that another process stands in the way of.
const CONTENTION: Duration = Duration::from_secs(10);

/// What an act works with: the connection in its transaction, and what the whole commit sums up.
pub(crate) struct Tx<'a> {
    pub(in crate::store) connection: &'a mut Connection,
    pub(in crate::store) tallies: BTreeMap<ConsumerId, Tally>,
    /// Where the ids of jobs, op sets and intents come from: each above all that were given before.
    pub(in crate::store) numbers: &'a mut Numbers,
    /// Jobs that need not be read.
    pub(super) known: &'a mut KnownJobs,
}

/// An act in the queue.
pub(super) trait Command: Send {
    /// Runs within a savepoint and keeps its outcome. An error undoes the savepoint.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), Undo>;

    /// Answers; with an error, when the commit failed.
    fn answer(self: Box<Self>, commit_failed: Option<NotCommitted>);
}

/// That a savepoint is to be undone.
pub(super) enum Undo {
    /// The act has failed; why, the command keeps.
    Failed,
    /// Another process stands in its way: to be tried again in another commit, since the other may wait for what this one has locked. Others may overtake it:
    /// whoever needs an order waits for the answer.
    Contended,
}

/// What came of an act, and the act, so that what it holds is freed by whoever asked and not by the one thread that all wait for.
pub(super) type Answer<T, F> = (Result<T, StoreError>, F);

struct Waiting<T, F> {
    action: &'static str,
    act: F,
    outcome: Option<Result<T, StoreError>>,
    asker: oneshot::Sender<Answer<T, F>>,
    /// When another process first stood in its way.
    contended: Option<Instant>,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Act<T> + Send> Command for Waiting<T, F> {
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), Undo> {
        let outcome = (self.act)(tx);
        if let Err(Fault::Sql(error)) = &outcome
            && is_contended(error)
            && self.contended.get_or_insert_with(Instant::now).elapsed() < CONTENTION
        {
            return Err(Undo::Contended);
        }
        let undo = if outcome.is_ok() { Ok(()) } else { Err(Undo::Failed) };
        self.outcome = Some(outcome.map_err(|fault| fault.into_error(self.action)));
        undo
    }

    fn answer(self: Box<Self>, commit_failed: Option<NotCommitted>) {
        let outcome = match (self.outcome, commit_failed) {
            (Some(Ok(_)) | None, Some(why)) => Err(why.into_error(self.action)),
            (Some(outcome), _) => outcome,
            (None, None) => Err(StoreError::Unavailable { action: self.action, source: "the act was not run".into() }),
        };
        // Whoever asked may have gone; what was done stays done.
        let _ = self.asker.send((outcome, self.act));
    }
}

/// An act for the queue, and where its answer will come.
pub(super) fn command<T, F>(action: &'static str, act: F) -> (Box<dyn Command>, oneshot::Receiver<Answer<T, F>>)
where
    T: Send + 'static,
    F: FnMut(&mut Tx<'_>) -> Act<T> + Send + 'static,
{
    let (asker, answer) = oneshot::channel();
    (Box::new(Waiting { action, act, outcome: None, asker, contended: None }), answer)
}

/// The writing thread.
pub(super) struct Writer {
    writing: Writing,
    numbers: Numbers,
    known: KnownJobs,
}

impl Writer {
    pub(super) fn new(writing: Writing, numbers: Numbers) -> Self {
        Self { writing, numbers, known: KnownJobs::default() }
    }

    /// Works until nobody can send any more, and the queue is empty.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Command>>) {
        let mut contended = VecDeque::new();
        loop {
            let next = if contended.is_empty() { queue.blocking_recv() } else { queue.try_recv().ok().or_else(|| contended.pop_front()) };
            let Some(first) = next else { return };
            let mut group = Group::new(first, contended, &mut self.numbers, &mut self.known);
            let mut failed = self.writing.transact(|connection| group.run(connection, &mut queue)).err();
            if group.is_to_be_parted() {
                group.part();
                failed = self.writing.transact(|connection| group.run(connection, &mut queue)).err();
            }
            if failed.is_some() {
                group.known.forget_all();
            }
            contended = group.before;
            contended.append(&mut group.contended);
            for command in group.done.into_iter().chain(group.next) {
                command.answer(failed.clone());
            }
        }
    }
}

/// The acts of one commit.
struct Group<'a> {
    done: Vec<Box<dyn Command>>,
    next: Option<Box<dyn Command>>,
    /// Acts that another process stood in the way of, in the commits before and in this one.
    before: VecDeque<Box<dyn Command>>,
    contended: VecDeque<Box<dyn Command>>,
    numbers: &'a mut Numbers,
    known: &'a mut KnownJobs,
    /// Whether each act has a savepoint of its own.
    apart: bool,
    /// Whether an act has failed that has none, so that nothing was committed.
    spoilt: bool,
}

impl<'a> Group<'a> {
    fn new(first: Box<dyn Command>, before: VecDeque<Box<dyn Command>>, numbers: &'a mut Numbers, known: &'a mut KnownJobs) -> Self {
        Self { done: Vec::new(), next: Some(first), before, contended: VecDeque::new(), numbers, known, apart: ALWAYS_APART, spoilt: false }
    }

    /// The act that comes next into this commit.
    fn another(&mut self, queue: &mut mpsc::Receiver<Box<dyn Command>>) -> Option<Box<dyn Command>> {
        if self.done.len() >= GROUP {
            return None;
        }
        // Those that waited already come behind one that did not, so that neither keeps the other waiting for long.
        self.before.pop_front().or_else(|| queue.try_recv().ok())
    }

    /// Whether others suffer from the failure of one.
    fn is_to_be_parted(&self) -> bool {
        self.spoilt && self.done.len() > 1
    }

    /// Has all of them before it again, in their order.
    fn part(&mut self) {
        self.known.forget_all();
        self.before = std::mem::take(&mut self.done).into_iter().chain(self.before.drain(..)).collect();
        self.next = self.before.pop_front();
        (self.apart, self.spoilt) = (true, false);
    }

    /// Runs what waits. An error means that an act could not be undone alone, so that the whole transaction must be.
    fn run(&mut self, connection: &mut Connection, queue: &mut mpsc::Receiver<Box<dyn Command>>) -> QueryResult<()> {
        let mut sums: BTreeMap<ConsumerId, Tally> = BTreeMap::new();
        if self.apart {
            savepoint::first(connection)?;
        }
        while let Some(mut command) = self.next.take() {
            let mut tx = Tx { connection: &mut *connection, tallies: BTreeMap::new(), numbers: self.numbers, known: self.known };
            let ran = command.run(&mut tx);
            let tallies = tx.tallies;
            match ran {
                Ok(()) | Err(Undo::Failed) => self.done.push(command),
                Err(Undo::Contended) => self.contended.push_back(command),
            }
            match ran {
                Ok(()) => tallies.iter().for_each(|(&of, tally)| sums.entry(of).or_default().add(tally)),
                Err(_) if self.apart => {
                    self.known.forget_all();
                    savepoint::undo(connection)?;
                }
                Err(_) => {
                    self.spoilt = true;
                    return Err(diesel::result::Error::RollbackTransaction);
                }
            }
            self.next = self.another(queue);
            if self.apart && self.next.is_some() {
                savepoint::next(connection)?;
            }
        }
        sums.retain(|_, tally| *tally != Tally::default());
        if self.apart && !sums.is_empty() {
            savepoint::last(connection)?;
        }
        sums.iter().map(|(of, tally)| AddToTotal { consumer: of.0, tally }.execute(connection)).try_for_each(|added| added.map(drop))
    }
}
