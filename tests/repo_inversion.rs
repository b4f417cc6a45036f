//! Undoing the ops of commits on the part of the tree that proves them.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use atproto_backfill::repo::Link;
use atproto_backfill::repo::inversion::{Change, InversionError, invert, resolve};
use atproto_backfill::repo::mst::{StubReached, Tree, key_height};
use common::vectors::{Blocks, Map, blocks_of, diffs, fixture, links, suite_trees};
use proptest::prelude::*;
use serde::Deserialize;

/// An op with its own bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Op {
    key: Vec<u8>,
    cid: Option<Link>,
    prev: Option<Link>,
}

fn changes(ops: &[Op]) -> Vec<Change<'_>> {
    ops.iter().map(|op| Change { key: &op.key, cid: op.cid, prev: op.prev }).collect()
}

fn invert_in(blocks: &Blocks, data: Link, ops: &[Op]) -> Result<Link, InversionError> {
    invert(data, |link| blocks.get(link).map(Vec::as_slice), &changes(ops))
}

/// As whoever knows the root before: it need not be there.
fn invert_from(before: Link, blocks: &Blocks, data: Link, ops: &[Op]) -> Result<Link, InversionError> {
    match invert_in(blocks, data, ops) {
        Err(InversionError::Unseen(root)) if root == before => Ok(root),
        inverted => inverted,
    }
}

fn resolve_in(blocks: &Blocks, data: Link, ops: &[Op]) -> Result<(), InversionError> {
    resolve(data, |link| blocks.get(link).map(Vec::as_slice), &changes(ops))
}

fn selection(blocks: impl IntoIterator<Item = (Link, Vec<u8>)>, kept: &BTreeSet<Link>) -> Blocks {
    blocks.into_iter().filter(|(link, _)| kept.contains(link)).collect()
}

#[test]
fn all_16384_diffs_of_the_suite_invert_from_their_minimal_proofs() {
    let trees = suite_trees();
    let mut inverted = 0;
    for diff in diffs() {
        let ((a, b), results) = (diff.trees(), &diff.results);
        let blocks = selection(trees[b].blocks.clone(), &links(&results.inductive_proof_nodes));
        let parse = |value: &Option<String>| value.as_ref().map(|text| text.parse().unwrap());
        let mut ops: Vec<Op> = results
            .record_ops
            .iter()
            .map(|op| Op { key: op.rpath.clone().into_bytes(), cid: parse(&op.new_value), prev: parse(&op.old_value) })
            .collect();
        let before = trees[a].root;
        assert_eq!(invert_from(before, &blocks, trees[b].root, &ops), Ok(before), "{a} to {b}");
        ops.reverse();
        assert_eq!(invert_from(before, &blocks, trees[b].root, &ops), Ok(before), "{a} to {b}, the ops given backwards");
        inverted += 1;
    }
    assert_eq!(inverted, 16_384);
}

#[test]
fn the_interop_commit_proofs_invert() {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Proof {
        comment: String,
        leaf_value: String,
        keys: Vec<String>,
        adds: Vec<String>,
        dels: Vec<String>,
        root_before_commit: String,
        root_after_commit: String,
        blocks_in_proof: Vec<String>,
    }
    let proofs: Vec<Proof> = serde_json::from_slice(&fixture("interop/firehose/commit-proof-fixtures.json")).unwrap();
    assert_eq!(proofs.len(), 6);
    for proof in proofs {
        let leaf: Link = proof.leaf_value.parse().unwrap();
        let mut tree: Tree = proof.keys.iter().map(|key| (key.as_bytes(), leaf)).collect();
        let before = tree.seal().root;
        assert_eq!(before.to_string(), proof.root_before_commit, "{}", proof.comment);
        let created = proof.adds.iter().map(|key| Op { key: key.clone().into_bytes(), cid: Some(leaf), prev: None });
        let deleted = proof.dels.iter().map(|key| Op { key: key.clone().into_bytes(), cid: None, prev: Some(leaf) });
        let ops: Vec<Op> = created.chain(deleted).collect();
        apply(&mut tree, &ops);
        let after = tree.seal().root;
        assert_eq!(after.to_string(), proof.root_after_commit, "{}", proof.comment);
        let blocks = selection(blocks_of(&tree), &links(&proof.blocks_in_proof));
        assert_eq!(invert_in(&blocks, after, &ops), Ok(before), "{}", proof.comment);
    }
}

fn apply(tree: &mut Tree, ops: &[Op]) {
    for op in ops {
        let found = match op.cid {
            Some(cid) => tree.insert(&op.key, cid),
            None => tree.remove(&op.key),
        };
        assert_eq!(found, Ok(op.prev));
    }
}

fn value(byte: u8) -> Link {
    Link::of(&[byte])
}

/// The first keys of a height.
fn keys_at(height: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..).map(|number| format!("app.example.record/{number:06}").into_bytes()).filter(move |key| key_height(key) == height)
}

#[test]
fn a_tree_that_collapses_to_a_node_that_is_not_there_may_be_that_node() {
    let low: Vec<Vec<u8>> = keys_at(0).take(3).collect();
    let high = keys_at(2).find(|key| key > &low[2]).unwrap();
    let mut tree: Tree = low.iter().map(|key| (key.clone(), value(1))).collect();
    let before = tree.seal().root;
    let ops = [Op { key: high, cid: Some(value(2)), prev: None }];
    apply(&mut tree, &ops);
    let after = tree.seal().root;
    // The new root and the node that makes up for the missing layer; the root before is only named by it.
    let blocks: Blocks = blocks_of(&tree).into_iter().filter(|(link, _)| *link != before).collect();
    assert_eq!(blocks.len(), 2);
    assert_eq!(invert_in(&blocks, after, &ops), Err(InversionError::Unseen(before)));
    // Nor is that node told from one that only leads to the root.
    let between: Blocks = blocks.iter().filter(|(link, _)| **link == after).map(|(link, block)| (*link, block.clone())).collect();
    let unseen = *blocks.keys().find(|link| **link != after).unwrap();
    assert_eq!(invert_in(&between, after, &ops), Err(InversionError::Unseen(unseen)));

    // Whoever goes on to edit within it needs it.
    let also = Op { key: low[1].clone(), cid: Some(value(1)), prev: None };
    assert!(
        matches!(invert_in(&blocks, after, &[ops[0].clone(), also]), Err(InversionError::Insufficient(missing)) if missing.0 == before)
    );
}

#[test]
fn a_commit_without_ops_needs_no_nodes() {
    let root = value(9);
    assert_eq!(invert_in(&Blocks::new(), root, &[]), Ok(root));
    let unchanged = Op { key: b"app.example.record/1".to_vec(), cid: Some(value(1)), prev: Some(value(1)) };
    assert_eq!(invert_in(&Blocks::new(), root, std::slice::from_ref(&unchanged)), Ok(root));
    let changed = Op { prev: Some(value(2)), ..unchanged };
    assert!(matches!(invert_in(&Blocks::new(), root, &[changed]), Err(InversionError::Insufficient(missing)) if missing.0 == root));
}

#[test]
fn a_key_created_on_a_wrong_layer_is_not_proven() {
    // One node that claims to be of the layer of its first key, and holds one of another layer as well.
    let first = keys_at(0).next().unwrap();
    let stray = keys_at(1).find(|key| key > &first).unwrap();
    let shared = first.iter().zip(&stray).take_while(|(one, other)| one == other).count();
    let mut node = b"\xa2\x61e\x82".to_vec();
    for (prefix, suffix) in [(0, &first[..]), (shared, &stray[shared..])] {
        node.extend_from_slice(&[0xa4, 0x61, b'k', 0x58, suffix.len() as u8]);
        if suffix.len() < 24 {
            let at = node.len() - 2;
            node.splice(at.., [0x40 | suffix.len() as u8]);
        }
        node.extend_from_slice(suffix);
        node.extend_from_slice(b"\x61p");
        node.extend_from_slice(if prefix < 24 { vec![prefix as u8] } else { vec![0x18, prefix as u8] }.as_slice());
        node.extend_from_slice(b"\x61t\xf6\x61v\xd8\x2a\x58\x25\x00\x01\x71\x12\x20");
        node.extend_from_slice(value(1).digest());
    }
    node.extend_from_slice(b"\x61l\xf6");
    let (root, blocks) = (Link::of(&node), Blocks::from([(Link::of(&node), node)]));
    let create = |key: &Vec<u8>| Op { key: key.clone(), cid: Some(value(1)), prev: None };
    assert!(matches!(invert_in(&blocks, root, &[create(&stray)]), Err(InversionError::Contradiction { .. })));
    assert!(Tree::load(root, |link| blocks.get(link).map(Vec::as_slice)).is_err());
    // What is left when the other is undone would be a tree that follows the rules, were its root not found to be a layer too low.
    assert!(matches!(invert_in(&blocks, root, &[create(&first)]), Err(InversionError::Tree(_))));
}

/// The root before ops, undone one by one.
fn undo_on_a_tree(blocks: &Blocks, data: Link, ops: &[Op]) -> Option<Link> {
    let mut tree = Tree::load(data, |link| blocks.get(link).map(Vec::as_slice)).ok()?;
    for op in ops {
        match op.prev {
            Some(prev) => tree.insert(&op.key, prev).ok()?,
            None => tree.remove(&op.key).ok()?,
        };
    }
    Some(tree.seal().root)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few keys, so that ops meet each other's neighbours, and of all heights up to five.
    (0u32..600).prop_map(|number| format!("app.example.kind{}/{number}", number % 3).into_bytes())
}

/// A tree before a commit, its ops, and the commit's part of the tree after it: what it changed and the proof of every key.
#[derive(Debug, Clone)]
struct Case {
    before: Link,
    after: Link,
    ops: Vec<Op>,
    blocks: Blocks,
}

fn case() -> impl Strategy<Value = Case> {
    let records = prop::collection::btree_map(key(), any::<u8>(), 0..150);
    let wanted = prop::collection::btree_map(key(), prop::option::weighted(0.5, any::<u8>()), 1..20);
    (records, wanted).prop_map(|(records, wanted)| {
        let map: Map = records.into_iter().map(|(key, byte)| (key, value(byte))).collect();
        let mut tree: Tree = map.clone().into_iter().collect();
        let before = tree.seal().root;
        let ops = wanted.into_iter().map(|(key, byte)| Op { prev: map.get(&key).copied(), key, cid: byte.map(value) });
        let ops: Vec<Op> = ops.filter(|op| op.cid != op.prev).collect();
        apply(&mut tree, &ops);
        let sealed = tree.seal();
        let proofs = ops.iter().flat_map(|op| tree.proof(&op.key).unwrap());
        let blocks: Blocks = proofs.chain(sealed.created).collect();
        Case { before, after: sealed.root, ops, blocks }
    })
}

/// Another list of ops, which tells another change of the tree.
fn lie(ops: &[Op], kind: u8, at: usize, key: Vec<u8>, byte: u8) -> Vec<Op> {
    let mut lying = ops.to_vec();
    let stray = Op { key, cid: Some(value(byte)), prev: None };
    let known = |key: &[u8]| ops.iter().any(|op| op.key == key);
    if ops.is_empty() {
        return vec![stray];
    }
    let op = &mut lying[at % ops.len()];
    match kind % 8 {
        0 => drop(lying.remove(at % ops.len())),
        1 => op.cid = op.cid.map(|_| value(byte)),
        2 => op.prev = op.prev.map(|_| value(byte)),
        3 => op.prev = None,
        4 => op.cid = None,
        5 if !known(&stray.key) => op.key = stray.key,
        6 if !known(&stray.key) => lying.push(stray),
        7 if !known(&stray.key) => lying.push(Op { prev: stray.cid, cid: None, ..stray }),
        _ => (op.cid, op.prev) = (op.prev, op.cid),
    }
    lying
}

/// What a list of ops does, as a set: the order does not matter, nor do ops that do nothing.
fn told(ops: &[Op]) -> BTreeMap<&[u8], (Option<Link>, Option<Link>)> {
    ops.iter().filter(|op| op.cid != op.prev).map(|op| (op.key.as_slice(), (op.cid, op.prev))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_a_commit_changed_and_the_proofs_of_its_keys_are_enough_to_undo_it(case in case()) {
        prop_assert_eq!(invert_in(&case.blocks, case.after, &case.ops), Ok(case.before));
        prop_assert_eq!(resolve_in(&case.blocks, case.after, &case.ops), Ok(()));
    }

    #[test]
    fn ops_that_lie_never_invert_to_the_root_before(case in case(), kind in any::<u8>(), at in any::<usize>(), key in key(), byte in any::<u8>()) {
        let lying = lie(&case.ops, kind, at, key, byte);
        if told(&lying) != told(&case.ops) {
            prop_assert_ne!(invert_in(&case.blocks, case.after, &lying), Ok(case.before));
        }
    }

    #[test]
    fn with_fewer_nodes_it_is_the_right_root_or_none(case in case(), missing in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let mut blocks = case.blocks.clone();
        let links: Vec<Link> = blocks.keys().copied().collect();
        let gone: BTreeSet<Link> = missing.iter().filter(|_| !links.is_empty()).map(|missing| links[missing.index(links.len())]).collect();
        blocks.retain(|link, _| !gone.contains(link));
        let inverted = invert_from(case.before, &blocks, case.after, &case.ops);
        // Whatever suffices for undoing the ops on a tree, in one of the two orders that hosts make their proofs for, suffices here.
        let mut backwards = case.ops.clone();
        backwards.reverse();
        let mut by_height = case.ops.clone();
        by_height.sort_by_key(|op| op.prev.is_none().then(|| key_height(&op.key)));
        for order in [by_height, backwards] {
            if undo_on_a_tree(&blocks, case.after, &order) == Some(case.before) {
                prop_assert_eq!(&inverted, &Ok(case.before));
            }
        }
        match inverted {
            Ok(root) => prop_assert_eq!(root, case.before),
            Err(InversionError::Insufficient(StubReached(link)) | InversionError::Unseen(link)) => prop_assert!(gone.contains(&link) || links.is_empty()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
