use std::sync::Arc;
use std::time::SystemTime;

use super::{Body, Event, EventTimes, Stream};
use crate::sim::account::Account;
use crate::sim::content::time;
use crate::sim::fault::{Faults, Place};
use crate::sim::{AccountStatus, NetworkOptions};

/// The sequences of all upstreams of one network.
#[derive(Debug)]
pub(in crate::sim) struct Log {
    pub(in crate::sim) hosts: Vec<Arc<Stream>>,
    pub(in crate::sim) relays: Vec<Arc<Stream>>,
    /// The hosts, by number, that tell no `prevData` and no `prev`.
    pub(in crate::sim) legacy: Vec<bool>,
    pub(in crate::sim) times: EventTimes,
}

impl Log {
    pub(in crate::sim) fn new(hosts: usize, options: &NetworkOptions, faults: Arc<Faults>) -> Self {
        let host = |host| Arc::new(Stream::new(Place::Host(host), options.host(host).firehose));
        let relay = |relay| Arc::new(Stream::new(Place::Relay(relay), options.relay));
        let relays = (0..options.relays.max(1)).map(relay).collect();
        let legacy = (0..hosts).map(|host| options.host(host).legacy).collect();
        Self { hosts: (0..hosts).map(host).collect(), relays, legacy, times: options.times }
    }

    /// Sequences what a host says of an account: at that host, and at the relays if they carry it. Called under the lock of the repo, so that the
    /// events of one repo are everywhere in the order in which they happened. `micros` is the time by the clock of the world.
    pub(in crate::sim) fn tell(&self, account: &Arc<Account>, host: usize, micros: u64, body: &Body) {
        let micros = match self.times {
            EventTimes::World => micros,
            EventTimes::Wall => SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_micros() as u64),
        };
        let mut body = body.clone();
        if self.legacy.get(host) == Some(&true) {
            make_legacy(&mut body);
        }
        let event = Arc::new(Event::new(&account.did, time(micros), body));
        if let Some(stream) = self.hosts.get(host) {
            stream.push(Arc::clone(&event));
            if let Body::Account { status: Some("deleted"), .. } = event.body {
                stream.purge_before(&event);
            }
        }
        if carried(account, host, &event.body) {
            self.relays.iter().for_each(|relay| relay.push(Arc::clone(&event)));
        }
    }
}

/// Whether a relay passes an event on: what the account's own host says, and of an account that is not active only that it is not. Any host may say
/// that an identity changed.
fn carried(account: &Account, host: usize, body: &Body) -> bool {
    let standing = account.standing();
    match body {
        Body::Identity { .. } => true,
        Body::Account { .. } | Body::Unknown => standing.host == host,
        Body::Commit(_) | Body::Sync { .. } => standing.host == host && standing.status == AccountStatus::Active,
    }
}

fn make_legacy(body: &mut Body) {
    if let Body::Commit(commit) = body {
        commit.prev_data = None;
        commit.ops.iter_mut().for_each(|op| op.prev = None);
    }
}
