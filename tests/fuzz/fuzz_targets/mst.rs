//! Blocks as a tree, with hashes that are right. A tree that is accepted is the one that its entries make, block by block; the readers of trees agree, however
//! the blocks lie in the file; and undoing changes finds the tree that editing finds.
#![no_main]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use atproto_backfill::fetch::SpoolOptions;
use atproto_backfill::repo::Link;
use atproto_backfill::repo::inversion::{Change, invert};
use atproto_backfill::repo::mst::Tree;
use atproto_backfill_fuzz::walked::{Walked, spooled, walk};
use atproto_backfill_fuzz::{Block, blocks, car, plain};
use libfuzzer_sys::fuzz_target;

type ByLink<'b> = HashMap<Link, &'b [u8]>;

fuzz_target!(|input: &[u8]| {
    let blocks = blocks(input);
    let Some(&(root, _)) = blocks.last() else { return };
    let by_link: ByLink<'_> = blocks.iter().map(|(link, block)| (*link, &block[..])).collect();
    let is_whole = Cell::new(true);
    let find = |link: &Link| {
        let found = by_link.get(link).copied();
        is_whole.set(is_whole.get() && found.is_some());
        found
    };
    let loaded = Tree::load(root, find);
    let whole = loaded.as_ref().ok().filter(|_| is_whole.get());
    // Of a tree with parts missing the entries do not tell the whole.
    if let Some(tree) = whole {
        made_anew(tree, root);
    }
    walked(root, &blocks, &by_link, whole);
    if let Ok(tree) = &loaded {
        undone(root, &blocks, &by_link, tree, whole.is_some());
    }
});

/// The tree of the same entries, put in one by one.
fn made_anew(tree: &Tree, root: Link) {
    let entries = entries(tree);
    assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys that do not rise");
    let mut made = Tree::new();
    for (key, value) in &entries {
        made.insert(key, *value).expect("a tree without stubs");
    }
    assert_eq!(made.seal().root, root, "another tree of the same entries was accepted");
}

fn entries(tree: &Tree) -> Vec<(Vec<u8>, Link)> {
    tree.entries().map(|(key, value)| (key.to_vec(), value)).collect()
}

fn walk_of<'b>(root: Link, blocks: impl IntoIterator<Item = &'b Block>, batch: usize) -> (bool, Walked) {
    let checkout =
        spooled([&car(root, blocks)[..]], SpoolOptions::default()).expect("blocks with their hashes and a commit are a checkout");
    (checkout.is_streamable(), walk(&checkout, batch))
}

/// The walk of a checkout, with the blocks in the file as they are, the other way round, and in the order of the walk.
fn walked(root: Link, blocks: &[Block], by_link: &ByLink<'_>, whole: Option<&Tree>) {
    let (_, walked) = walk_of(root, blocks, 5);
    let (_, reversed) = walk_of(root, blocks.iter().rev(), 3);
    let common = walked.records.iter().zip(&reversed.records).all(|(one, other)| one == other);
    assert!(common && walked.end.is_ok() == reversed.end.is_ok(), "{walked:?}, the other way round {reversed:?}");
    let complete = whole.filter(|tree| tree.entries().all(|(_, value)| by_link.contains_key(&value)));
    if walked.end.is_err() {
        assert!(complete.is_none(), "{:?} is said of a tree that is whole", walked.end);
        return;
    }
    assert_eq!(walked, reversed);
    let plain = plain::read(root, by_link);
    assert_eq!(walked.records.len() as u64 + walked.dropped, plain.entries.len() as u64);
    let mut found = walked.records.iter().peekable();
    for (key, link) in &plain.entries {
        if found.next_if(|(path, _)| path.as_bytes() == key).is_some_and(|(_, told)| Some(*told) != *link) {
            panic!("the walk tells another record than the tree has at {key:?}");
        }
    }
    assert_eq!(found.next(), None, "the walk tells what is not in the tree");
    if plain.entries.iter().all(|(_, link)| link.is_some()) {
        let tree = whole.expect("a tree that was walked to its end can be loaded");
        assert!(entries(tree).into_iter().eq(plain.entries.iter().filter_map(|(key, link)| Some((key.clone(), (*link)?)))));
    }
    // What is dropped need not be there.
    let in_order: Option<Vec<Block>> = plain.order.iter().map(|link| Some((*link, by_link.get(link)?.to_vec()))).collect();
    if let Some(in_order) = in_order {
        assert_eq!(walk_of(root, &in_order, 4), (true, walked));
    } else {
        assert!(walked.dropped > 0, "a record is missing that was not dropped");
    }
}

/// Takes some of the entries as created or updated and others as deleted, and undoes that.
fn undone(root: Link, blocks: &[Block], by_link: &ByLink<'_>, tree: &Tree, is_whole: bool) {
    let choice = blocks.first().map_or(&[][..], |(_, block)| block);
    let other = Link::of(choice);
    let mut changes: BTreeMap<Vec<u8>, (Option<Link>, Option<Link>)> = BTreeMap::new();
    for ((key, value), choice) in tree.entries().zip(choice.iter().cycle()) {
        match choice % 4 {
            0 => drop(changes.insert(key.to_vec(), (Some(value), None))),
            1 => drop(changes.insert(key.to_vec(), (Some(value), Some(other)))),
            2 if key.len() < 1000 => drop(changes.insert([key, &[*choice]].concat(), (None, Some(other)))),
            _ => {}
        }
    }
    let held: BTreeMap<&[u8], Link> = tree.entries().collect();
    changes.retain(|key, (cid, _)| cid.is_some() || !held.contains_key(&key[..]));
    let mut before = tree.clone();
    let edited = changes.iter().try_for_each(|(key, (_, prev))| match prev {
        Some(prev) => before.insert(key, *prev).map(drop),
        None => before.remove(key).map(drop),
    });
    let mut told: Vec<Change<'_>> = changes.iter().map(|(key, (cid, prev))| Change { key, cid: *cid, prev: *prev }).collect();
    let find = |link: &Link| by_link.get(link).copied();
    let inverted = invert(root, find, &told);
    match (edited, &inverted) {
        (Ok(()), Ok(found)) => assert_eq!(*found, before.seal().root, "undone is another tree than edited"),
        (_, Err(error)) => assert!(!is_whole, "changes of a whole tree cannot be undone: {error}"),
        (Err(_), Ok(_)) => {}
    }
    if let Some(change) = told.iter_mut().find(|change| change.cid.is_some()) {
        change.cid = Some(Link::of(b"a lie"));
        invert(root, find, &told).expect_err("a change that names another record than the tree has");
    }
}
