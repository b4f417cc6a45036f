use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kind::Stage;
use super::{EventFault, Fault, Place, StreamFault};
use crate::sim::firehose::Event;
use crate::sim::net::{Endpoint, Request};
use crate::sim::{EventKind, lock};
use crate::syntax::Did;

/// Where and when a fault strikes. A rule without conditions strikes every request to the fault's own endpoint.
///
/// Faults of a firehose strike events or connections in place of requests: those of the relay (the first, if there are several), unless the rule
/// names another upstream. What is said of requests below goes for what they strike.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    endpoint: Option<Endpoint>,
    host: Option<usize>,
    relay: Option<usize>,
    event: Option<EventKind>,
    did: Option<Did>,
    skip: u64,
    times: u64,
    every: u64,
}

impl Rule {
    /// The fault, on every request to its endpoint ([`Fault::endpoint`]).
    pub fn new(fault: impl Into<Fault>) -> Self {
        let fault = fault.into();
        let endpoint = Some(fault.endpoint());
        let (relay, event) = match &fault {
            Fault::Event(event) => (Some(0), event.strikes()),
            Fault::Stream(_) => (Some(0), None),
            _ => (None, None),
        };
        Self { fault, endpoint, host: None, relay, event, did: None, skip: 0, times: u64::MAX, every: 1 }
    }

    /// On another endpoint than the fault's own.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = Some(endpoint);
        self
    }

    /// On every endpoint.
    pub fn any_endpoint(mut self) -> Self {
        self.endpoint = None;
        self
    }

    /// Only on the host of this number.
    pub fn host(mut self, host: usize) -> Self {
        (self.host, self.relay) = (Some(host), None);
        self
    }

    /// Only on the relay of this number.
    pub fn relay(mut self, relay: usize) -> Self {
        (self.host, self.relay) = (None, Some(relay));
        self
    }

    /// Only on events of this kind, in place of those that the fault strikes by itself.
    pub fn event(mut self, kind: EventKind) -> Self {
        self.event = Some(kind);
        self
    }

    /// Only on requests about this account.
    pub fn did(mut self, did: &Did) -> Self {
        self.did = Some(did.clone());
        self
    }

    /// Not on the first `requests` requests that match.
    pub fn after(mut self, requests: u64) -> Self {
        self.skip = requests;
        self
    }

    /// At most this many times.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Only on each `nth` request that matches, from the first (0 counts as 1).
    pub fn every(mut self, nth: u64) -> Self {
        self.every = nth.max(1);
        self
    }

    fn matches(&self, request: &Request) -> bool {
        self.fault.stage() == Stage::Request
            && self.endpoint.is_none_or(|endpoint| endpoint == request.endpoint)
            && self.host.is_none_or(|host| Some(host) == request.host)
            && self.relay.is_none_or(|relay| Some(relay) == request.relay)
            && self.did.as_ref().is_none_or(|did| Some(did) == request.did.as_ref())
    }

    fn matches_event(&self, stage: Stage, place: Place, event: &Event) -> bool {
        self.fault.stage() == stage
            && self.host.is_none_or(|host| place == Place::Host(host))
            && self.relay.is_none_or(|relay| place == Place::Relay(relay))
            && self.event.is_none_or(|kind| kind == event.kind())
            && self.did.as_ref().is_none_or(|did| *did == event.did)
    }
}

/// Names a rule of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(usize);

/// The rules of a network. The first whose turn it is strikes a request; those behind it do not see that request, those before it do.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<Active>>,
    fired: AtomicU64,
}

#[derive(Debug)]
struct Active {
    rule: Rule,
    seen: u64,
    fired: u64,
    healed: bool,
}

impl Faults {
    /// Adds a rule, behind those there are.
    pub fn inject(&self, rule: Rule) -> RuleId {
        let mut rules = lock(&self.rules);
        rules.push(Active { rule, seen: 0, fired: 0, healed: false });
        RuleId(rules.len() - 1)
    }

    /// Ends a rule. Its count stays.
    pub fn heal(&self, id: RuleId) {
        if let Some(active) = lock(&self.rules).get_mut(id.0) {
            active.healed = true;
        }
    }

    /// How often a rule struck.
    pub fn fired(&self, id: RuleId) -> u64 {
        lock(&self.rules).get(id.0).map_or(0, |active| active.fired)
    }

    /// How often any rule struck.
    pub fn total(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// The faults that never struck: a test that injected them has proved nothing about them.
    pub fn unfired(&self) -> Vec<Fault> {
        lock(&self.rules).iter().filter(|active| active.fired == 0).map(|active| active.rule.fault.clone()).collect()
    }

    /// The fault that strikes a request, if any; counts it.
    pub(in crate::sim) fn pick(&self, request: &Request) -> Option<Fault> {
        self.pick_where(|rule| rule.matches(request))
    }

    /// The fault that strikes an event when an upstream sequences it, if any; counts it.
    pub(in crate::sim) fn pick_sequencing(&self, place: Place, event: &Event) -> Option<EventFault> {
        match self.pick_where(|rule| rule.matches_event(Stage::Sequencing, place, event)) {
            Some(Fault::Event(fault)) => Some(fault),
            _ => None,
        }
    }

    /// The fault that strikes an event when a connection is sent it, if any; counts it.
    pub(in crate::sim) fn pick_sending(&self, place: Place, event: &Event) -> Option<StreamFault> {
        match self.pick_where(|rule| rule.matches_event(Stage::Sending, place, event)) {
            Some(Fault::Stream(fault)) => Some(fault),
            _ => None,
        }
    }

    fn pick_where(&self, matches: impl Fn(&Rule) -> bool) -> Option<Fault> {
        for active in lock(&self.rules).iter_mut().filter(|active| !active.healed && matches(&active.rule)) {
            active.seen += 1;
            let turn = active.seen.checked_sub(active.rule.skip + 1);
            if active.fired < active.rule.times && turn.is_some_and(|turn| turn % active.rule.every == 0) {
                active.fired += 1;
                self.fired.fetch_add(1, Ordering::Relaxed);
                return Some(active.rule.fault.clone());
            }
        }
        None
    }
}
