use std::sync::Arc;
use std::time::SystemTime;

use super::alter::alter;
use super::{Body, Event, EventTimes, Stream, status};
use crate::sim::account::Account;
use crate::sim::content::time;
use crate::sim::fault::{EventFault, Faults, Place};
use crate::sim::{AccountStatus, NetworkOptions};

/// The sequences of all upstreams of one network.
#[derive(Debug)]
pub(in crate::sim) struct Log {
    pub(in crate::sim) hosts: Vec<Arc<Stream>>,
    pub(in crate::sim) relays: Vec<Arc<Stream>>,
    /// The hosts, by number, that tell no `prevData` and no `prev`.
    legacy: Vec<bool>,
    times: EventTimes,
    faults: Arc<Faults>,
}

impl Log {
    pub(in crate::sim) fn new(hosts: usize, options: &NetworkOptions, faults: Arc<Faults>) -> Self {
        let host = |host| Arc::new(Stream::new(Place::Host(host), options.host(host).firehose));
        let relay = |relay| Arc::new(Stream::new(Place::Relay(relay), options.relay));
        let relays = (0..options.relays.max(1)).map(relay).collect();
        let legacy = (0..hosts).map(|host| options.host(host).legacy).collect();
        Self { hosts: (0..hosts).map(host).collect(), relays, legacy, times: options.times, faults }
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
            if let Body::Account { status: Some("deleted"), .. } = event.body {
                stream.purge(&event.did);
            }
            self.sequence(stream, account, &event);
        }
        if carried(account, host, &event.body) {
            self.relays.iter().for_each(|relay| self.sequence(relay, account, &event));
        }
    }

    /// Sequences an event at one upstream, or does what a fault makes of that.
    fn sequence(&self, stream: &Stream, account: &Account, event: &Arc<Event>) {
        let Some(fault) = self.faults.pick_sequencing(stream.place, event) else {
            stream.push(Arc::clone(event));
            return;
        };
        match &fault {
            EventFault::Drop => return,
            EventFault::Swap => {
                stream.hold(event);
                return;
            }
            EventFault::Twice => stream.push(Arc::clone(event)),
            EventFault::AlsoAt(host) => {
                if let Some(host) = self.hosts.get(*host) {
                    host.push(Arc::clone(event));
                }
            }
            EventFault::Restart => stream.restart(),
            EventFault::Storm(changes) => storm(stream, account, event, *changes),
            EventFault::UnknownFirst => stream.push(Arc::new(Event::new(&event.did, event.time.clone(), Body::Unknown))),
            _ => {}
        }
        stream.push(Arc::new(alter(event, &fault, account)));
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

/// Changes the status of an account on one upstream, so many times, the last time to what it is.
fn storm(stream: &Stream, account: &Account, event: &Event, changes: usize) {
    let truth = account.standing().status;
    let others = [AccountStatus::Deactivated, AccountStatus::Active, AccountStatus::Takendown, AccountStatus::Suspended];
    let passing = others.into_iter().cycle().take(changes.saturating_sub(1));
    for now in passing.chain((changes > 0).then_some(truth)) {
        if let Some(body) = status(now) {
            stream.push(Arc::new(Event::new(&event.did, event.time.clone(), body)));
        }
    }
}

fn make_legacy(body: &mut Body) {
    if let Body::Commit(commit) = body {
        commit.prev_data = None;
        commit.ops.iter_mut().for_each(|op| op.prev = None);
    }
}
