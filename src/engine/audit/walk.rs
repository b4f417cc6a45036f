//! The walk over all jobs, in rounds: count the jobs of each host, list the hosts of many, ask about the rest page by page.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};

use super::super::core::Core;
use super::super::progress::add;
use super::hosts::Hosts;
use super::scope::Scope;
use super::verdict::{Said, Verdict, is_asked_about, verdict};
use crate::fetch::Disposition;
use crate::job::{Epoch, Job, JobId, JobState};
use crate::store::{AuditId, AuditState, StoreError};
use crate::syntax::Did;

/// Jobs of one round: of those that listings are done with, some 20 bytes each are in memory.
const ROUND: u64 = 1 << 20;
/// Jobs that are read at once, and between two checkpoints.
const PAGE: usize = 1000;
/// Hosts that are asked at once.
pub(super) const HOSTS_AT_ONCE: usize = 64;
/// Repos by which a host is found.
const SOME: usize = 6;

/// One audit under way.
pub(super) struct Audit {
    pub(super) core: Arc<Core>,
    id: AuditId,
    scope: Scope,
    pub(super) hosts: Hosts,
    /// The last job that was read, and how many were up to it.
    pub(super) after: Option<JobId>,
    passed: u64,
    /// Jobs in the middle of a checkout, to be looked at when it is over.
    under_way: BTreeMap<JobId, (Did, Epoch)>,
    /// `after` and `passed` before the first job that is under way: a restart has to go on there.
    held_at: Option<(Option<JobId>, u64)>,
}

/// A part of the walk.
#[derive(Debug)]
pub(super) struct Round {
    /// The last job.
    pub(super) last: JobId,
    pub(super) hosts: BTreeMap<String, HostJobs>,
}

/// The jobs of one host that are asked about in a round.
#[derive(Debug, Default)]
pub(super) struct HostJobs {
    pub(super) jobs: u64,
    /// A few of their repos.
    pub(super) some: Vec<Did>,
}

impl Audit {
    pub(super) fn new(core: Arc<Core>, state: &AuditState, scope: Scope) -> Self {
        let AuditState { id, after, passed, .. } = *state;
        Self { core, id, scope, hosts: Hosts::default(), after, passed, under_way: BTreeMap::new(), held_at: None }
    }

    /// Walks from where the audit is to the last job. `false`: another audit has begun.
    pub(super) async fn walk(&mut self) -> Result<bool, StoreError> {
        while let Some(round) = self.survey().await? {
            let listed = self.list(&round).await?;
            loop {
                let jobs = self.core.store.jobs(self.core.consumer, self.after, PAGE).await?;
                let page: Vec<Job> = jobs.into_iter().take_while(|job| job.id <= round.last).collect();
                if page.is_empty() {
                    break;
                }
                self.pass(page, &listed).await?;
                self.revisit().await?;
                if !self.checkpoint().await? {
                    return Ok(false);
                }
            }
            self.wait_for_checkouts().await?;
            if !self.checkpoint().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the jobs of each host in the next round. None when no job is left.
    async fn survey(&self) -> Result<Option<Round>, StoreError> {
        let (mut last, mut read) = (self.after, 0);
        let mut hosts: BTreeMap<String, HostJobs> = BTreeMap::new();
        while read < ROUND {
            let jobs = self.core.store.jobs(self.core.consumer, last, PAGE).await?;
            let Some(job) = jobs.last() else { break };
            last = Some(job.id);
            read += jobs.len() as u64;
            for job in jobs.into_iter().filter(|job| is_asked_about(&job.state) && self.scope.holds(job.host.as_deref())) {
                let Some(host) = job.host else { continue };
                let host = hosts.entry(host).or_default();
                host.jobs += 1;
                if host.some.len() < SOME {
                    host.some.push(job.did);
                }
            }
        }
        Ok(last.filter(|_| read > 0).map(|last| Round { last, hosts }))
    }

    /// Asks about the jobs of a page that listings have left open.
    async fn pass(&mut self, page: Vec<Job>, listed: &HashSet<JobId>) -> Result<(), StoreError> {
        let before = (self.after, self.passed);
        self.after = page.last().map(|job| job.id).or(self.after);
        self.passed += page.len() as u64;
        let jobs = page.into_iter().filter(|job| !listed.contains(&job.id)).collect();
        self.ask(jobs).await?;
        if !self.under_way.is_empty() {
            self.held_at.get_or_insert(before);
        }
        Ok(())
    }

    /// Asks about jobs, several hosts at once.
    async fn ask(&mut self, jobs: Vec<Job>) -> Result<(), StoreError> {
        let mut by_host: HashMap<String, Vec<Did>> = HashMap::new();
        for job in jobs.into_iter().filter(|job| self.scope.holds(job.host.as_deref())) {
            match (&job.state, &job.host) {
                (JobState::InProgress, _) => _ = self.under_way.insert(job.id, (job.did, job.epoch)),
                (state, _) if !is_asked_about(state) => {}
                (_, Some(host)) => by_host.entry(host.clone()).or_default().push(job.did),
                // Its account was not found then; a checkout looks it up again.
                (_, None) => self.judge(&job, Said::Nothing).await?,
            }
        }
        let asking: Vec<_> = by_host.iter().map(|(name, repos)| self.ask_host(name, repos)).collect();
        stream::iter(asking).buffer_unordered(HOSTS_AT_ONCE).try_collect().await
    }

    async fn ask_host(&self, name: &str, repos: &[Did]) -> Result<(), StoreError> {
        // Otherwise it is about to be another process's, which will ask it.
        let Some(_entered) = self.core.shares.enter(Some(name)) else { return Ok(()) };
        let mut line = self.hosts.line(&self.core, name, repos).await;
        for did in repos {
            let said = match &mut line {
                Some(line) => line.latest(did).await,
                None => Said::Nothing,
            };
            if let Some(job) = self.core.store.job(self.core.consumer, did).await? {
                self.judge(&job, said).await?;
            }
        }
        line.iter().for_each(|line| self.hosts.leave(line));
        Ok(())
    }

    /// Does with a job what its host's word asks for.
    pub(super) async fn judge(&self, job: &Job, said: Said) -> Result<(), StoreError> {
        let counters = &self.core.counters;
        add(&counters.audited, 1);
        let verdict = match (verdict(job, said), said) {
            // A host that the account has left says the same of it.
            (Verdict::Fine, Said::Inactive(_)) if matches!(job.state, JobState::Unavailable { .. }) => self.at_home(job).await,
            (verdict, _) => verdict,
        };
        match verdict {
            Verdict::Fine => return Ok(()),
            Verdict::Moved => add(&counters.audit_moved, 1),
            Verdict::Unsure => add(&counters.audit_failed, 1),
        }
        tracing::debug!(did = %job.did, ?said, "audit: checked out again");
        self.core.store.want(self.core.consumer, &job.did).await?;
        self.core.dispatch.notify_one();
        Ok(())
    }

    /// Judges an unavailable account of which its host says what is known: whether it is still that host's.
    async fn at_home(&self, job: &Job) -> Verdict {
        let fetcher = &self.core.fetcher;
        match fetcher.identity_anew(&job.did).await {
            Ok(identity) if job.host.as_deref() == Some(&*fetcher.host(&identity)) => Verdict::Fine,
            Ok(_) => Verdict::Moved,
            Err(failure) => match failure.disposition() {
                Disposition::Unavailable(_) => Verdict::Fine,
                Disposition::Failed(_) | Disposition::Refused(_) => Verdict::Unsure,
            },
        }
    }

    /// Looks at the jobs again that were in the middle of a checkout.
    async fn revisit(&mut self) -> Result<(), StoreError> {
        let mut same_claim = Vec::new();
        for (id, (did, epoch)) in std::mem::take(&mut self.under_way) {
            let job = self.core.store.job(self.core.consumer, &did).await?;
            // A later claim is newer than the audit. One that found the account gone ended with its epoch, and may have asked before the gap.
            let is_its_end = |job: &Job| matches!(job.state, JobState::Unavailable { .. }) && job.epoch == Epoch(epoch.0 + 1);
            same_claim.extend(job.filter(|job| job.id == id && (job.epoch == epoch || is_its_end(job))));
        }
        self.ask(same_claim).await?;
        if self.under_way.is_empty() {
            self.held_at = None;
        }
        Ok(())
    }

    async fn wait_for_checkouts(&mut self) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        while !self.under_way.is_empty() {
            let settled = core.settled.notified();
            self.revisit().await?;
            if !self.under_way.is_empty() {
                // Not every end of a claim is announced.
                let _ = tokio::time::timeout(Duration::from_secs(1), settled).await;
            }
        }
        Ok(())
    }

    /// Records that the walk has ended; `true` if the audit has, too.
    pub(super) async fn end(&self) -> Result<bool, StoreError> {
        let (store, consumer) = (&self.core.store, self.core.consumer);
        match store.fleet() {
            Some(fleet) => fleet.audited(consumer, self.id, &self.scope.kept(&self.core)).await,
            None => store.audit_end(consumer, self.id).await,
        }
    }

    /// Records how far it is, where all jobs are looked at. `false`: another audit has begun.
    async fn checkpoint(&self) -> Result<bool, StoreError> {
        let store = &self.core.store;
        if !self.scope.is_all() {
            return Ok(store.audit(self.core.consumer).await?.is_some_and(|state| state.id == self.id));
        }
        match self.held_at.unwrap_or((self.after, self.passed)) {
            (Some(after), passed) => store.audit_checkpoint(self.core.consumer, self.id, after, passed).await,
            (None, _) => Ok(store.audit(self.core.consumer).await?.is_some_and(|state| state.id == self.id)),
        }
    }
}
