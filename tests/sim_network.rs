//! The servers of the simulator as clients see them.
#![cfg(feature = "sim")]

mod sim_support;

use std::collections::BTreeMap;
use std::time::Duration;

use atproto_backfill::identity::{HttpResolver, Resolver, ResolverOptions};
use atproto_backfill::sim::{
    AccountStatus, Endpoint, Fault, Flavour, HostOptions, Network, NetworkOptions, Order, Position, RandomWrites, RateLimit, Rule, Sizes,
    World, Writer, WriterOptions,
};
use serde_json::Value;
use sim_support::{GET_REPO, builder, client, fetch, get_json, json, network, truth, url, world};

fn resolver(network: &Network) -> HttpResolver {
    let plc_url = network.plc_url().parse().expect("an origin is a URL");
    HttpResolver::new(ResolverOptions { plc_url, development: true, ..Default::default() }).expect("a resolver")
}

#[tokio::test]
async fn every_account_resolves_and_its_export_is_the_truth() {
    let world = World::builder().seed(21).hosts(3).repos(9).web_repos(2).sizes(Sizes::Total(1_500)).build().expect("ports are to be had");
    let network = network(&world).await;
    let (resolver, zipped) = (resolver(&network), builder().build().expect("a client"));
    for (number, did) in world.dids().iter().enumerate() {
        let identity = resolver.resolve(did).await.expect("it resolves");
        assert_eq!((&identity.did, Some(&identity.key)), (did, world.key(did).as_ref()));
        assert_eq!(identity.pds.origin(), network.host_urls()[world.host_of(did).expect("exists")]);
        let client = if number % 2 == 0 { &zipped } else { &client() };
        assert_eq!(fetch(&network, did, client).await.expect("a sound CAR"), truth(&world, did), "{did}");
    }
    assert_eq!(world.dids().iter().filter(|did| did.method() == "web").count(), 2);
    network.shutdown().await;
}

#[tokio::test]
async fn streamable_exports_are_the_truth_too() {
    let world = world(22, 1, 6, 2_000);
    let hosts = HostOptions { order: Order::Streamable, gzip: false, ..Default::default() };
    let network = Network::start(&world, NetworkOptions { hosts, ..Default::default() }).await.expect("ports are to be had");
    let mut writes = RandomWrites::new(22);
    for did in world.dids() {
        for _ in 0..2 {
            assert_eq!(fetch(&network, &did, &client()).await.expect("a sound CAR"), truth(&world, &did));
            writes.write_to(&world, &did).expect("exists");
        }
    }
}

#[tokio::test]
async fn exports_are_of_one_moment_while_writes_go_on() {
    let world = world(23, 2, 5, 1_000);
    let network = network(&world).await;
    let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 2_000.0, ..Default::default() });
    let reader = tokio::spawn(async move {
        let mut count = 0;
        while op_sets.recv().await.is_some() {
            count += 1;
        }
        count
    });
    for _ in 0..20 {
        for did in world.dids() {
            fetch(&network, &did, &client()).await.expect("a sound CAR");
        }
    }
    let made = writer.stop().await;
    assert_eq!(reader.await.expect("the reader ends"), made);
    assert!(made > 0, "writes went on");
    for did in world.dids() {
        assert_eq!(fetch(&network, &did, &client()).await.expect("a sound CAR"), truth(&world, &did));
    }
}

#[tokio::test]
async fn an_export_since_a_rev_holds_what_is_newer_or_everything() {
    let world = world(32, 1, 1, 500);
    let network = network(&world).await;
    let did = &world.dids()[0];
    let made_at = world.truth(did).expect("exists").rev;
    let mut writes = RandomWrites::new(32);
    let middle = (0..10).map(|_| writes.write_to(&world, did).expect("exists").rev).nth(4).expect("ten revs");
    (0..5).for_each(|_| _ = writes.write_to(&world, did).expect("exists"));
    let since = async |rev: &str| {
        client().get(format!("{}&since={rev}", url(&network, did, GET_REPO))).send().await.unwrap().bytes().await.unwrap()
    };
    let now = world.truth(did).expect("exists").rev;
    let (all, since_made, since_middle) = (world.export(did).expect("exists"), since(made_at.as_str()).await, since(middle.as_str()).await);
    assert_eq!(since(now.as_str()).await.len(), 59, "nothing is newer: a header without blocks");
    assert!(since_middle.len() < since_made.len() && since_made.len() < all.len());
    assert!(all.starts_with(&since_made) && all.starts_with(&since_middle), "the newest blocks come first");
    assert_eq!(since("2222222222222").await, all);
}

#[tokio::test]
async fn pages_list_every_account_with_its_status_and_end_with_an_empty_one() {
    let world = world(24, 2, 21, 100);
    let network = network(&world).await;
    let dids = world.dids();
    world.set_status(&dids[2], AccountStatus::Deactivated);
    world.set_status(&dids[4], AccountStatus::Deleted);
    let mut listed = BTreeMap::new();
    let mut cursor = String::new();
    let mut pages = 0;
    loop {
        let url = format!("{}/xrpc/com.atproto.sync.listRepos?limit=4{cursor}", network.host_urls()[0]);
        let page: Value = get_json(url).await;
        pages += 1;
        for repo in page["repos"].as_array().expect("an array") {
            listed.insert(repo["did"].as_str().expect("text").to_owned(), repo.clone());
        }
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={}", next.replace(':', "%3A"));
    }
    assert_eq!((pages, listed.len()), (4, 10));
    assert!(!listed.contains_key(dids[4].as_str()), "a deleted account is not listed");
    assert_eq!(
        (&listed[dids[2].as_str()]["active"], &listed[dids[2].as_str()]["status"]),
        (&serde_json::json!(false), &serde_json::json!("deactivated"))
    );
    let first = &listed[dids[0].as_str()];
    let truth = world.truth(&dids[0]).expect("exists");
    assert_eq!(*first, serde_json::json!({"did": dids[0], "head": truth.commit.to_string(), "rev": truth.rev, "active": true}));
}

#[tokio::test]
async fn accounts_that_are_not_to_be_had_are_refused_in_the_words_of_the_implementation() {
    let world = world(25, 2, 2, 10);
    let of_host = BTreeMap::from([(1, HostOptions { flavour: Flavour::Indigo, ..Default::default() })]);
    let network = Network::start(&world, NetworkOptions { of_host, ..Default::default() }).await.expect("ports are to be had");
    let dids = world.dids();
    let expected = [
        (AccountStatus::Takendown, (400, "RepoTakendown"), (403, "RepoTakendown")),
        (AccountStatus::Suspended, (400, "RepoSuspended"), (403, "RepoTakendown")),
        (AccountStatus::Deactivated, (400, "RepoDeactivated"), (403, "RepoDeactivated")),
        (AccountStatus::Deleted, (400, "RepoNotFound"), (403, "RepoDeleted")),
        (AccountStatus::NotFound, (400, "RepoNotFound"), (404, "RepoNotFound")),
    ];
    for (status, reference, indigo) in expected {
        for (did, (code, name)) in dids.iter().zip([reference, indigo]) {
            world.set_status(did, status);
            for endpoint in [GET_REPO, "com.atproto.sync.getLatestCommit"] {
                let response = client().get(url(&network, did, endpoint)).send().await.expect("it answers");
                assert_eq!(response.status(), code, "{status:?}");
                assert_eq!(json(response).await["error"], name, "{status:?}");
            }
        }
    }
    world.set_status(&dids[0], AccountStatus::Suspended);
    let status: Value = get_json(url(&network, &dids[0], "com.atproto.sync.getRepoStatus")).await;
    assert_eq!(status, serde_json::json!({"did": dids[0], "active": false, "status": "suspended"}));
    world.set_status(&dids[0], AccountStatus::Deleted);
    let document = client().get(format!("{}/{}", network.plc_url(), dids[0])).send().await.expect("it answers");
    assert_eq!(document.status(), 410);
    let document = client().get(format!("{}/did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", network.plc_url())).send().await.expect("it answers");
    assert_eq!(document.status(), 404);
}

#[tokio::test]
async fn records_are_listed_with_their_json() {
    let world = world(26, 1, 1, 400);
    let network = network(&world).await;
    let did = &world.dids()[0];
    let truth = world.truth(did).expect("exists");
    let mut listed = BTreeMap::new();
    for collection in ["app.bsky.feed.post", "com.example.sim.note"] {
        let mut cursor = String::new();
        loop {
            let url = format!("{}&collection={collection}&limit=50{cursor}", url(&network, did, "com.atproto.repo.listRecords"));
            let page: Value = get_json(url).await;
            for record in page["records"].as_array().expect("an array") {
                let uri = record["uri"].as_str().expect("text").trim_start_matches(&format!("at://{did}/")).to_owned();
                listed.insert(uri, (record["cid"].as_str().expect("text").to_owned(), record["value"].clone()));
            }
            let Some(next) = page["cursor"].as_str() else { break };
            cursor = format!("&cursor={}", next.replace(':', "%3A"));
        }
    }
    let wanted = truth.records.iter().filter(|(path, _)| ["app.bsky.feed.post", "com.example.sim.note"].contains(&path.collection()));
    let value = |record| atproto_backfill::repo::json::to_value(record).expect("a sound record");
    let expected = wanted.map(|(path, (link, record))| (path.to_string(), (link.to_string(), value(record)))).collect();
    assert_eq!(listed, expected);
}

#[tokio::test]
async fn the_relay_sends_those_who_ask_for_a_repo_to_its_host() {
    let world = world(27, 3, 3, 30);
    let network = network(&world).await;
    for did in world.dids() {
        let response = client().get(format!("{}/xrpc/{GET_REPO}?did={did}", network.relay_url())).send().await.expect("it answers");
        assert_eq!(
            (response.status().as_u16(), response.headers()["location"].to_str().unwrap()),
            (302, url(&network, &did, GET_REPO).as_str())
        );
    }
    let hosts: Value = get_json(format!("{}/xrpc/com.atproto.sync.listHosts", network.relay_url())).await;
    assert_eq!(hosts["hosts"].as_array().expect("an array").len(), 3);
}

#[tokio::test]
async fn a_host_counts_what_it_sees_and_enforces_its_limit() {
    let world = world(28, 1, 2, 20);
    let rate = RateLimit { limit: 5, window: Duration::from_secs(60), enforced: true, announced: true };
    let hosts = HostOptions { rate: Some(rate), ..Default::default() };
    let network = Network::start(&world, NetworkOptions { hosts, ..Default::default() }).await.expect("ports are to be had");
    let did = &world.dids()[0];
    for request in 1..=7u64 {
        let response = client().get(url(&network, did, GET_REPO)).send().await.expect("it answers");
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(response.status().as_u16(), if request <= 5 { 200 } else { 429 });
        assert_eq!(header("ratelimit-remaining"), Some(5u64.saturating_sub(request).to_string()));
        assert_eq!(header("ratelimit-policy").as_deref(), Some("5;w=60"));
        assert_eq!(header("retry-after").is_some(), request > 5);
        response.bytes().await.expect("the body is whole");
    }
    let host = network.host(0);
    assert_eq!((host.requests(Endpoint::GetRepo), host.exports_of(did), host.refused()), (7, 7, 2));
    assert_eq!((host.busiest(Duration::from_secs(3_600)), host.busiest(Duration::from_nanos(1)), host.in_flight_max()), (7, 1, 1));
    assert_eq!((host.in_flight(), host.aborted()), (0, 0));
    assert!(host.bytes() > 0);
}

#[tokio::test]
async fn a_shut_host_refuses_connections_until_it_opens_again() {
    let world = world(29, 2, 2, 20);
    let network = network(&world).await;
    let did = &world.dids()[0];
    fetch(&network, did, &client()).await.expect("a sound CAR");
    for _ in 0..3 {
        network.shut_host(0).await;
        let refused = client().get(url(&network, did, GET_REPO)).send().await.expect_err("the port is shut");
        assert!(refused.is_connect(), "{refused:?}");
        network.open_host(0).await;
        fetch(&network, did, &client()).await.expect("a sound CAR");
    }
    fetch(&network, &world.dids()[1], &client()).await.expect("the other host is not touched");
}

#[tokio::test]
async fn a_moved_account_is_at_its_new_host_and_deactivated_at_the_old_one() {
    let world = world(30, 2, 1, 50);
    let network = network(&world).await;
    let did = &world.dids()[0];
    let old = url(&network, did, GET_REPO);
    world.move_account(did, 1);
    world.rotate_key(did).expect("an empty commit fits");
    assert_eq!(resolver(&network).resolve(did).await.expect("it resolves").pds.origin(), network.host_urls()[1]);
    assert_eq!(fetch(&network, did, &client()).await.expect("a sound CAR"), truth(&world, did));
    let answer: Value = get_json(old).await;
    assert_eq!(answer["error"], "RepoDeactivated");
}

#[tokio::test]
async fn a_shutdown_ends_bodies_that_wait_and_leaves_no_port_open() {
    let world = world(31, 2, 2, 5_000);
    let network = network(&world).await;
    let did = &world.dids()[0];
    let stall = network.faults().inject(Rule::new(Fault::Stall(Position::Byte(100), Duration::from_secs(3_600))));
    let response = client().get(url(&network, did, GET_REPO)).send().await.expect("headers come");
    assert_eq!((network.faults().fired(stall), network.host(0).in_flight()), (1, 1));
    let address = url(&network, did, GET_REPO);
    let body = tokio::spawn(response.bytes());
    tokio::time::timeout(Duration::from_secs(5), network.shutdown()).await.expect("it ends");
    body.await.expect("no panic").expect_err("the body was not whole");
    assert!(client().get(address).send().await.expect_err("the port is shut").is_connect());
}
