//! Any tree, in any order of blocks, in pieces of any size, in memory or on disk, is read as what it was built from.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::sync::Arc;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::job::FailureKind;
use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
use atproto_backfill::repo::mst::{Tree, Visit};
use atproto_backfill::repo::{Checkout, CheckoutError, Curve, Leaves, Link, Records, SigningKey};
use atproto_backfill::syntax::{Did, Rev};
use proptest::prelude::*;

type Truth = BTreeMap<String, Vec<u8>>;
type Block = (Link, Vec<u8>);

/// The blocks of a repo in streamable order, the commit first.
fn blocks(truth: &Truth) -> Vec<Block> {
    let mut tree = Tree::new();
    let records: BTreeMap<Link, &Vec<u8>> = truth.values().map(|record| (Link::of(record), record)).collect();
    for (path, record) in truth {
        tree.insert(path.as_bytes(), Link::of(record)).unwrap();
    }
    let root = tree.seal().root;
    let key = SigningKey::from_seed(Curve::K256, &[1; 32]);
    let did = Did::new("did:web:orders.example.com").unwrap();
    let mut blocks = vec![signed_commit(&did, Rev::from_parts(1, 1), root, &key)];
    tree.visit(|visit| match visit {
        Visit::Node(link, block) => blocks.push((link, block.to_vec())),
        Visit::Record(_, link) => blocks.push((link, records[&link].clone())),
    });
    blocks
}

fn car(root: &Link, blocks: &[Block]) -> Vec<u8> {
    let mut car = Vec::new();
    car_header(&mut car, root);
    blocks.iter().for_each(|(link, block)| car_block(&mut car, link, block));
    car
}

fn spooled(car: &[u8], piece: usize, memory_limit: u64, budget: &SpoolBudget) -> Result<Arc<Checkout>, CheckoutError> {
    let options = SpoolOptions { memory_limit, ..SpoolOptions::default() };
    let mut spool = Spool::new(options, budget);
    car.chunks(piece).try_for_each(|piece| spool.push(piece))?;
    spool.finish().map(Arc::new)
}

fn read(checkout: &Arc<Checkout>, batch: usize) -> Result<Truth, CheckoutError> {
    let (mut walk, mut leaves, mut records, mut truth) = (checkout.walk(), Leaves::new(), Records::new(), Truth::new());
    while walk.next(&mut leaves, batch)? {
        // Only every other record is read at first, in an order of its own: a selection answers as it was asked.
        let (odd, even): (Vec<u32>, Vec<u32>) = (0..leaves.len() as u32).rev().partition(|position| position % 2 == 1);
        for wanted in [odd, even] {
            walk.read(&leaves, &wanted, &mut records)?;
            assert_eq!(records.len(), wanted.len());
            for (position, record) in wanted.iter().zip(records.iter()) {
                truth.insert(leaves.get(*position as usize).unwrap().path.to_string(), record.to_vec());
            }
        }
    }
    assert_eq!(walk.counts().records, truth.len() as u64);
    Ok(truth)
}

fn truths() -> impl Strategy<Value = Truth> {
    let path = "(a\\.b\\.c|a\\.b\\.cd|z\\.y\\.x)/[a-z0-9:_~.-]{1,12}"
        .prop_filter("not . or ..", |path| !path.ends_with("/.") && !path.ends_with("/.."));
    // Few different records, so that several paths share one.
    let record = (0u8..40, 0usize..700).prop_map(|(seed, len)| vec![seed; len + 1]);
    proptest::collection::btree_map(path, record, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_order_and_any_pieces_are_read_as_what_was_built(
        truth in truths(),
        order in any::<prop::sample::Index>(),
        shuffled in any::<u64>(),
        piece in 1usize..5000,
        memory in prop_oneof![Just(0u64), Just(u64::MAX)],
        batch in 1usize..400,
    ) {
        let mut blocks = blocks(&truth);
        let root = blocks[0].0;
        match shuffled % 3 {
            0 => {}
            // A streamable beginning that is departed from somewhere.
            1 => { let at = order.index(blocks.len()); blocks[at..].reverse(); }
            _ => blocks.sort_by_key(|(link, _)| u64::from_le_bytes(link.digest()[..8].try_into().unwrap()).wrapping_mul(shuffled | 1)),
        }
        let again = blocks[order.index(blocks.len())].clone();
        if shuffled % 5 == 0 { blocks.insert(order.index(blocks.len()), again); }
        let budget = SpoolBudget::new(1 << 30);
        let checkout = spooled(&car(&root, &blocks), piece, memory, &budget).unwrap();
        prop_assert_eq!(read(&checkout, batch).unwrap(), truth);
        drop(checkout);
        prop_assert_eq!(budget.left(), 1 << 30);
    }

    #[test]
    fn a_file_cut_between_blocks_is_missing_one(truth in truths(), order in any::<prop::sample::Index>(), sorted in any::<bool>()) {
        let mut blocks = blocks(&truth);
        let root = blocks[0].0;
        if sorted { blocks.sort(); }
        blocks.dedup();
        let cut = order.index(blocks.len());
        let lost: Vec<Link> = blocks[cut..].iter().map(|(link, _)| *link).filter(|lost| !blocks[..cut].iter().any(|(link, _)| link == lost)).collect();
        prop_assume!(!lost.is_empty());
        let outcome = spooled(&car(&root, &blocks[..cut]), 4096, u64::MAX, &SpoolBudget::new(1 << 30)).and_then(|checkout| read(&checkout, 50));
        prop_assert_eq!(outcome.unwrap_err().kind(), FailureKind::MissingBlock);
    }
}

fn many(records: usize) -> Truth {
    (0..records).map(|number| (format!("a.b.c/{number:06}"), format!("record {number} ").repeat(20).into_bytes())).collect()
}

#[test]
fn a_streamable_file_is_read_without_an_index_from_memory_and_from_disk() {
    let truth = many(5000);
    let blocks = blocks(&truth);
    for memory in [0, u64::MAX] {
        let checkout = spooled(&car(&blocks[0].0, &blocks), 65_536, memory, &SpoolBudget::new(1 << 30)).unwrap();
        assert!(checkout.is_streamable());
        assert_eq!(read(&checkout, 1000).unwrap(), truth);
        assert_eq!(read(&checkout, 77).unwrap(), truth, "a second walk");
    }
}

#[test]
fn spools_that_share_a_spent_budget_go_on_on_disk_and_wait_for_nobody() {
    let truth = many(5000);
    let mut blocks = blocks(&truth);
    let root = blocks[0].0;
    blocks.sort();
    let (car, budget) = (car(&root, &blocks), SpoolBudget::new(600_000));
    let checkouts: Vec<_> = (0..4).map(|_| spooled(&car, 10_000, u64::MAX, &budget).unwrap()).collect();
    for checkout in &checkouts {
        assert_eq!(read(checkout, 1000).unwrap(), truth);
    }
    drop(checkouts);
    assert_eq!(budget.left(), 600_000);
}

#[test]
fn caps_on_bytes_and_blocks_are_errors_of_their_own() {
    let blocks = blocks(&many(500));
    let car = car(&blocks[0].0, &blocks);
    let budget = SpoolBudget::new(1 << 30);
    let outcome = |options: SpoolOptions| {
        let mut spool = Spool::new(options, &budget);
        car.chunks(4096).try_for_each(|piece| spool.push(piece)).and_then(|()| spool.finish().map(drop))
    };
    let mut options = SpoolOptions { max_bytes: car.len() as u64, max_blocks: blocks.len() as u64, ..SpoolOptions::default() };
    outcome(options.clone()).unwrap();
    options.max_blocks -= 1;
    assert!(matches!(outcome(options.clone()), Err(CheckoutError::TooManyBlocks { .. })));
    options.max_bytes -= 1;
    assert!(matches!(outcome(options), Err(CheckoutError::TooLarge { .. } | CheckoutError::TooManyBlocks { .. })));
}

#[test]
fn what_is_no_car_is_called_the_same_in_whatever_pieces_it_arrives() {
    let outcome = |body: &[u8], piece| spooled(body, piece, u64::MAX, &SpoolBudget::new(1 << 20)).unwrap_err().to_string();
    for body in [&b"\0\x1cts"[..], b"\0", b"\0\xa2", b"<!DOCTYPE html>", b"\x3a\x80\x01", b"\x02\xa2\x61", b"\x80", b"\xff\xff\x7f", b""] {
        let whole = outcome(body, 4096);
        for piece in 1..body.len() {
            assert_eq!(outcome(body, piece), whole, "{body:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_disk_that_takes_no_file_is_a_local_failure() {
    let blocks = blocks(&many(5000));
    let options = SpoolOptions { memory_limit: 0, directory: Some("/proc/no/such/directory".into()), ..SpoolOptions::default() };
    let mut spool = Spool::new(options, &SpoolBudget::new(1 << 30));
    let outcome = car(&blocks[0].0, &blocks).chunks(4096).try_for_each(|piece| spool.push(piece));
    assert_eq!(outcome.unwrap_err().kind(), FailureKind::Local);
}

#[test]
fn a_repo_that_two_threads_hash_is_read_as_any_other() {
    let truth = many(40_000);
    let mut blocks = blocks(&truth);
    let root = blocks[0].0;
    let budget = SpoolBudget::new(1 << 30);
    let middle = blocks.len() / 2;
    for (departure, memory) in [(None, u64::MAX), (Some(middle), u64::MAX), (Some(middle), 3 << 20), (Some(0), 0)] {
        if let Some(departure) = departure {
            blocks[departure..].sort();
        }
        let checkout = spooled(&car(&root, &blocks), 100_000, memory, &budget).unwrap();
        assert_eq!(checkout.is_streamable(), departure.is_none());
        assert_eq!(read(&checkout, 1000).unwrap(), truth);
    }
    let mut car = car(&root, &blocks);
    assert!(car.len() > 8 << 20);
    let broken = car.len() - 1_000_000;
    car[broken] ^= 1;
    let outcome = spooled(&car, 100_000, u64::MAX, &budget).unwrap_err();
    // Most bytes are a block's, and the rest are a CID's or a length's.
    assert_eq!(outcome.kind(), FailureKind::MalformedCar, "{outcome}");
    drop(outcome);
    assert_eq!(budget.left(), 1 << 30);
}
