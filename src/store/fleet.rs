//! Several processes on one store: who works on what.
//!
//! The work is divided into *shares*, each held by one process at a time: the jobs of a host, the jobs without one, and the following of an upstream. A process
//! holds its shares by its *lease*, which it renews; when the lease has run out, every act of that process upon the store fails as
//! [`StoreError::LeaseLost`](super::StoreError::LeaseLost), and others take the shares. Time is the server's; a process counts its own lease from before it asked for it,
//! so it ends by its own clock first.

use std::fmt::Debug;
use std::time::Duration;

use super::{AuditId, StoreFuture};
use crate::job::{ConsumerId, Job, JobId};
use crate::syntax::Did;

/// A part of the work that one process has at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Share {
    /// The jobs of a host, by its name.
    Host(String),
    /// The jobs whose host is not known.
    Unplaced,
    /// To follow an upstream, by its name.
    Upstream(String),
}

/// What a renewal of a lease brings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renewal {
    /// Shares that this process has from now on.
    pub taken: Vec<Share>,
    /// How many jobs at them were left in progress by others; they are enqueued again.
    pub abandoned: u64,
    /// Hosts of this process beyond an even part, to be given up as soon as nobody acts on their jobs.
    pub surplus: usize,
    /// Repos of this process that have something for their consumer, by what other processes have recorded.
    pub woken: Vec<Did>,
}

/// The verbs of processes that share a store. As with those of [`Store`](super::Store), each is one transaction.
pub trait Fleet: Debug + Send + Sync {
    /// How long this process keeps its shares without a renewal.
    fn lease(&self) -> Duration;

    /// Renews the lease, ends those of others that ran out or whose process is known to be dead, and takes what is free: all but hosts whole, hosts up to an even part.
    /// `upstreams` are those that this process could follow. Jobs in progress at what is taken get [`JobEvent::Abandoned`](crate::job::JobEvent::Abandoned).
    fn renew<'a>(&'a self, upstreams: &'a [String]) -> StoreFuture<'a, Renewal>;

    /// Gives up hosts on whose jobs nobody in this process acts any more; each is free after the pause that stands with it.
    fn give_up<'a>(&'a self, hosts: &'a [(String, Duration)]) -> StoreFuture<'a, ()>;

    /// Gives up everything: this process ends in order.
    fn leave(&self) -> StoreFuture<'_, ()>;

    /// Tells whoever has the host of a job that the job has something for its consumer. Nothing when nobody has: who takes the host will look.
    fn wake(&self, job: JobId) -> StoreFuture<'_, ()>;

    /// Jobs of a consumer after one, in the order of their ids, at most `limit`. No job with an id up to the last of these can appear later.
    fn newcomers(&self, consumer: ConsumerId, after: Option<JobId>, limit: usize) -> StoreFuture<'_, Vec<Job>>;

    /// Up to which job whoever followed an upstream last knew the repos; none when nobody ever did.
    fn known<'a>(&'a self, upstream: &'a str) -> StoreFuture<'a, Option<JobId>>;

    /// The upstreams of this process are followed with the repos of all jobs up to this one known. Where an upstream is followed, no other job is claimed.
    fn know(&self, job: JobId) -> StoreFuture<'_, ()>;

    /// Of the hosts of this process, and of `Unplaced` if it has it, those that an audit is not done with.
    fn unaudited(&self, consumer: ConsumerId, audit: AuditId) -> StoreFuture<'_, Vec<Share>>;

    /// An audit is done with shares of this process. It ends when it is done with all hosts, and the jobs without one; `true` then.
    fn audited<'a>(&'a self, consumer: ConsumerId, audit: AuditId, shares: &'a [Share]) -> StoreFuture<'a, bool>;
}
