//! The tree builder against trees and diffs that other implementations made.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::{Tree, Visit, common_prefix, key_height};
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

fn fixture(path: &str) -> Vec<u8> {
    let path = format!("{}/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn json_cases(path: &str, count: usize) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_slice(&fixture(path)).unwrap();
    assert_eq!(cases.len(), count, "{path} has lost or gained cases");
    cases
}

type Map = BTreeMap<Vec<u8>, Link>;

/// The tree's blocks, in the order of the visit.
fn blocks(tree: &Tree) -> Vec<(Link, Vec<u8>)> {
    let mut blocks = Vec::new();
    tree.visit(|seen| {
        if let Visit::Node(link, block) = seen {
            blocks.push((link, block.to_vec()));
        }
    });
    blocks
}

fn map_of(tree: &Tree) -> Map {
    tree.entries().map(|(key, value)| (key.to_vec(), value)).collect()
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

/// A node as a general DAG-CBOR library reads it.
#[derive(Deserialize)]
struct ForeignNode {
    e: Vec<ForeignEntry>,
    l: Option<cid::Cid>,
}
#[derive(Deserialize)]
struct ForeignEntry {
    p: usize,
    #[serde(with = "key_bytes")]
    k: Vec<u8>,
    v: cid::Cid,
    t: Option<cid::Cid>,
}
mod key_bytes {
    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        match serde::Deserialize::deserialize(deserializer)? {
            ipld_core::ipld::Ipld::Bytes(bytes) => Ok(bytes),
            other => panic!("a key that is not bytes: {other:?}"),
        }
    }
}

/// A CAR of the suite: every length in it is one or two bytes, and its header has one root.
fn read_car(bytes: &[u8]) -> (Link, BTreeMap<Link, Vec<u8>>) {
    let mut rest = bytes;
    let mut chunk = || {
        let len = match *rest.first()? {
            low @ 0..0x80 => (usize::from(low), 1),
            low => (usize::from(low & 0x7f) | usize::from(rest[1]) << 7, 2),
        };
        let (chunk, after) = rest[len.1..].split_at(len.0);
        rest = after;
        Some(chunk)
    };
    let header = chunk().unwrap();
    let root = Link::from_bytes(&header[header.len() - 9 - 36..header.len() - 9]).unwrap();
    let mut blocks = BTreeMap::new();
    while let Some(block) = chunk() {
        blocks.insert(Link::from_bytes(&block[..36]).unwrap(), block[36..].to_vec());
    }
    (root, blocks)
}

fn foreign_entries(blocks: &BTreeMap<Link, Vec<u8>>, link: Link, map: &mut Map) {
    let node: ForeignNode = serde_ipld_dagcbor::from_slice(&blocks[&link]).unwrap();
    let child = |cid: Option<cid::Cid>, map: &mut Map| {
        if let Some(cid) = cid {
            foreign_entries(blocks, Link::from_cid(&cid).unwrap(), map);
        }
    };
    child(node.l, map);
    let mut key = Vec::new();
    for entry in node.e {
        key.truncate(entry.p);
        key.extend_from_slice(&entry.k);
        map.insert(key.clone(), Link::from_cid(&entry.v).unwrap());
        child(entry.t, map);
    }
}

struct SuiteTree {
    root: Link,
    blocks: BTreeMap<Link, Vec<u8>>,
    map: Map,
}

fn suite_trees() -> Vec<SuiteTree> {
    (0..128)
        .map(|number| {
            let (root, blocks) = read_car(&fixture(&format!("mst-test-suite/cars/exhaustive_{number:03}.car")));
            let mut map = Map::new();
            foreign_entries(&blocks, root, &mut map);
            SuiteTree { root, blocks, map }
        })
        .collect()
}

#[test]
fn all_128_trees_of_the_suite_are_built_block_by_block() {
    for SuiteTree { root, blocks: expected, map } in suite_trees() {
        let sorted = map.iter().map(|(key, value)| (key.clone(), *value));
        let mut bulk: Tree = sorted.clone().collect();
        assert_eq!(bulk.seal().root, root);
        assert_eq!(blocks(&bulk).into_iter().collect::<BTreeMap<_, _>>(), expected);
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

#[derive(Deserialize)]
struct Diff {
    inputs: DiffInputs,
    results: DiffResults,
}
#[derive(Deserialize)]
struct DiffInputs {
    mst_a: String,
    mst_b: String,
}
#[derive(Deserialize)]
struct DiffResults {
    created_nodes: Vec<String>,
    deleted_nodes: Vec<String>,
    record_ops: Vec<RecordOp>,
    proof_nodes: Vec<String>,
}
#[derive(Deserialize)]
struct RecordOp {
    rpath: String,
    old_value: Option<String>,
    new_value: Option<String>,
}

fn links(texts: &[String]) -> BTreeSet<Link> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
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
    let number = |path: &str| path[path.len() - 7..path.len() - 4].parse::<usize>().unwrap();
    let mut count = 0;
    for line in BufReader::new(GzDecoder::new(&fixture("mst-test-suite/diff-exhaustive.jsonl.gz")[..])).lines() {
        let Diff { inputs, results } = serde_json::from_str(&line.unwrap()).unwrap();
        let (a, b) = (number(&inputs.mst_a), number(&inputs.mst_b));
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
        count += 1;
    }
    assert_eq!(count, 16_384);
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

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few keys, so that edits meet each other, and of all heights up to five.
    (0u32..400).prop_map(|number| format!("app.example.kind{}/{number}", number % 3).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn edits_give_the_tree_that_the_map_gives(start in prop::collection::btree_map(key(), any::<u8>(), 0..200),
                                              edits in prop::collection::vec((key(), prop::option::weighted(0.5, any::<u8>()), prop::bool::weighted(0.1)), 0..200)) {
        let value = |byte: u8| Link::of(&[byte]);
        let mut map: Map = start.into_iter().map(|(key, byte)| (key, value(byte))).collect();
        let build = |map: &Map| { let mut tree: Tree = map.clone().into_iter().collect(); let root = tree.seal().root; (tree, root) };
        let (mut tree, _) = build(&map);
        let mut before: BTreeSet<Link> = blocks(&tree).into_iter().map(|(link, _)| link).collect();
        for (key, edit, seal) in edits {
            let snapshot = (tree.clone(), map.clone());
            match edit {
                Some(byte) => prop_assert_eq!(tree.insert(&key, value(byte)), Ok(map.insert(key.clone(), value(byte)))),
                None => prop_assert_eq!(tree.remove(&key), Ok(map.remove(&key))),
            }
            prop_assert_eq!(tree.get(&key), Ok(map.get(&key).copied()));
            prop_assert_eq!(&map_of(&tree), &map);
            prop_assert_eq!(map_of(&snapshot.0), snapshot.1, "an edit reached a snapshot");
            if seal {
                let changes = tree.seal();
                let (rebuilt, root) = build(&map);
                prop_assert_eq!(changes.root, root);
                prop_assert_eq!(blocks(&tree), blocks(&rebuilt));
                let after: BTreeSet<Link> = blocks(&tree).into_iter().map(|(link, _)| link).collect();
                prop_assert_eq!(changes.created.iter().map(|(link, _)| *link).collect::<BTreeSet<_>>(), &after - &before);
                prop_assert_eq!(changes.removed.into_iter().collect::<BTreeSet<_>>(), &before - &after);
                before = after;
            }
        }
    }
}

#[test]
fn a_commit_is_the_canonical_map_that_a_general_library_writes() {
    use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
    use atproto_backfill::repo::{Curve, SigningKey};
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

        let mut car = Vec::new();
        car_header(&mut car, &link);
        car_block(&mut car, &link, &block);
        assert_eq!(read_car(&car), (link, [(link, block)].into()));
    }
}
