//! Trees that are edited, loaded, and there in part only.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::{LoadError, StubReached, Tree, key_height};
use common::vectors::{Map, RecordOp, SuiteTree, blocks_of, diffs, links, map_of, suite_trees};
use proptest::prelude::*;

/// Undoes the ops of a diff, in the order given, in the part of its tree that some blocks make.
fn undo<'o>(root: Link, blocks: &BTreeMap<Link, Vec<u8>>, ops: impl IntoIterator<Item = &'o RecordOp>) -> Result<Link, StubReached> {
    let mut tree = Tree::load(root, |link| blocks.get(link).map(Vec::as_slice)).unwrap();
    for op in ops {
        match &op.old_value {
            Some(old) => tree.insert(op.rpath.as_bytes(), old.parse().unwrap())?,
            None => tree.remove(op.rpath.as_bytes())?,
        };
    }
    Ok(tree.seal().root)
}

#[test]
fn the_part_of_a_tree_that_proves_a_diff_is_enough_to_undo_it() {
    let trees = suite_trees();
    let (mut by_height, mut backwards, mut by_path) = (0, 0, 0);
    for diff in diffs() {
        let ((a, b), results) = (diff.trees(), &diff.results);
        let (before, after) = (&trees[a], &trees[b]);
        let kept = links(&results.inductive_proof_nodes);
        let blocks = after.blocks.iter().filter(|(link, _)| kept.contains(link)).map(|(link, block)| (*link, block.clone())).collect();
        let mut ops: Vec<&RecordOp> = results.record_ops.iter().collect();
        if ops.is_empty() {
            continue;
        }
        let count = |counter: &mut u32, ops: &[&RecordOp]| {
            if let Ok(root) = undo(after.root, &blocks, ops.iter().copied()) {
                assert_eq!(root, before.root, "{a} to {b}");
                *counter += 1;
            }
        };
        ops.reverse();
        count(&mut backwards, &ops);
        ops.reverse();
        ops.sort_by_key(|op| op.new_value.is_some());
        count(&mut by_path, &ops);
        ops.sort_by_key(|op| op.new_value.as_ref().map(|_| key_height(op.rpath.as_bytes())));
        count(&mut by_height, &ops);
    }
    // 128 of the 16,384 diffs are empty. An independent program undid 16,384 in the first two orders and 16,041 in the third.
    assert_eq!((by_height, backwards, by_path), (16_384 - 128, 16_384 - 128, 16_041 - 128));
}

#[test]
fn a_loaded_tree_is_the_tree() {
    for SuiteTree { root, blocks, map } in suite_trees() {
        let mut tree = Tree::load(root, |link| blocks.get(link).map(Vec::as_slice)).unwrap();
        assert_eq!(map_of(&tree), map);
        assert_eq!((tree.seal().created, tree.seal().root), (vec![], root));
        for missing in blocks.keys() {
            let partial = Tree::load(root, |link| blocks.get(link).filter(|_| link != missing).map(Vec::as_slice));
            if *missing == root {
                assert_eq!(partial.unwrap_err(), LoadError::Root(root));
                continue;
            }
            let mut partial = partial.unwrap();
            assert_eq!(partial.seal().root, root);
            for (key, value) in &map {
                let found = partial.get(key);
                assert!(found == Ok(Some(*value)) || found == Err(StubReached(*missing)), "{found:?}");
            }
        }
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
        let mut before: BTreeSet<Link> = blocks_of(&tree).into_iter().map(|(link, _)| link).collect();
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
                prop_assert_eq!(blocks_of(&tree), blocks_of(&rebuilt));
                let after: BTreeSet<Link> = blocks_of(&tree).into_iter().map(|(link, _)| link).collect();
                prop_assert_eq!(changes.created.iter().map(|(link, _)| *link).collect::<BTreeSet<_>>(), &after - &before);
                prop_assert_eq!(changes.removed.into_iter().collect::<BTreeSet<_>>(), &before - &after);
                before = after;
            }
        }
    }
}
