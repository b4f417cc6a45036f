use std::fmt;

use futures::future::BoxFuture;

use super::{FetchError, Host, Permit, RepoBody};
use crate::repo::Link;
use crate::syntax::{Did, Rev};

/// Where repos come from.
///
/// `pds` is always the host that holds the repos; the permit is one of the host that [`RepoSource::host_for`] names for it.
pub trait RepoSource: fmt::Debug + Send + Sync + 'static {
    /// The host that is really asked for a repo that `pds` holds. Pace and queues go by it.
    fn host_for(&self, pds: &Host) -> Host {
        pds.clone()
    }

    /// Asks for a repo. `since` asks for the blocks after that rev only, which the host may ignore.
    fn get_repo<'a>(
        &'a self,
        did: &'a Did,
        pds: &'a Host,
        since: Option<Rev>,
        permit: Permit,
    ) -> BoxFuture<'a, Result<RepoBody, FetchError>>;

    /// Asks where a repo stands (`com.atproto.sync.getLatestCommit`).
    fn latest_commit<'a>(&'a self, did: &'a Did, pds: &'a Host, permit: Permit) -> BoxFuture<'a, Result<Latest, FetchError>>;

    /// Asks for a page of the repos of a host (`com.atproto.sync.listRepos`): at most `limit`, from 1 to 1,000, after `cursor`, or the first.
    fn list_repos<'a>(
        &'a self,
        pds: &'a Host,
        cursor: Option<&'a str>,
        limit: u16,
        permit: Permit,
    ) -> BoxFuture<'a, Result<RepoPage, FetchError>>;
}

/// Where a repo stands, as a host says. Nothing about it is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latest {
    /// The rev of the last commit.
    pub rev: Rev,
    /// The last commit.
    pub cid: Link,
}

/// A page of the repos of a host, as the host says. Nothing about it is verified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepoPage {
    /// The repos, inactive ones included, in the host's order. A page may hold none and yet not be the last.
    pub repos: Vec<ListedRepo>,
    /// Rows that were dropped because they break a rule.
    pub bad: u64,
    /// The cursor of the next page; none when this is the last: the host named none, or no other, or the page had no rows.
    pub next: Option<String>,
}

/// One repo of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRepo {
    /// The repo.
    pub did: Did,
    /// Where it stands. Hosts may say nothing, of inactive accounts above all.
    pub rev: Option<Rev>,
    /// Whether the account is active.
    pub active: bool,
    /// Why not, in the host's words, at most 64 characters; an open list.
    pub status: Option<String>,
}
