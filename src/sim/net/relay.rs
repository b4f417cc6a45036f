//! What a relay answers over HTTP: it keeps no repos and sends those who ask to the account's host.
use std::sync::Arc;

use serde_json::json;

use super::answer::Answer;
use super::request::{Endpoint, Request};
use crate::sim::account::Account;
use crate::sim::{AccountStatus, World};

pub(super) fn answer(world: &World, request: &Request, host_urls: &[String]) -> Answer {
    match request.endpoint {
        Endpoint::GetRepo => {
            let host = request.did.as_ref().and_then(|did| world.host_of(did)).and_then(|host| host_urls.get(host));
            match host {
                Some(url) => Answer::redirect(&format!("{url}{}", request.path_and_query)),
                None => Answer::error(404, "RepoNotFound", "repo not found"),
            }
        }
        Endpoint::ListHosts => list_hosts(world, host_urls),
        Endpoint::ListRepos => list_repos(world, request),
        Endpoint::GetLatestCommit
        | Endpoint::GetRepoStatus
        | Endpoint::SubscribeRepos
        | Endpoint::ListRecords
        | Endpoint::DidDocument
        | Endpoint::Other => Answer::error(501, "MethodNotImplemented", "Method Not Implemented"),
    }
}

/// All hosts in one page.
fn list_hosts(world: &World, host_urls: &[String]) -> Answer {
    let mut accounts = vec![0u64; host_urls.len()];
    for account in world.accounts() {
        let standing = account.standing();
        if standing.status != AccountStatus::Deleted
            && let Some(count) = accounts.get_mut(standing.host)
        {
            *count += 1;
        }
    }
    let describe =
        |(url, count): (&String, u64)| json!({"hostname": url.trim_start_matches("http://"), "accountCount": count, "status": "active"});
    let hosts: Vec<_> = host_urls.iter().zip(accounts).map(describe).collect();
    Answer::json(&json!({"hosts": hosts}))
}

/// A page of the accounts that are active. The cursor is the number of the last one, and comes with every page that may not be the last.
fn list_repos(world: &World, request: &Request) -> Answer {
    let limit = request.parameter("limit").map_or(Ok(500), str::parse::<usize>);
    let after = request.parameter("cursor").map_or(Ok(0), str::parse::<u64>);
    let (Ok(limit @ 1..=1000), Ok(after)) = (limit, after) else {
        return Answer::error(400, "InvalidRequest", "a limit from 1 to 1000 and a cursor that is a number");
    };
    let rest = world.accounts().into_iter().skip(usize::try_from(after).unwrap_or(usize::MAX));
    let page: Vec<_> = rest.filter(|account| account.is_active()).take(limit).collect();
    let describe = |account: &Arc<Account>| {
        let repo = account.repo();
        json!({"did": account.did, "head": repo.commit.to_string(), "rev": repo.rev, "active": true})
    };
    let mut answer = json!({"repos": page.iter().map(describe).collect::<Vec<_>>()});
    if let Some(last) = page.last().filter(|_| page.len() == limit) {
        answer["cursor"] = (last.index + 1).to_string().into();
    }
    Answer::json(&answer)
}
