//! Hosts of many jobs are asked for the list of their repos: one request for up to a thousand, in place of one for each job.
//!
//! How many repos a host has is not known before. So a listing may cost a quarter of the requests that it can save, and no more: at worst, an audit asks a host a
//! quarter more often than job by job; at best, a thousandth as often. What a listing leaves open, by its end or by its silence, is asked job by job.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};

use super::verdict::{Said, is_asked_about};
use super::walk::{Audit, HOSTS_AT_ONCE, HostJobs, Round};
use crate::fetch::ListedRepo;
use crate::job::JobId;
use crate::store::StoreError;

/// Hosts with fewer jobs are not listed.
const LIST_FROM: u64 = 16;

/// How many pages of a host with so many jobs are asked for at most.
fn budget(jobs: u64) -> u64 {
    if jobs < LIST_FROM { 0 } else { jobs / 4 }
}

impl Audit {
    /// Lists the hosts of a round that are worth it. Returns the jobs that are done with.
    pub(super) async fn list(&self, round: &Round) -> Result<HashSet<JobId>, StoreError> {
        let worth = round.hosts.iter().filter(|(_, host)| budget(host.jobs) > 0);
        let listings: Vec<_> = worth.map(|(name, host)| self.list_host(name, host, round.last)).collect();
        let done = stream::iter(listings).buffer_unordered(HOSTS_AT_ONCE);
        done.try_fold(HashSet::new(), async |mut all, of_host| {
            all.extend(of_host);
            Ok(all)
        })
        .await
    }

    async fn list_host(&self, name: &str, host: &HostJobs, last: JobId) -> Result<HashSet<JobId>, StoreError> {
        let mut done = HashSet::new();
        let Some(_entered) = self.core.shares.enter(Some(name)) else { return Ok(done) };
        let Some(mut line) = self.hosts.line(&self.core, name, &host.some).await else { return Ok(done) };
        let (mut cursor, mut pages, mut bad) = (None, 0, 0);
        while let Some(page) = line.page(cursor.as_deref()).await {
            pages += 1;
            bad += page.bad;
            for repo in &page.repos {
                done.extend(self.listed(name, repo, last).await?);
            }
            cursor = page.next;
            if cursor.is_none() || pages >= budget(host.jobs) || done.len() as u64 >= host.jobs {
                break;
            }
        }
        self.hosts.leave(&line);
        tracing::info!(host = name, pages, jobs = host.jobs, done = done.len(), bad, "audit: host listed");
        Ok(done)
    }

    /// Judges the job of a listed repo, if there is one to judge in this round, and the host may speak of it.
    async fn listed(&self, name: &str, repo: &ListedRepo, last: JobId) -> Result<Option<JobId>, StoreError> {
        let said = match (repo.active, repo.rev) {
            (true, Some(rev)) => Said::At(rev),
            (true, None) => return Ok(None),
            (false, _) => Said::Inactive(repo.status.as_deref().and_then(|status| status.parse().ok())),
        };
        let Some(job) = self.core.store.job(self.core.consumer, &repo.did).await? else { return Ok(None) };
        let in_round = Some(job.id) > self.after && job.id <= last;
        if !in_round || job.host.as_deref() != Some(name) || !is_asked_about(&job.state) {
            return Ok(None);
        }
        self.judge(&job, said).await?;
        Ok(Some(job.id))
    }
}
