//! The tree builder against trees and diffs that other implementations made.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::{Tree, common_prefix, key_height};
use common::vectors::{RecordOp, SuiteTree, blocks_of, diffs, fixture, links, map_of, read_car, suite_trees};
use serde_json::Value;

fn json_cases(path: &str, count: usize) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_slice(&fixture(path)).unwrap();
    assert_eq!(cases.len(), count, "{path} has lost or gained cases");
    cases
}

#[test]
fn key_height_vectors() {
    for case in json_cases("interop/mst/key_heights.json", 9) {
        let key = case["key"].as_str().unwrap();
        assert_eq!(u64::from(key_height(key.as_bytes())), case["height"].as_u64().unwrap(), "{key}");
    }
    let keys = String::from_utf8(fixture("interop/mst/example_keys.txt")).unwrap();
    assert_eq!(keys.lines().count(), 156);
    for key in keys.lines() {
        assert_eq!(key_height(key.as_bytes()), u32::from(key.as_bytes()[1] - b'0'), "{key}");
    }
}

#[test]
fn common_prefix_vectors() {
    for case in json_cases("interop/mst/common_prefix.json", 13) {
        let (left, right) = (case["left"].as_str().unwrap(), case["right"].as_str().unwrap());
        assert_eq!(common_prefix(left.as_bytes(), right.as_bytes()) as u64, case["len"].as_u64().unwrap(), "{left:?} {right:?}");
    }
}

#[test]
fn the_empty_tree_is_the_one_empty_node() {
    let sealed = Tree::new().seal();
    assert_eq!(sealed.root.to_string(), "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm");
    assert_eq!(sealed.created, [(sealed.root, b"\xa2\x61e\x80\x61l\xf6".to_vec())]);
    assert_eq!(sealed.removed, []);
}

#[test]
fn all_128_trees_of_the_suite_are_built_block_by_block() {
    for SuiteTree { root, blocks: expected, map } in suite_trees() {
        let sorted = map.iter().map(|(key, value)| (key.clone(), *value));
        let mut bulk: Tree = sorted.clone().collect();
        assert_eq!(bulk.seal().root, root);
        assert_eq!(blocks_of(&bulk).into_iter().collect::<BTreeMap<_, _>>(), expected);
        assert_eq!(map_of(&bulk), map);

        let mut reversed: Tree = sorted.clone().rev().collect();
        assert_eq!(reversed.seal(), sorted.clone().collect::<Tree>().seal());

        let mut one_by_one = Tree::new();
        for (key, value) in sorted {
            assert_eq!(one_by_one.insert(&key, value), Ok(None));
        }
        let sealed = one_by_one.seal();
        assert_eq!((sealed.root, sealed.created.into_iter().collect::<BTreeMap<_, _>>()), (root, expected));
    }
}

fn apply(tree: &mut Tree, op: &RecordOp) {
    let [old, new] = [&op.old_value, &op.new_value].map(|value| value.as_ref().map(|text| text.parse::<Link>().unwrap()));
    let replaced = match new {
        Some(new) => tree.insert(op.rpath.as_bytes(), new),
        None => tree.remove(op.rpath.as_bytes()),
    };
    assert_eq!(replaced, Ok(old), "{}", op.rpath);
}

#[test]
fn all_16384_diffs_of_the_suite_create_and_delete_the_stated_nodes() {
    let trees = suite_trees();
    let sealed: Vec<Tree> = trees
        .iter()
        .map(|tree| {
            let mut tree: Tree = tree.map.iter().map(|(key, value)| (key.clone(), *value)).collect();
            tree.seal();
            tree
        })
        .collect();
    for diff in diffs() {
        let ((a, b), results) = (diff.trees(), &diff.results);
        for reversed in [false, true] {
            let mut tree = sealed[a].clone();
            if reversed {
                results.record_ops.iter().rev().for_each(|op| apply(&mut tree, op));
            } else {
                results.record_ops.iter().for_each(|op| apply(&mut tree, op));
            }
            let changes = tree.seal();
            assert_eq!(changes.root, trees[b].root, "{a} to {b}");
            let created: BTreeSet<Link> = changes.created.iter().map(|(link, _)| *link).collect();
            assert_eq!(created, links(&results.created_nodes), "{a} to {b}");
            assert_eq!(changes.removed.iter().copied().collect::<BTreeSet<_>>(), links(&results.deleted_nodes), "{a} to {b}");
            assert_eq!((created.len(), changes.removed.len()), (changes.created.len(), results.deleted_nodes.len()));
            // The suite's proof is of the changed keys only; ours adds what shows their neighbours.
            let proof: BTreeSet<Link> =
                results.record_ops.iter().flat_map(|op| tree.proof(op.rpath.as_bytes()).unwrap()).map(|(link, _)| link).collect();
            assert!(proof.is_superset(&links(&results.proof_nodes)) || results.record_ops.is_empty(), "{a} to {b}");
            assert!(changes.created.iter().all(|(link, block)| Link::of(block) == *link));
        }
    }
}

#[test]
fn commit_proof_vectors_have_the_stated_roots_and_blocks() {
    for case in json_cases("interop/firehose/commit-proof-fixtures.json", 6) {
        let list = |field: &str| case[field].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect::<Vec<_>>();
        let value: Link = case["leafValue"].as_str().unwrap().parse().unwrap();
        let mut tree: Tree = list("keys").into_iter().map(|key| (key.into_bytes(), value)).collect();
        assert_eq!(tree.seal().root.to_string(), case["rootBeforeCommit"].as_str().unwrap(), "{}", case["comment"]);
        for key in list("adds") {
            assert_eq!(tree.insert(key.as_bytes(), value), Ok(None));
        }
        for key in list("dels") {
            assert_eq!(tree.remove(key.as_bytes()), Ok(Some(value)));
        }
        let changes = tree.seal();
        assert_eq!(changes.root.to_string(), case["rootAfterCommit"].as_str().unwrap(), "{}", case["comment"]);
        let mut sent: BTreeSet<Link> = changes.created.iter().map(|(link, _)| *link).collect();
        for key in list("adds").iter().chain(&list("dels")) {
            sent.extend(tree.proof(key.as_bytes()).unwrap().iter().map(|(link, _)| *link));
        }
        assert_eq!(sent, links(&list("blocksInProof")), "{}", case["comment"]);
    }
}

#[test]
fn a_commit_is_the_canonical_map_that_a_general_library_writes() {
    use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
    use atproto_backfill::repo::{Commit, CommitFault, Curve, SigningKey};
    use atproto_backfill::syntax::{Did, Rev};
    use ipld_core::ipld::Ipld;

    let (did, rev) = (Did::new("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap(), Rev::from_parts(1_700_000_000_000_000, 7));
    let data = Tree::new().seal().root;
    for curve in [Curve::K256, Curve::P256] {
        let key = SigningKey::from_seed(curve, &[7; 32]);
        let (link, block) = signed_commit(&did, rev, data, &key);
        let Ipld::Map(mut map) = serde_ipld_dagcbor::from_slice(&block).unwrap() else { panic!("not a map") };
        assert_eq!(serde_ipld_dagcbor::to_vec(&map).unwrap(), block);
        assert_eq!(Link::of(&block), link);
        let Some(Ipld::Bytes(signature)) = map.remove("sig") else { panic!("no signature") };
        assert_eq!(key.public().verify(&serde_ipld_dagcbor::to_vec(&map).unwrap(), &signature), Ok(()));
        let expected = [
            ("did", Ipld::String(did.to_string())),
            ("rev", Ipld::String(rev.to_string())),
            ("data", Ipld::Link(data.to_cid())),
            ("prev", Ipld::Null),
            ("version", Ipld::Integer(3)),
        ];
        assert_eq!(map, expected.map(|(key, value)| (key.to_owned(), value)).into());
        assert_eq!(Commit::decode(&block).map(|commit| commit.link()), Ok(link));
        assert_eq!(Commit::decode(&[&block[..], &[0xf6]].concat()), Err(CommitFault::Encoding), "a byte behind the map");

        let mut car = Vec::new();
        car_header(&mut car, &link);
        car_block(&mut car, &link, &block);
        assert_eq!(read_car(&car), (link, [(link, block)].into()));
    }
}
