//! Every fixture repo, read in pieces of several sizes, from memory and from a file, is exactly what its PDS listed.

use std::io::Read;
use std::sync::Arc;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::{Checkout, CheckoutError, Leaves, Link, Records};

const NAMES: [&str; 10] = ["empty", "one", "hundred", "two-thousand", "collections", "churned", "emptied", "keys", "values", "twins"];

fn fixture(path: &str) -> Vec<u8> {
    let path = format!("{}/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Path and CID of every record, as the PDS lists them.
fn listing(name: &str) -> Vec<(String, String)> {
    let text = match name {
        "two-thousand" => {
            let mut text = String::new();
            flate2::read::GzDecoder::new(&fixture("expected/two-thousand.jsonl.gz")[..]).read_to_string(&mut text).unwrap();
            text
        }
        name => String::from_utf8(fixture(&format!("expected/{name}.jsonl"))).unwrap(),
    };
    let field = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.map(|line| (field(&line, "path"), field(&line, "cid"))).collect()
}

fn spooled(car: &[u8], piece: usize, memory_limit: u64) -> Result<Arc<Checkout>, CheckoutError> {
    let options = SpoolOptions { memory_limit, ..SpoolOptions::default() };
    let mut spool = Spool::new(options, &SpoolBudget::new(1 << 30));
    car.chunks(piece).try_for_each(|piece| spool.push(piece))?;
    spool.finish().map(Arc::new)
}

fn walked(checkout: &Arc<Checkout>, batch: usize) -> Result<Vec<(String, String)>, CheckoutError> {
    let (mut leaves, mut records, mut seen) = (Leaves::new(), Records::new(), Vec::new());
    let mut walk = checkout.walk();
    while walk.next(&mut leaves, batch)? {
        assert_eq!(leaves.dropped(), []);
        let wanted: Vec<u32> = (0..leaves.len() as u32).collect();
        walk.read(&leaves, &wanted, &mut records)?;
        for (leaf, record) in leaves.iter().zip(records.iter()) {
            assert_eq!(Link::of(record), leaf.link, "{}", leaf.path);
            assert_eq!(record.len(), leaf.len as usize);
            seen.push((leaf.path.to_string(), leaf.link.to_string()));
        }
    }
    Ok(seen)
}

#[test]
fn every_fixture_is_what_its_pds_listed() {
    for name in NAMES {
        let (car, expected) = (fixture(&format!("cars/{name}.car")), listing(name));
        for (piece, memory_limit, batch) in [(usize::MAX, u64::MAX, 1000), (1, u64::MAX, 1), (37, 0, 7), (4096, 0, 300)] {
            let checkout = spooled(&car, piece, memory_limit).unwrap();
            assert_eq!(walked(&checkout, batch).unwrap(), expected, "{name} in pieces of {piece}");
        }
    }
}

#[test]
fn every_fixture_is_signed_by_the_key_of_its_did_document() {
    use atproto_backfill::repo::PublicKey;
    for name in NAMES {
        let document: serde_json::Value = serde_json::from_slice(&fixture(&format!("expected/{name}.did.json"))).unwrap();
        let method = &document["verificationMethod"][0];
        let (kind, key) = (method["type"].as_str().unwrap(), method["publicKeyMultibase"].as_str().unwrap());
        let key = PublicKey::from_verification_method(kind, key).unwrap();
        let checkout = spooled(&fixture(&format!("cars/{name}.car")), 1000, u64::MAX).unwrap();
        checkout.verify(&document["id"].as_str().unwrap().parse().unwrap(), &key).unwrap();
        let other = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap();
        assert!(matches!(checkout.verify(&other, &key), Err(CheckoutError::Account { .. })), "{name}");
    }
}
