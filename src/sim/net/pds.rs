//! What a PDS answers.
use std::sync::Arc;

use serde_json::{Value, json};

use super::answer::Answer;
use super::body::Step;
use super::options::{HostOptions, Order};
use super::records;
use super::request::{Endpoint, Request};
use super::source::Source;
use crate::sim::account::Account;
use crate::sim::{AccountStatus, World};
use crate::syntax::Rev;

/// A PDS by its number.
pub(super) struct Pds<'a> {
    pub(super) world: &'a World,
    pub(super) index: usize,
    pub(super) options: &'a HostOptions,
}

impl Pds<'_> {
    /// Answers a request; `source` is what an export is made from.
    pub(super) fn answer(&self, request: &Request, source: &Source) -> Answer {
        match request.endpoint {
            Endpoint::GetRepo => self.with_account(request, source, |account| self.export(request, account, source)),
            Endpoint::GetLatestCommit => self.with_account(request, source, |account| {
                let repo = account.repo();
                Answer::json(&json!({"cid": repo.commit.to_string(), "rev": repo.rev}))
            }),
            Endpoint::GetRepoStatus => self.status(request, source),
            Endpoint::ListRepos => self.list(request),
            Endpoint::ListRecords => self.with_account(request, source, |account| records::list(request, account)),
            Endpoint::ListHosts | Endpoint::SubscribeRepos | Endpoint::DidDocument | Endpoint::Other => {
                Answer::error(501, "MethodNotImplemented", "Method Not Implemented")
            }
        }
    }

    /// What this host says of an account.
    fn standing(&self, account: &Account) -> AccountStatus {
        let standing = account.standing();
        match standing.host == self.index {
            true => standing.status,
            false if standing.former_hosts.contains(&self.index) => AccountStatus::Deactivated,
            false => AccountStatus::NotFound,
        }
    }

    fn refuse(&self, status: AccountStatus) -> Answer {
        let (code, name) = self.options.flavour.refusal(status);
        Answer::error(code, name, "the repo is not available")
    }

    fn with_account(&self, request: &Request, source: &Source, then: impl FnOnce(&Arc<Account>) -> Answer) -> Answer {
        let Some(did) = &request.did else { return Answer::error(400, "InvalidRequest", "did must be a valid did") };
        let Some(account) = self.world.account(did) else { return self.refuse(AccountStatus::NotFound) };
        match source.status().unwrap_or_else(|| self.standing(&account)) {
            AccountStatus::Active => then(&account),
            status => self.refuse(status),
        }
    }

    fn export(&self, request: &Request, account: &Arc<Account>, source: &Source) -> Answer {
        let since = request.parameter("since").and_then(|since| Rev::new(since).ok());
        let export = {
            let mut repo = account.repo();
            match (since, self.options.order) {
                (Some(since), _) => repo.export_since(since),
                (None, Order::Reference) => repo.export(),
                (None, Order::Streamable) => repo.streamable(),
            }
        };
        let export = source.alter(self.world, account, export);
        if self.options.atomic && !source.is_torn() {
            return Answer::car(export.pieces.iter().cloned().map(Step::Send).collect());
        }
        let pages = export.pages(500).into_iter().map(|page| Step::SendLive(page, Arc::clone(account)));
        Answer::car(std::iter::once(Step::Send(export.pieces[0].clone())).chain(pages).collect())
    }

    fn status(&self, request: &Request, source: &Source) -> Answer {
        let Some(account) = request.did.as_ref().and_then(|did| self.world.account(did)) else {
            return self.refuse(AccountStatus::NotFound);
        };
        match source.status().unwrap_or_else(|| self.standing(&account)) {
            AccountStatus::Active => Answer::json(&json!({"did": account.did, "active": true, "rev": account.repo().rev})),
            AccountStatus::NotFound => self.refuse(AccountStatus::NotFound),
            status => Answer::json(&json!({"did": account.did, "active": false, "status": status.word()})),
        }
    }

    /// A page of the accounts here. The cursor is `<milliseconds>::<did>` and comes with every page that is not empty.
    fn list(&self, request: &Request) -> Answer {
        let limit = request.parameter("limit").map_or(Ok(500), str::parse::<usize>);
        let Ok(limit @ 1..=1000) = limit else { return Answer::error(400, "InvalidRequest", "limit must be from 1 to 1000") };
        let after = request.parameter("cursor").map(|cursor| cursor.split_once("::").and_then(|(at, _)| at.parse::<u64>().ok()));
        let Some(after) = after.map_or(Some(None), |after| after.map(Some)) else {
            return Answer::error(400, "InvalidRequest", "malformed cursor");
        };
        let from = after.map_or(0, |after| after.saturating_add(1).saturating_sub(CREATED));
        let mut cursor = None;
        let mut repos = Vec::new();
        for account in self.world.accounts().into_iter().skip(from as usize) {
            let status = self.standing(&account);
            if matches!(status, AccountStatus::Deleted | AccountStatus::NotFound) {
                continue;
            }
            repos.push(entry(&account, status));
            cursor = Some(format!("{}::{}", CREATED + account.index, account.did));
            if repos.len() == limit {
                break;
            }
        }
        let mut page = json!({"repos": repos});
        if let Some(cursor) = cursor {
            page["cursor"] = cursor.into();
        }
        Answer::json(&page)
    }
}

/// When the first account was created, in milliseconds since the Unix epoch; each came a millisecond after the one before.
const CREATED: u64 = 1_680_000_000_000;

fn entry(account: &Account, status: AccountStatus) -> Value {
    let repo = account.repo();
    let mut entry =
        json!({"did": account.did, "head": repo.commit.to_string(), "rev": repo.rev, "active": status == AccountStatus::Active});
    if let Some(word) = status.word() {
        entry["status"] = word.into();
    }
    entry
}
