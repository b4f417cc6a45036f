//! The firehoses of the simulator as a client sees them that shares nothing with the library's own.
#![cfg(feature = "sim")]

mod connections;
mod cursors;
mod events;
mod faults;
#[path = "../sim_support/mod.rs"]
mod sim_support;

use std::collections::HashMap;

use atproto_backfill::repo::mst::Tree;
use atproto_backfill::repo::{Commit, Link, PublicKey, inversion};
use atproto_backfill::sim::{RandomWrites, World};
use atproto_backfill::syntax::RecordPath;
use sim_support::tap::Event;

fn path(text: &str) -> RecordPath {
    RecordPath::new(text).expect("a path")
}

fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

fn write_some(world: &World, writes: &mut RandomWrites, commits: usize) {
    for _ in 0..commits {
        writes.write(world).expect("accounts are active");
    }
}

/// Checks that the commit of an event is the account's, by every hash and the signature. Returns its rev and the root of its tree.
fn verify(event: &Event, key: &PublicKey) -> (String, Link, HashMap<String, Vec<u8>>) {
    let (root, blocks) = event.blocks();
    for (cid, block) in &blocks {
        assert_eq!(Link::of(block).to_string(), *cid, "each block has its hash");
    }
    let commit = Commit::decode(&blocks[&root]).expect("the root is a commit");
    key.verify(commit.unsigned(), commit.signature()).expect("the account signed it");
    assert_eq!(commit.did().as_str(), event.did());
    (commit.rev().to_string(), commit.data(), blocks)
}

/// Undoes the ops of a `#commit` on nothing but its slice, as the library does and in two plain orders, and checks that all end at `prevData`.
fn invert(event: &Event, data: Link, blocks: &HashMap<String, Vec<u8>>) {
    let tree = Tree::load(data, |link| blocks.get(&link.to_string()).map(Vec::as_slice)).expect("the slice holds the root");
    let mut ops = event.ops();
    for (action, path, cid, _) in &ops {
        let there = tree.get(path.as_bytes()).expect("the slice holds the way to each op").map(|link| link.to_string());
        assert_eq!(there, *cid, "the tree holds what the op says");
        assert_eq!(action == "delete", cid.is_none());
        assert!(cid.as_ref().is_none_or(|cid| blocks.contains_key(cid)), "the slice holds each record");
    }
    let linked = |cid: &Option<String>| cid.as_ref().map(|cid| cid.parse::<Link>().expect("a link"));
    let changes: Vec<_> =
        ops.iter().map(|(_, path, cid, prev)| inversion::Change { key: path.as_bytes(), cid: linked(cid), prev: linked(prev) }).collect();
    let inverted = inversion::invert(data, |link| blocks.get(&link.to_string()).map(Vec::as_slice), &changes);
    assert_eq!(inverted.map(|root| Some(root.to_string())), Ok(event.link("prevData")));
    for _ in 0..2 {
        let mut tree = tree.clone();
        ops.reverse();
        for (action, path, _, prev) in &ops {
            assert_eq!(action == "create", prev.is_none());
            match linked(prev) {
                Some(prev) => tree.insert(path.as_bytes(), prev).expect("the slice suffices"),
                None => tree.remove(path.as_bytes()).expect("the slice suffices"),
            };
        }
        assert_eq!(Some(tree.seal().root.to_string()), event.link("prevData"));
    }
}
