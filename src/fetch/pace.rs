use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use reqwest::header::HeaderMap;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use super::budget::{Budget, Outcome};
use super::limits::Limits;
use super::meter::Meter;
use super::{PaceOptions, Rate};

/// The rate budget of every host, and of all together.
///
/// A request is admitted by its host's budget first and by the global one then; a host that is paused spends nothing of the global one, so
/// it starves nobody. What hosts answer is learnt from through the [`Permit`]: 429 and 503 pause that host and halve its rate, which
/// recovers slowly; a host that cannot be reached is probed, one request at a time, ever more rarely. Cloning gives another handle to the same budgets.
#[derive(Clone)]
pub struct Pace {
    shared: Arc<Shared>,
}

struct Shared {
    options: PaceOptions,
    budgets: Mutex<Budgets>,
    freed: Notify,
}

struct Budgets {
    hosts: HashMap<Arc<str>, Budget>,
    global: Meter,
    refused: u64,
    random: RandomState,
    draws: u64,
}

/// Why a request has to wait, and how long at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Why.
    pub reason: WaitReason,
    /// Not before this moment; asking again then may bring another wait. `None`: until a permit of this host is dropped ([`Pace::freed`]).
    pub until: Option<Instant>,
}

impl Wait {
    /// Waits for the moment, or for `freed`.
    async fn over(self, freed: impl Future<Output = ()>) {
        match self.until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => freed.await,
        }
    }
}

/// Why a request has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// The host's requests per second are spent.
    Rate,
    /// The host's requests in flight are spent.
    InFlight,
    /// The requests per second of all hosts together are spent.
    Global,
    /// The host refused a request for load.
    Refused,
    /// The host said that nothing is left of its limit.
    Exhausted,
    /// The host cannot be reached, or only fails; the next request is a probe.
    Unreachable,
}

/// What is known of one host, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct HostPace {
    /// The host's name.
    pub host: Arc<str>,
    /// Requests per second that it is asked at most now.
    pub rate: Rate,
    /// Requests in flight.
    pub in_flight: u32,
    /// Why it is left alone, and for how long still.
    pub pause: Option<(WaitReason, Duration)>,
    /// Whether it did not answer when last asked.
    pub unreachable: bool,
    /// How often it has refused for load since it is remembered.
    pub refused: u64,
}

impl Pace {
    /// Budgets of which nothing is spent.
    pub fn new(options: PaceOptions) -> Self {
        let budgets = Budgets {
            hosts: HashMap::new(),
            global: Meter::new(options.global_rate, Instant::now()),
            refused: 0,
            random: RandomState::new(),
            draws: 0,
        };
        Self { shared: Arc::new(Shared { options, budgets: Mutex::new(budgets), freed: Notify::new() }) }
    }

    /// Lets a request to a host through, named as [`Host::name`](super::Host::name) does, or says what it has to wait for. Does not wait itself.
    ///
    /// # Errors
    /// The [`Wait`], when the request may not be made now; nothing is spent then.
    pub fn try_admit(&self, host: &str) -> Result<Permit, Wait> {
        let now = Instant::now();
        let options = &self.shared.options;
        let mut budgets = self.shared.lock();
        let Budgets { hosts, global, .. } = &mut *budgets;
        let host = match hosts.get_key_value(host) {
            Some((host, _)) => host.clone(),
            None => {
                make_room(hosts, now, options);
                host.into()
            }
        };
        let budget = hosts.entry(Arc::clone(&host)).or_insert_with(|| Budget::new(options.host_rate, now));
        let taken = budget.admit(now, options)?;
        if let Err(until) = global.take(now) {
            budget.give_back(taken);
            return Err(Wait { reason: WaitReason::Global, until: Some(until) });
        }
        Ok(Permit { shared: self.shared.clone(), host, admitted: now })
    }

    /// Lets a request through as soon as it may be made. Cancel safe.
    pub async fn admit(&self, host: &str) -> Permit {
        loop {
            // Made before looking, so that a permit dropped in between is not missed.
            let freed = self.freed();
            match self.try_admit(host) {
                Ok(permit) => return permit,
                Err(wait) => wait.over(freed).await,
            }
        }
    }

    /// As [`Pace::admit`], but gives up at once when the request certainly may not be made before `deadline`, and at `deadline` otherwise.
    ///
    /// # Errors
    /// The [`Wait`] that goes beyond the deadline.
    pub async fn admit_before(&self, host: &str, deadline: Instant) -> Result<Permit, Wait> {
        loop {
            let freed = self.freed();
            let wait = match self.try_admit(host) {
                Ok(permit) => return Ok(permit),
                Err(wait) => wait,
            };
            if wait.until.is_some_and(|until| until > deadline) {
                return Err(wait);
            }
            tokio::time::timeout_at(deadline, wait.over(freed)).await.map_err(|_| wait)?;
        }
    }

    /// Waits until a permit of any host is dropped. Only drops after the call are seen: look with [`Pace::try_admit`] after making the
    /// future and before awaiting it.
    pub fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.shared.freed.notified()
    }

    /// What is known of every remembered host, ordered by name.
    pub fn hosts(&self) -> Vec<HostPace> {
        let now = Instant::now();
        let mut budgets = self.shared.lock();
        let mut hosts: Vec<HostPace> = budgets
            .hosts
            .iter_mut()
            .map(|(host, budget)| HostPace {
                host: host.clone(),
                rate: budget.rate(now),
                in_flight: budget.in_flight(),
                pause: budget.pause(now),
                unreachable: budget.is_ailing(),
                refused: budget.refused(),
            })
            .collect();
        hosts.sort_unstable_by(|a, b| a.host.cmp(&b.host));
        hosts
    }

    /// How many requests have been refused for load, by all hosts ever.
    pub fn refused(&self) -> u64 {
        self.shared.lock().refused
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

/// Forgets a sixteenth of the hosts when the bound is reached: first those of which nothing was learnt, longest unused first.
fn make_room(hosts: &mut HashMap<Arc<str>, Budget>, now: Instant, options: &PaceOptions) {
    let bound = options.remembered_hosts.get();
    if hosts.len() < bound {
        return;
    }
    let mut idle: Vec<_> = hosts
        .iter()
        .filter(|(_, budget)| budget.in_flight() == 0)
        .map(|(host, budget)| (budget.worth(now, options), host.clone()))
        .collect();
    idle.sort_unstable();
    for (_, host) in idle.iter().take(hosts.len() - bound + 1 + bound / 16) {
        hosts.remove(host);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Budgets> {
        // The budgets are numbers that are whole after every step, so a panic elsewhere does not spoil them.
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to make one request to one host. Dropping it frees the place in flight, so it is held until the body has been read.
pub struct Permit {
    shared: Arc<Shared>,
    host: Arc<str>,
    admitted: Instant,
}

impl Permit {
    /// The host that may be asked.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host answered. Learns from the status and the headers; for a refusal (429 or 503), answers how long the host is left alone now.
    pub fn answered(&self, status: u16, headers: &HeaderMap) -> Option<Duration> {
        let limits = Limits::of(headers, SystemTime::now());
        match status {
            429 | 503 => Some(self.learn(&Outcome::Refused { status, limits: &limits })),
            500.. => {
                self.learn(&Outcome::Troubled);
                None
            }
            _ => {
                self.learn(&Outcome::Fine(&limits));
                None
            }
        }
    }

    /// The host refused for load, in other words than a status of 429 or 503. Answers how long it is left alone now.
    pub fn refused(&self, headers: &HeaderMap) -> Duration {
        self.learn(&Outcome::Refused { status: 429, limits: &Limits::of(headers, SystemTime::now()) })
    }

    /// There was no connection to the host.
    pub fn unreachable(&self) {
        self.learn(&Outcome::Unreachable);
    }

    /// The host was connected to but was too slow, or broke off.
    pub fn troubled(&self) {
        self.learn(&Outcome::Troubled);
    }

    fn learn(&self, outcome: &Outcome<'_>) -> Duration {
        let now = Instant::now();
        let mut budgets = self.shared.lock();
        budgets.draws = budgets.draws.wrapping_add(1);
        let draw = budgets.random.hash_one(budgets.draws);
        let stretch = 1.0 + (draw % 1024) as f64 / 4096.0;
        if matches!(outcome, Outcome::Refused { .. }) {
            budgets.refused += 1;
        }
        let Some(budget) = budgets.hosts.get_mut(&self.host) else { return Duration::ZERO };
        budget.learn(outcome, self.admitted, now, stretch, &self.shared.options);
        let pause = budget.pause(now);
        if let (Some((reason, length)), Outcome::Refused { .. } | Outcome::Unreachable) = (pause, outcome) {
            tracing::info!(host = %self.host, ?reason, pause_s = length.as_secs(), "host is left alone");
        }
        pause.map_or(Duration::ZERO, |(_, length)| length)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(budget) = self.shared.lock().hosts.get_mut(&self.host) {
            budget.release();
        }
        self.shared.freed.notify_waiters();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("host", &self.host).field("admitted", &self.admitted).finish_non_exhaustive()
    }
}
