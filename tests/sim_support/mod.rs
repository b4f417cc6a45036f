//! What the tests of the simulator share: a plain HTTP client, and the library's own reader as the judge of what was served.
#![allow(dead_code, reason = "each test crate uses its share")]
#![allow(clippy::print_stdout, reason = "the seed of each world is printed")]

#[path = "../common/car.rs"]
pub(crate) mod car;
pub(crate) mod tap;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::{CheckoutError, Leaves, Link, PublicKey, Records};
use atproto_backfill::sim::{Network, NetworkOptions, Sizes, World};
use atproto_backfill::syntax::{Did, RecordPath, Rev};
use bytes::Bytes;

pub(crate) const GET_REPO: &str = "com.atproto.sync.getRepo";

pub(crate) fn world(seed: u64, hosts: usize, repos: usize, records: u64) -> Arc<World> {
    let world = World::builder().seed(seed).hosts(hosts).repos(repos).sizes(Sizes::Total(records)).build().expect("no ports are needed");
    println!("{world:?}");
    world
}

pub(crate) async fn network(world: &Arc<World>) -> Network {
    Network::start(world, NetworkOptions::default()).await.expect("ports are to be had")
}

/// A client that follows no redirects and unpacks nothing that it did not ask for.
pub(crate) fn client() -> reqwest::Client {
    builder().gzip(false).build().expect("a client")
}

pub(crate) fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(Duration::from_secs(20))
}

/// The URL of an endpoint about an account, at the host that has it.
pub(crate) fn url(network: &Network, did: &Did, endpoint: &str) -> String {
    let host = network.world().host_of(did).expect("the account exists");
    let about = if endpoint.starts_with("com.atproto.repo.") { "repo" } else { "did" };
    let escaped = did.as_str().replace('%', "%25");
    format!("{}/xrpc/{endpoint}?{about}={escaped}", network.host_urls()[host])
}

/// What the library reads out of a CAR: rev, root, records.
pub(crate) type Read = (Rev, Link, BTreeMap<RecordPath, (Link, Bytes)>);

/// Reads a CAR as the library does for a checkout: every rule, signature included.
pub(crate) fn check_out(car: &[u8], did: &Did, key: &PublicKey) -> Result<Read, CheckoutError> {
    let mut spool = Spool::new(SpoolOptions::default(), &SpoolBudget::new(256 << 20));
    spool.push(car)?;
    let checkout = Arc::new(spool.finish()?);
    checkout.verify(did, key)?;
    let mut walk = checkout.walk();
    let (mut leaves, mut loaded, mut records) = (Leaves::new(), Records::new(), BTreeMap::new());
    while walk.next(&mut leaves, 100)? {
        let wanted: Vec<u32> = (0..leaves.len() as u32).collect();
        walk.read(&leaves, &wanted, &mut loaded)?;
        assert!(leaves.dropped().is_empty(), "the simulator makes no bad records: {:?}", leaves.dropped());
        for (leaf, record) in leaves.iter().zip(loaded.iter()) {
            records.insert(leaf.path.to_owned(), (leaf.link, Bytes::copy_from_slice(record)));
        }
    }
    Ok((checkout.commit().rev(), checkout.commit().data(), records))
}

pub(crate) fn truth(world: &World, did: &Did) -> Read {
    let truth = world.truth(did).expect("the account exists");
    (truth.rev, truth.data, truth.records)
}

/// What a host serves as the repo, read by the library.
pub(crate) async fn fetch(network: &Network, did: &Did, client: &reqwest::Client) -> Result<Read, CheckoutError> {
    let response = client.get(url(network, did, GET_REPO)).send().await.expect("the host answers");
    assert_eq!(response.status(), 200);
    let car = response.bytes().await.expect("the body is whole");
    check_out(&car, did, &network.world().key(did).expect("the account exists"))
}

/// The body of an answer as JSON.
pub(crate) async fn json(response: reqwest::Response) -> serde_json::Value {
    serde_json::from_slice(&response.bytes().await.expect("the body is whole")).expect("JSON")
}

/// What is at a URL, as JSON.
pub(crate) async fn get_json(url: String) -> serde_json::Value {
    json(client().get(url).send().await.expect("it answers")).await
}
