//! Repos to read: synthetic records of four collections under TID keys, signed, as CAR files in three block orders.

use std::cmp::Reverse;
use std::collections::HashMap;

use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
use atproto_backfill::repo::mst::{Tree, Visit};
use atproto_backfill::repo::{Curve, Link, SigningKey, json};
use atproto_backfill::syntax::{Did, Rev};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The order of the blocks in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each node before what is in it, in key order: what the specification calls streamable.
    Key,
    /// As the reference PDS exports: by the rev that wrote a block, the newest first, then by CID.
    Reference,
    /// At random.
    Shuffled,
}

impl Order {
    pub(crate) const ALL: [Self; 3] = [Self::Key, Self::Reference, Self::Shuffled];
}

/// One repo.
pub(crate) struct Repo {
    pub(crate) did: Did,
    pub(crate) key: SigningKey,
    commit: (Link, Vec<u8>),
    /// Every block but the commit in streamable order, with the rev that wrote it.
    blocks: Vec<(u64, Link, Vec<u8>)>,
}

impl Repo {
    /// A repo of so many records; the same for the same number.
    pub(crate) fn new(records: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(records);
        let (mut tree, mut written) = (Tree::new(), HashMap::new());
        for number in 0..records {
            let (path, block) = record(number, &mut random);
            let link = Link::of(&block);
            tree.insert(path.as_bytes(), link).expect("the tree has no stubs");
            written.insert(link, (number, block));
        }
        let root = tree.seal().root;
        let mut blocks = Vec::new();
        tree.visit(|visit| match visit {
            Visit::Node(link, block) => blocks.push((None, link, block.to_vec())),
            Visit::Record(_, link) => {
                let (rev, block) = written.remove(&link).expect("no two records are equal");
                blocks.push((Some(rev), link, block));
            }
        });
        // A node is written when the last record below it is; the one that follows it in key order stands for that.
        let mut rev = 0;
        let dated = blocks.into_iter().rev().map(|(own, link, block)| {
            rev = own.unwrap_or(rev);
            (rev, link, block)
        });
        let mut blocks: Vec<_> = dated.collect();
        blocks.reverse();
        let did = Did::new("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("it is a DID");
        let key = SigningKey::from_seed(Curve::K256, &[7; 32]);
        let commit = signed_commit(&did, Rev::from_parts(1_760_000_000_000_000, 1), root, &key);
        Self { did, key, commit, blocks }
    }

    /// The repo as a CAR file.
    pub(crate) fn car(&self, order: Order) -> Vec<u8> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        match order {
            Order::Key => {}
            Order::Reference => blocks.sort_by_key(|block| Reverse((block.0, block.1))),
            Order::Shuffled => blocks.shuffle(&mut ChaCha8Rng::seed_from_u64(1)),
        }
        let mut car = Vec::new();
        car_header(&mut car, &self.commit.0);
        car_block(&mut car, &self.commit.0, &self.commit.1);
        blocks.into_iter().for_each(|(_, link, block)| car_block(&mut car, link, block));
        car
    }
}

fn record(number: u64, random: &mut ChaCha8Rng) -> (String, Vec<u8>) {
    let collection = match random.random_range(0..10) {
        0 => "app.bsky.graph.follow",
        1 => "app.bsky.feed.repost",
        2..=4 => "app.bsky.feed.post",
        _ => "app.bsky.feed.like",
    };
    let key = Rev::from_parts(1_700_000_000_000_000 + number * 61_000_017, random.random_range(0..32));
    let text: String = (0..random.random_range(20..160)).map(|_| random.random_range('a'..='z')).collect();
    let value = serde_json::json!({
        "$type": collection, "createdAt": "2026-01-01T00:00:00.000Z", "text": text,
        "subject": format!("at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/{collection}/{key}"),
    });
    (format!("{collection}/{key}"), json::from_value(&value).expect("it is a record"))
}
