//! Commits that the reference implementation made, one after the other, from its empty repo on.

mod common;

use std::collections::BTreeSet;

use atproto_backfill::repo::mst::Tree;
use atproto_backfill::repo::{Link, PublicKey, json, record};
use common::vectors::{Blocks, json_lines, read_car};
use ipld_core::ipld::Ipld;
use serde::Deserialize;
use serde_json::Value;

/// A `#commit` of the firehose, in JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    repo: String,
    rev: String,
    since: String,
    commit: JsonLink,
    blocks: JsonBytes,
    ops: Vec<Op>,
    prev_data: JsonLink,
    key: String,
}
#[derive(Deserialize)]
struct Op {
    action: String,
    path: String,
    cid: Option<JsonLink>,
    prev: Option<JsonLink>,
}
#[derive(Deserialize, Clone, Copy)]
struct JsonLink {
    #[serde(rename = "$link", deserialize_with = "link")]
    link: Link,
}
#[derive(Deserialize)]
struct JsonBytes {
    #[serde(rename = "$bytes")]
    base64: String,
}

fn link<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Link, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

impl Event {
    fn blocks(&self) -> Blocks {
        use base64::Engine;
        let car = base64::engine::general_purpose::STANDARD_NO_PAD.decode(self.blocks.base64.trim_end_matches('=')).unwrap();
        let (root, blocks) = read_car(&car);
        assert_eq!(root, self.commit.link);
        assert!(blocks.iter().all(|(link, block)| Link::of(block) == *link));
        blocks
    }

    /// Checks the commit block and answers its tree's root.
    fn commit(&self, blocks: &Blocks) -> Link {
        let Ipld::Map(mut commit) = serde_ipld_dagcbor::from_slice(&blocks[&self.commit.link]).unwrap() else { panic!("not a map") };
        let Some(Ipld::Bytes(signature)) = commit.remove("sig") else { panic!("no signature") };
        let key = PublicKey::from_did_key(&self.key).unwrap();
        let mut unsigned = serde_ipld_dagcbor::to_vec(&commit).unwrap();
        assert_eq!(key.verify(&unsigned, &signature), Ok(()), "{}", self.rev);
        unsigned[20] ^= 1;
        assert!(key.verify(&unsigned, &signature).is_err());
        assert_eq!((&commit["did"], &commit["rev"]), (&Ipld::String(self.repo.clone()), &Ipld::String(self.rev.clone())));
        let Ipld::Link(data) = commit["data"] else { panic!("no data") };
        Link::from_cid(&data).unwrap()
    }

    /// Makes the ops, and checks their records.
    fn apply(&self, tree: &mut Tree, blocks: &Blocks) {
        for op in &self.ops {
            let previous = op.prev.map(|prev| prev.link);
            let key = op.path.as_bytes();
            let found = match op.cid {
                Some(JsonLink { link }) => {
                    let block = &blocks[&link];
                    assert_eq!(record::check(block), Ok(()));
                    let value: Value = json::to_value(block).unwrap();
                    assert_eq!(json::from_value(&value).as_ref(), Ok(block));
                    tree.insert(key, link)
                }
                None => tree.remove(key),
            };
            assert_eq!(found, Ok(previous), "{} {}", op.action, op.path);
        }
    }

    /// Undoes the ops in the part of the tree that the commit brings.
    fn undo(&self, data: Link, blocks: &Blocks) -> Link {
        let mut tree = Tree::load(data, |link| blocks.get(link).map(Vec::as_slice)).unwrap();
        for op in self.ops.iter().rev() {
            let found = match op.prev {
                Some(prev) => tree.insert(op.path.as_bytes(), prev.link),
                None => tree.remove(op.path.as_bytes()),
            };
            assert_eq!(found, Ok(op.cid.map(|cid| cid.link)));
        }
        tree.seal().root
    }
}

#[test]
fn a_history_of_the_reference_implementation_is_followed_commit_by_commit() {
    let mut tree = Tree::new();
    let (mut data, mut rev) = (tree.seal().root, None);
    for event in json_lines::<Event>("generated/ref_commits.jsonl.gz", 120) {
        assert_eq!(event.prev_data.link, data, "{}", event.rev);
        assert!(rev.is_none_or(|rev| rev == event.since), "{}", event.rev);
        let blocks = event.blocks();
        data = event.commit(&blocks);
        event.apply(&mut tree, &blocks);
        let sealed = tree.seal();
        assert_eq!(sealed.root, data, "{}", event.rev);
        assert_eq!(event.undo(data, &blocks), event.prev_data.link);

        // The reference implementation sends the new nodes and the proofs of all paths of the commit.
        let records = event.ops.iter().filter_map(|op| op.cid).map(|cid| cid.link);
        let proofs = event.ops.iter().flat_map(|op| tree.proof(op.path.as_bytes()).unwrap()).map(|(link, _)| link);
        let sent: BTreeSet<Link> =
            sealed.created.iter().map(|(link, _)| *link).chain(proofs).chain(records).chain([event.commit.link]).collect();
        assert_eq!(sent, blocks.keys().copied().collect(), "{}", event.rev);
        for (link, block) in sealed.created {
            assert_eq!(blocks[&link], block);
        }
        rev = Some(event.rev);
    }
    assert_eq!(rev.as_deref(), Some("3n3inktkstc2m"));
}
