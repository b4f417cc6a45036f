use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::{Endpoint, Request};
use crate::sim::lock;
use crate::syntax::Did;

/// Arrivals that are remembered, for [`Counters::busiest`]: beyond that, the oldest are forgotten.
const REMEMBERED: usize = 1 << 20;

/// What one host saw. All numbers are since the network started.
#[derive(Debug, Default)]
pub struct Counters {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    requests: BTreeMap<Endpoint, u64>,
    repos: HashMap<Did, u64>,
    arrivals: VecDeque<Instant>,
    in_flight: u64,
    in_flight_max: u64,
    refused: u64,
    aborted: u64,
    bytes: u64,
    subscribers: u64,
    cursors: Vec<Option<u64>>,
    frames: u64,
}

impl Counters {
    /// Requests to one endpoint, whatever the answer.
    pub fn requests(&self, endpoint: Endpoint) -> u64 {
        lock(&self.seen).requests.get(&endpoint).copied().unwrap_or(0)
    }

    /// Requests to all endpoints.
    pub fn all_requests(&self) -> u64 {
        lock(&self.seen).requests.values().sum()
    }

    /// Requests for the export of one repo.
    pub fn exports_of(&self, did: &Did) -> u64 {
        lock(&self.seen).repos.get(did).copied().unwrap_or(0)
    }

    /// The most requests that arrived within any span of this length (its end excluded).
    pub fn busiest(&self, window: Duration) -> u64 {
        let arrivals = &lock(&self.seen).arrivals;
        let mut first = 0;
        let mut busiest = 0;
        for (at, arrival) in arrivals.iter().enumerate() {
            while *arrival - arrivals[first] >= window {
                first += 1;
            }
            busiest = busiest.max(at - first + 1);
        }
        busiest as u64
    }

    /// Requests whose answer is not sent whole yet.
    pub fn in_flight(&self) -> u64 {
        lock(&self.seen).in_flight
    }

    /// The most that ever were in flight at once.
    pub fn in_flight_max(&self) -> u64 {
        lock(&self.seen).in_flight_max
    }

    /// Answers with 429 or 503.
    pub fn refused(&self) -> u64 {
        lock(&self.seen).refused
    }

    /// Bodies that were not sent to their end: the client went away, or a fault ended them.
    pub fn aborted(&self) -> u64 {
        lock(&self.seen).aborted
    }

    /// Bytes of bodies handed to the connection, after compression.
    pub fn bytes(&self) -> u64 {
        lock(&self.seen).bytes
    }

    /// Connections to the firehose that are open.
    pub fn subscribers(&self) -> u64 {
        lock(&self.seen).subscribers
    }

    /// The cursors that subscriptions to the firehose came with, in the order in which they came.
    pub fn cursors(&self) -> Vec<Option<u64>> {
        lock(&self.seen).cursors.clone()
    }

    /// Frames of the firehose that were handed to connections.
    pub fn frames(&self) -> u64 {
        lock(&self.seen).frames
    }

    /// Counts a subscription, until what is returned is dropped.
    pub(super) fn subscribe(self: &Arc<Self>, cursor: Option<u64>) -> Connected {
        let mut seen = lock(&self.seen);
        seen.cursors.push(cursor);
        seen.subscribers += 1;
        Connected(Arc::clone(self))
    }

    pub(super) fn arrive(self: &Arc<Self>, request: &Request) -> InFlight {
        let mut seen = lock(&self.seen);
        *seen.requests.entry(request.endpoint).or_default() += 1;
        if let (Endpoint::GetRepo, Some(did)) = (request.endpoint, &request.did) {
            *seen.repos.entry(did.clone()).or_default() += 1;
        }
        if seen.arrivals.len() == REMEMBERED {
            seen.arrivals.pop_front();
        }
        seen.arrivals.push_back(Instant::now());
        seen.in_flight += 1;
        seen.in_flight_max = seen.in_flight_max.max(seen.in_flight);
        InFlight { counters: Arc::clone(self), bytes: 0, whole: false }
    }

    pub(super) fn refuse(&self) {
        lock(&self.seen).refused += 1;
    }
}

/// One request from its arrival until its body is sent or dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    counters: Arc<Counters>,
    bytes: u64,
    whole: bool,
}

impl InFlight {
    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    pub(super) fn whole(&mut self) {
        self.whole = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut seen = lock(&self.counters.seen);
        seen.in_flight -= 1;
        seen.aborted += u64::from(!self.whole);
        seen.bytes += self.bytes;
    }
}

/// A connection to the firehose.
#[derive(Debug)]
pub(super) struct Connected(Arc<Counters>);

impl Connected {
    pub(super) fn sent(&self) {
        lock(&self.0.seen).frames += 1;
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        lock(&self.0.seen).subscribers -= 1;
    }
}
