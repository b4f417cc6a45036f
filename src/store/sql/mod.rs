//! A store in a database, by diesel: one implementation, compiled once for each database. A writing thread, a few that read.
//!
//! What differs is in the `backend` of the module that includes this one: the types `Db` and `Connection`; `MIGRATIONS`; `Place`, which opens a connection to
//! read; `Writing`, the connection that writes, in whose transactions the acts run, and `NotCommitted`, why one did not; the `savepoint` of an act, and
//! `GROUP`, the most acts in a commit; `Numbers`, from which the ids of jobs, op sets and intents come; `FOR_CHANGE`, the words that lock a job's row,
//! and `FOR_CLAIM`, those that pass over one that is locked; `MAY_BE_CLAIMED`, that a due job may be claimed by this process;
//! `SNAPSHOT`, the words that begin a transaction which sees one state, and `SIZE`, a query for the bytes of the database; `IS_MADE`, one that tells whether a store was ever made in it; `NEXT_CONSUMER`, the id of the next consumer; `OF_CONSUMER`, the condition that a repo's job is a consumer's, up to its id; how a list of repos is enqueued; and which faults are corruption.
//!
//! Queries for one row are made by `one`, not by diesel's `first`: that would bind a limit, and SQLite prepares a statement anew for each value of one.

mod accounts;
mod audit;
mod check;
mod chunks;
mod claims;
mod endings;
mod ends;
mod fault;
mod jobs;
mod migrate;
mod of_consumer;
mod readers;
mod reads;
mod rows;
pub(super) mod schema;
mod statements;
mod threads;
mod verbs;
mod writer;

use super::backend;

pub(super) use self::check::{check, stats};
pub(super) use self::ends::Tail;
pub(super) use self::fault::{Act, from_sql};
#[allow(unused_imports, reason = "for the database that processes share")]
pub(super) use self::jobs::dids_of;
pub(super) use self::migrate::migrate;
#[allow(unused_imports, reason = "for the database that processes share")]
pub(super) use self::reads::jobs as read_jobs;
pub(super) use self::rows::BodyRow;
pub(super) use self::threads::Threads;
pub(super) use self::writer::Tx;
