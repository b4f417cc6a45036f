//! Every record of every repo that the reference PDS exported, as JSON, against the PDS's own listing.

#[path = "common/fixtures.rs"]
mod fixtures;

use std::sync::Arc;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::{Checkout, Leaves, Link, PublicKey, Records, json};
use fixtures::{Fixture, Listed};

/// Spools, verifies and walks a fixture; calls `each` with the listed and the found record, both in key order.
fn compare(fixture: &Fixture, mut each: impl FnMut(&Listed, &str, Link, &[u8])) {
    let mut spool = Spool::new(SpoolOptions::default(), &SpoolBudget::new(1 << 30));
    spool.push(&std::fs::read(&fixture.car).unwrap()).unwrap();
    let checkout: Arc<Checkout> = Arc::new(spool.finish().unwrap());
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let method = &fixture.document["verificationMethod"][0];
    let key = PublicKey::from_verification_method(&text(&method["type"]), &text(&method["publicKeyMultibase"])).unwrap();
    checkout.verify(&text(&fixture.document["id"]).parse().unwrap(), &key).unwrap();

    let (mut leaves, mut records) = (Leaves::new(), Records::new());
    let mut listed = fixture.listing.iter();
    let mut walk = checkout.walk();
    while walk.next(&mut leaves, 100).unwrap() {
        assert_eq!(leaves.dropped(), [], "{}", fixture.name);
        let wanted: Vec<u32> = (0..leaves.len() as u32).collect();
        walk.read(&leaves, &wanted, &mut records).unwrap();
        for (leaf, record) in leaves.iter().zip(records.iter()) {
            let listed = listed.next().unwrap_or_else(|| panic!("{}: {} is not listed", fixture.name, leaf.path));
            each(listed, leaf.path.as_str(), leaf.link, record);
        }
    }
    assert_eq!(listed.next().map(|listed| &listed.path), None, "{}: listed, and not found", fixture.name);
}

#[test]
fn every_record_has_the_path_cid_and_json_that_the_pds_lists() {
    let mut compared = 0;
    for fixture in fixtures::all() {
        compare(&fixture, |listed, path, link, record| {
            assert_eq!((path, link.to_string()), (&*listed.path, listed.cid.clone()), "{}", fixture.name);
            assert_eq!(json::to_value(record).unwrap(), listed.value, "{}: {path}", fixture.name);
            compared += 1;
        });
    }
    assert!(compared > 2500, "only {compared} records");
}

#[test]
fn the_json_that_the_pds_lists_encodes_to_the_very_record() {
    for fixture in fixtures::all() {
        compare(&fixture, |listed, path, link, record| {
            let encoded = json::from_value(&listed.value).unwrap_or_else(|error| panic!("{}: {path}: {error}", fixture.name));
            assert_eq!(encoded, record, "{}: {path}", fixture.name);
            assert_eq!(Link::of(&encoded), link, "{}: {path}", fixture.name);
        });
    }
}
