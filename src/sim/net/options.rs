use std::collections::BTreeMap;
use std::time::Duration;

use crate::sim::{AccountStatus, EventTimes, FirehoseOptions};

/// How the servers of a network behave when nothing goes wrong.
#[derive(Debug, Clone)]
pub struct NetworkOptions {
    /// Every host that has no options of its own.
    pub hosts: HostOptions,
    /// Hosts that have, by number.
    pub of_host: BTreeMap<usize, HostOptions>,
    /// Whether there are firehoses. They retain events whether or not somebody follows them, and so make each write cost more.
    pub firehose: bool,
    /// How many relays there are (at least one). Each numbers events by itself.
    pub relays: usize,
    /// The firehose of a relay.
    pub relay: FirehoseOptions,
    /// The clock that dates events.
    pub times: EventTimes,
}

impl Default for NetworkOptions {
    /// Hosts as the reference implementation, one relay, firehoses dated by the clock of the world.
    fn default() -> Self {
        let (hosts, of_host, relay) = (HostOptions::default(), BTreeMap::new(), FirehoseOptions::default());
        Self { hosts, of_host, firehose: true, relays: 1, relay, times: EventTimes::World }
    }
}

impl NetworkOptions {
    pub(in crate::sim) fn host(&self, index: usize) -> HostOptions {
        self.of_host.get(&index).unwrap_or(&self.hosts).clone()
    }
}

/// How one PDS host behaves.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Whose status codes and error names it uses.
    pub flavour: Flavour,
    /// The order of blocks in its exports.
    pub order: Order,
    /// Whether an export is of one moment. Otherwise the host reads the root first and then 500 blocks at a time, as the reference
    /// implementation does, so that a commit in between removes blocks from what is still to be sent.
    pub atomic: bool,
    /// Whether it compresses exports for clients that take gzip. That costs more time than all else it does.
    pub gzip: bool,
    /// How long it thinks before each answer.
    pub latency: Duration,
    /// Its limit on requests, if it has one.
    pub rate: Option<RateLimit>,
    /// Its firehose.
    pub firehose: FirehoseOptions,
    /// Whether it is from before Sync 1.1: its commits tell no `prevData`, their ops no `prev`.
    pub legacy: bool,
}

impl Default for HostOptions {
    /// The reference implementation: reference order, exports of one moment, gzip, no latency; but no limit, so that tests go at their own pace.
    fn default() -> Self {
        let (flavour, order, firehose) = (Flavour::Reference, Order::Reference, FirehoseOptions::default());
        Self { flavour, order, atomic: true, gzip: true, latency: Duration::ZERO, rate: None, firehose, legacy: false }
    }
}

/// The order of blocks in an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By the rev at which a block was first stored, falling, then by CID, falling.
    Reference,
    /// The commit, then the tree, each node before what is in it.
    Streamable,
}

/// A limit on requests of one host, in windows of fixed length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests in one window.
    pub limit: u64,
    /// The window.
    pub window: Duration,
    /// Whether requests over the limit are refused.
    pub enforced: bool,
    /// Whether answers carry `RateLimit-*` headers, and refusals `Retry-After`. Otherwise a refusal is a page for people.
    pub announced: bool,
}

impl Default for RateLimit {
    /// That of the reference implementation: 3,000 in five minutes, announced and enforced.
    fn default() -> Self {
        Self { limit: 3_000, window: Duration::from_secs(300), enforced: true, announced: true }
    }
}

/// Whose status codes and error names a host uses for accounts that are not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The reference PDS: 400 for everything, a deleted account is not found.
    Reference,
    /// The Go relay: 404 for what is not found, 403 for the rest, suspended is taken down, deleted has a name of its own.
    Indigo,
}

impl Flavour {
    /// Status code and error name for an account that is not active.
    pub(super) fn refusal(self, status: AccountStatus) -> (u16, &'static str) {
        match (self, status) {
            (Flavour::Reference, AccountStatus::Takendown) => (400, "RepoTakendown"),
            (Flavour::Reference, AccountStatus::Suspended) => (400, "RepoSuspended"),
            (Flavour::Reference, AccountStatus::Deactivated) => (400, "RepoDeactivated"),
            (Flavour::Reference, AccountStatus::Deleted | AccountStatus::NotFound | AccountStatus::Active) => (400, "RepoNotFound"),
            (Flavour::Indigo, AccountStatus::Takendown | AccountStatus::Suspended) => (403, "RepoTakendown"),
            (Flavour::Indigo, AccountStatus::Deactivated) => (403, "RepoDeactivated"),
            (Flavour::Indigo, AccountStatus::Deleted) => (403, "RepoDeleted"),
            (Flavour::Indigo, AccountStatus::NotFound | AccountStatus::Active) => (404, "RepoNotFound"),
        }
    }
}
