//! Against the reference PDS and PLC, which `tests/interop/setup` installs; where they are not, these tests skip themselves.

#[path = "interop/network.rs"]
mod network;
#[path = "interop/truth.rs"]
mod truth;

use std::sync::Arc;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::{Checkout, Leaves};
use network::Network;
use serde_json::json;

fn paths_and_cids(car: &[u8]) -> Vec<(String, String)> {
    let mut spool = Spool::new(SpoolOptions::default(), &SpoolBudget::new(1 << 30));
    spool.push(car).unwrap();
    let checkout: Arc<Checkout> = Arc::new(spool.finish().unwrap());
    let (mut leaves, mut found) = (Leaves::new(), Vec::new());
    let mut walk = checkout.walk();
    while walk.next(&mut leaves, 500).unwrap() {
        assert_eq!(leaves.dropped(), []);
        found.extend(leaves.iter().map(|leaf| (leaf.path.to_string(), leaf.link.to_string())));
    }
    found
}

#[tokio::test]
async fn a_fresh_export_walks_to_what_the_pds_lists() {
    let Some(mut network) = Network::start("a_fresh_export_walks_to_what_the_pds_lists").await else { return };
    let did = network.accounts(&["fresh"]).await.remove(0);
    network.command(json!({"cmd": "fill", "did": did, "records": 300})).await;
    let listing = truth::list_records(&network.pds, &did).await;
    assert_eq!(listing.len(), 300);
    let listed: Vec<_> = listing.into_iter().map(|(path, (cid, _))| (path, cid)).collect();
    assert_eq!(paths_and_cids(&truth::export(&network.pds, &did).await), listed);
    network.stop().await;
}
