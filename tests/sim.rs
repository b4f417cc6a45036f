//! The world of the simulator: its truth against its exports, and its determinism.
#![cfg(feature = "sim")]
#![allow(clippy::print_stdout, reason = "the seed of each world is printed")]

#[path = "common/car.rs"]
mod car;

use std::collections::HashMap;
use std::sync::Arc;

use atproto_backfill::job::{OpAction, OpSet};
use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::Tree;
use atproto_backfill::sim::{Change, RandomWrites, Sizes, World, WriteError, Writer, WriterOptions};
use atproto_backfill::syntax::{Did, RecordPath};
use bytes::Bytes;

fn world(seed: u64, repos: usize, records: u64) -> Arc<World> {
    let world = World::builder().seed(seed).repos(repos).sizes(Sizes::Total(records)).build().expect("no ports are needed");
    println!("{world:?}");
    world
}

/// Reads a CAR with nothing of the library: header, then `varint cid block`.
fn blocks(car: &[u8]) -> (Vec<u8>, Vec<(Link, Vec<u8>)>) {
    let mut chunks = car::chunks(car).into_iter();
    let header = chunks.next().expect("there is a header");
    let blocks = chunks.map(|chunk| (Link::from_bytes(&chunk[..36]).expect("a blessed link"), chunk[36..].to_vec())).collect();
    (header, blocks)
}

fn assert_export_is_truth(world: &World, did: &Did, car: &[u8]) {
    let truth = world.truth(did).expect("the account exists");
    let (header, blocks) = blocks(car);
    assert!(header.windows(36).any(|window| window == truth.commit.to_bytes()), "the root is the commit");
    let count = blocks.len();
    let mut blocks: HashMap<Link, Vec<u8>> = blocks.into_iter().collect();
    assert_eq!(blocks.len(), count, "no block comes twice");
    for (link, block) in &blocks {
        assert_eq!(Link::of(block), *link, "each block has its hash");
    }
    let mut tree: Tree = truth.records.iter().map(|(path, (link, _))| (path.as_str().as_bytes(), *link)).collect();
    let sealed = tree.seal();
    assert_eq!(sealed.root, truth.data, "the root is that of a tree rebuilt from the truth");
    let mut expected: HashMap<Link, Vec<u8>> = sealed.created.into_iter().collect();
    expected.extend(truth.records.values().map(|(link, record)| (*link, record.to_vec())));
    let commit = blocks.remove(&truth.commit).expect("the commit is there");
    let commit: ipld_core::ipld::Ipld = serde_ipld_dagcbor::from_slice(&commit).expect("the commit is DAG-CBOR");
    let text = |name| match commit.get(name) {
        Ok(Some(ipld_core::ipld::Ipld::String(text))) => text.clone(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!((text("did"), text("rev")), (did.to_string(), truth.rev.to_string()));
    assert_eq!(blocks, expected, "the export holds the tree and the records, and nothing else");
}

#[test]
fn exports_hold_exactly_the_truth_before_and_after_writes() {
    let world = world(3, 12, 3_000);
    let mut writes = RandomWrites::new(3);
    for round in 0..3 {
        for did in world.dids() {
            assert_export_is_truth(&world, &did, &world.export(&did).expect("exists"));
            assert_export_is_truth(&world, &did, &world.streamable_export(&did).expect("exists"));
        }
        for _ in 0..100 * round {
            writes.write(&world).expect("accounts are active");
        }
    }
}

#[test]
fn a_world_has_as_many_records_as_it_says() {
    let world = world(4, 20, 5_000);
    let held = |world: &World| world.dids().iter().map(|did| world.truth(did).expect("exists").records.len() as u64).sum::<u64>();
    assert_eq!((world.records(), held(&world)), (5_000, 5_000));
    let mut writes = RandomWrites::new(4);
    for _ in 0..300 {
        writes.write(&world).expect("accounts are active");
    }
    assert_eq!(world.records(), held(&world));
}

#[test]
fn two_worlds_of_one_seed_are_identical_byte_for_byte() {
    let (one, other, different) = (world(5, 10, 2_000), world(5, 10, 2_000), world(6, 10, 2_000));
    other.make_all();
    let (mut writes, mut same_writes) = (RandomWrites::new(9), RandomWrites::new(9));
    for _ in 0..200 {
        assert_eq!(writes.write(&one), same_writes.write(&other));
    }
    assert_eq!(one.dids(), other.dids());
    for did in one.dids() {
        assert_eq!(one.export(&did), other.export(&did), "{did}");
    }
    assert_ne!(one.dids(), different.dids());
}

#[test]
fn exports_are_in_the_order_of_the_reference_implementation() {
    let world = world(7, 6, 2_000);
    for did in world.dids() {
        let truth = world.truth(&did).expect("exists");
        let (_, blocks) = blocks(&world.export(&did).expect("exists"));
        let place = |link: &Link| blocks.iter().position(|(other, _)| other == link).expect("is exported");
        assert!(place(&truth.commit) < 12, "the commit is among the first few blocks");
        assert!(place(&truth.data) < 12, "so is the root");
        // Within a collection of TID keys, later records are newer ones, which come first.
        let posts = truth.records.iter().filter(|(path, _)| path.collection() == "app.bsky.feed.post");
        let places: Vec<usize> = posts.map(|(_, (link, _))| place(link)).collect();
        assert!(places.is_sorted_by(|older, newer| older > newer), "{did}: {places:?}");
    }
}

#[test]
fn op_sets_chain_from_the_first_state_to_the_last() {
    let world = world(8, 5, 500);
    let mut states: HashMap<Did, _> = world.dids().into_iter().map(|did| (did.clone(), world.truth(&did).expect("exists"))).collect();
    let mut writes = RandomWrites::new(8);
    let (mut creates, mut updates, mut deletes) = (0, 0, 0);
    for _ in 0..1_000 {
        let OpSet { did, rev, since, data, prev_data, ops } = writes.write(&world).expect("accounts are active");
        let state = states.get_mut(&did).expect("exists");
        assert!(rev > state.rev, "revs rise");
        assert_eq!((since, prev_data), (Some(state.rev), Some(state.data)));
        for op in ops {
            let had = state.records.contains_key(&op.path);
            match op.action {
                OpAction::Create { cid, record } => {
                    creates += 1;
                    assert!(!had && Link::of(&record) == cid);
                    state.records.insert(op.path, (cid, record));
                }
                OpAction::Update { cid, record } => {
                    updates += 1;
                    assert!(Link::of(&record) == cid);
                    let before = state.records.insert(op.path, (cid, record)).expect("an update has something to replace");
                    assert_ne!(before.0, cid, "no update is without effect");
                }
                OpAction::Delete => {
                    deletes += 1;
                    assert!(state.records.remove(&op.path).is_some());
                }
            }
        }
        (state.rev, state.data) = (rev, data.expect("the simulator knows the root"));
    }
    assert!(creates > 300 && updates > 100 && deletes > 100, "{creates} {updates} {deletes}");
    for (did, mut state) in states {
        let truth = world.truth(&did).expect("exists");
        state.commit = truth.commit;
        assert_eq!(state, truth);
    }
}

#[test]
fn records_repeat_under_several_paths_and_keys_are_not_all_tids() {
    let world = World::builder().seed(10).repos(1).sizes(Sizes::Each(4_000)).build().expect("no ports are needed");
    let truth = world.truth(&world.dids()[0]).expect("exists");
    let mut by_link: HashMap<Link, usize> = HashMap::new();
    truth.records.values().for_each(|(link, _)| *by_link.entry(*link).or_default() += 1);
    assert!(by_link.values().any(|&paths| paths > 1), "some record is at two paths");
    let lengths: Vec<usize> = truth.records.keys().map(|path| path.record_key().len()).collect();
    assert!(lengths.contains(&1) && lengths.contains(&512), "there are keys of the least and of the greatest length");
}

#[test]
fn writes_that_do_not_fit_are_refused_and_change_nothing() {
    let world = world(11, 1, 10);
    let did = &world.dids()[0];
    let before = world.truth(did).expect("exists");
    let (held, (_, record)) = before.records.first_key_value().expect("ten records");
    let free = RecordPath::new("com.example.sim.note/free").expect("valid");
    let other = Bytes::from_static(b"\xa1\x61a\x01");
    let refused = |changes| world.write(did, changes).expect_err("must not fit");
    assert!(matches!(refused(vec![Change::Create(held.clone(), other.clone())]), WriteError::Exists { .. }));
    assert!(matches!(refused(vec![Change::Update(free.clone(), other.clone())]), WriteError::Missing { .. }));
    assert!(matches!(refused(vec![Change::Delete(free.clone())]), WriteError::Missing { .. }));
    assert!(matches!(refused(vec![Change::Update(held.clone(), record.clone())]), WriteError::Unchanged { .. }));
    assert!(matches!(refused(vec![Change::Create(free.clone(), other), Change::Delete(free)]), WriteError::Twice { .. }));
    assert!(matches!(world.write_at(did, before.rev, Vec::new()), Err(WriteError::RevDoesNotRise { .. })));
    assert!(matches!(world.write(&Did::new("did:plc:nobody").expect("valid"), Vec::new()), Err(WriteError::UnknownRepo(_))));
    assert_eq!(world.truth(did).expect("exists"), before);
}

#[test]
fn a_repo_goes_back_to_a_snapshot() {
    let world = world(12, 1, 200);
    let did = &world.dids()[0];
    let (before, export) = (world.truth(did), world.export(did));
    let snapshot = world.snapshot(did).expect("exists");
    let mut writes = RandomWrites::new(12);
    for _ in 0..50 {
        writes.write_to(&world, did).expect("exists");
    }
    assert_ne!(world.truth(did), before);
    world.restore(did, &snapshot);
    assert_eq!((world.truth(did), world.export(did), world.records()), (before, export, 200));
    writes.write_to(&world, did).expect("a restored repo can be written to");
    assert_export_is_truth(&world, did, &world.export(did).expect("exists"));
}

#[test]
fn an_account_begins_empty_and_with_another_key_signs_with_it() {
    let world = world(13, 1, 0);
    let did = world.add_account(0);
    assert_export_is_truth(&world, &did, &world.export(&did).expect("exists"));
    assert_eq!(world.head(&did).expect("exists").1.to_string(), "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm");
    let before = world.key(&did).expect("exists");
    let op_set = world.rotate_key(&did).expect("an empty commit fits");
    assert_eq!((op_set.ops.len(), op_set.data), (0, op_set.prev_data));
    assert_ne!(world.key(&did).expect("exists"), before);
    assert_export_is_truth(&world, &did, &world.export(&did).expect("exists"));
}

#[tokio::test]
async fn a_background_writer_hands_over_every_commit_it_makes() {
    let world = world(14, 8, 800);
    let before: HashMap<Did, _> = world.dids().into_iter().map(|did| (did.clone(), world.head(&did).expect("exists").0)).collect();
    let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 5_000.0, capacity: 4, limit: 300, ..Default::default() });
    let mut stands = before;
    let mut received = 0;
    while let Some(op_set) = op_sets.recv().await {
        assert_eq!(op_set.since, stands.insert(op_set.did.clone(), op_set.rev), "in order for each repo");
        received += 1;
    }
    assert_eq!((received, writer.finished().await), (300, 300));
    assert!(stands.iter().all(|(did, rev)| world.head(did).expect("exists").0 == *rev), "nothing was written that was not handed over");

    let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 5_000.0, capacity: 4, ..Default::default() });
    op_sets.recv().await.expect("it writes");
    let made = writer.stop().await;
    let mut received = 1;
    while op_sets.recv().await.is_some() {
        received += 1;
    }
    assert_eq!(received, made, "a stopped writer leaves nothing unsaid");
}
