use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Fault;
use crate::sim::lock;
use crate::sim::net::{Endpoint, Request};
use crate::syntax::Did;

/// Where and when a fault strikes. A rule without conditions strikes every request to the fault's own endpoint.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    endpoint: Option<Endpoint>,
    host: Option<usize>,
    did: Option<Did>,
    skip: u64,
    times: u64,
    every: u64,
}

impl Rule {
    /// The fault, on every request to its endpoint ([`Fault::endpoint`]).
    pub fn new(fault: Fault) -> Self {
        let endpoint = Some(fault.endpoint());
        Self { fault, endpoint, host: None, did: None, skip: 0, times: u64::MAX, every: 1 }
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
        self.host = Some(host);
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
        self.endpoint.is_none_or(|endpoint| endpoint == request.endpoint)
            && self.host.is_none_or(|host| Some(host) == request.host)
            && self.did.as_ref().is_none_or(|did| Some(did) == request.did.as_ref())
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
        for active in lock(&self.rules).iter_mut().filter(|active| !active.healed && active.rule.matches(request)) {
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
