//! What a relay answers over HTTP: it keeps no repos and sends those who ask to the account's host.
use serde_json::json;

use super::answer::Answer;
use super::request::{Endpoint, Request};
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
        Endpoint::GetLatestCommit
        | Endpoint::GetRepoStatus
        | Endpoint::ListRepos
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
