//! Frames as a relay sends them: commits of one op, each on a repo of a few thousand records.

use std::hint::black_box;

use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
use atproto_backfill::repo::mst::Tree;
use atproto_backfill::repo::{Curve, Link, PublicKey, SigningKey};
use atproto_backfill::syntax::{Did, Rev};
use bytes::Bytes;
use ipld_core::ipld::Ipld;
use serde_json::json;

/// How many records each repo has.
const RECORDS: u64 = 5000;
/// When the first commit is made, in microseconds since the Unix epoch.
const BEGIN: u64 = 1_790_000_000_000_000;

/// The number of the first frame: too great for four bytes, so that numbers can be replaced in place.
pub const FIRST_SEQ: u64 = 1 << 33;

/// Commits of some repos.
pub struct Input {
    pub frames: Vec<Bytes>,
    pub key: PublicKey,
}

struct Repo {
    did: Did,
    tree: Tree,
    rev: Rev,
    data: Link,
}

impl Input {
    /// So many commits of every one of so many repos, which all have the same key. Of ten commits, eight create a record, one updates and one deletes.
    pub fn new(curve: Curve, repos: u64, commits: u64) -> Self {
        let key = SigningKey::from_seed(curve, &[7; 32]);
        let mut made: Vec<Repo> = (0..repos).map(Repo::new).collect();
        let mut frames = Vec::new();
        for number in 0..commits {
            for repo in &mut made {
                frames.push(repo.commit(number, FIRST_SEQ + frames.len() as u64, &key));
            }
        }
        Self { frames, key: key.public().clone() }
    }

    /// How many bytes a frame has on average.
    pub fn frame_len(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum::<usize>() / self.frames.len()
    }
}

impl Repo {
    fn new(number: u64) -> Self {
        let mut tree: Tree = (0..RECORDS).map(|record| (path(record).into_bytes(), Link::of(&content(record, number)))).collect();
        let data = tree.seal().root;
        let id: String =
            (0..24).map(|place| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[(number as usize * 7 + place * 5) % 32])).collect();
        Self { did: Did::new(&format!("did:plc:{id}")).expect("the alphabet is that of DIDs"), tree, rev: Rev::from_parts(BEGIN, 0), data }
    }

    fn commit(&mut self, number: u64, seq: u64, key: &SigningKey) -> Bytes {
        let old = number.wrapping_mul(2_654_435_761) % RECORDS;
        let (action, record) = match number % 10 {
            7 => ("update", Some((old, content(old, number + 1_000_000)))),
            8 => ("delete", None),
            _ => ("create", Some((RECORDS + number, content(RECORDS + number, seq)))),
        };
        let path = path(record.as_ref().map_or(old, |(record, _)| *record));
        let cid = record.as_ref().map(|(_, record)| Link::of(record));
        let prev = match cid {
            Some(cid) => self.tree.insert(path.as_bytes(), cid),
            None => self.tree.remove(path.as_bytes()),
        };
        let prev = prev.expect("the tree is whole");
        let action = if action == "delete" && prev.is_none() { return self.commit(number + 2, seq, key) } else { action };
        let sealed = self.tree.seal();
        let (since, rev) = (self.rev, Rev::from_parts(BEGIN + seq, 0));
        let (root, commit) = signed_commit(&self.did, rev, sealed.root, key);
        let mut car = Vec::new();
        car_header(&mut car, &root);
        car_block(&mut car, &root, &commit);
        let proof = self.tree.proof(path.as_bytes()).expect("the tree is whole");
        let known: Vec<Link> = sealed.created.iter().map(|(link, _)| *link).collect();
        sealed
            .created
            .iter()
            .chain(proof.iter().filter(|(link, _)| !known.contains(link)))
            .for_each(|(link, block)| car_block(&mut car, link, block));
        if let (Some(cid), Some((_, record))) = (cid, &record) {
            car_block(&mut car, &cid, record);
        }
        let link = |link: Link| Ipld::Link(link.to_cid());
        let text = |text: &str| Ipld::String(text.into());
        let mut op = vec![("action", text(action)), ("path", text(&path)), ("cid", cid.map_or(Ipld::Null, link))];
        op.extend(prev.map(|prev| ("prev", link(prev))));
        let body = [
            ("seq", Ipld::Integer(seq.into())),
            ("repo", text(self.did.as_str())),
            ("rev", text(rev.as_str())),
            ("since", text(since.as_str())),
            ("commit", link(root)),
            ("blocks", Ipld::Bytes(car)),
            ("ops", Ipld::List(vec![map(op)])),
            ("prevData", link(self.data)),
            ("time", text("2026-11-30T08:45:09.123Z")),
            ("tooBig", Ipld::Bool(false)),
            ("rebase", Ipld::Bool(false)),
            ("blobs", Ipld::List(vec![])),
        ];
        (self.rev, self.data) = (rev, sealed.root);
        [b"\xa2\x61t\x67#commit\x62op\x01".to_vec(), serde_ipld_dagcbor::to_vec(&map(body)).expect("it is IPLD")].concat().into()
    }
}

fn map(pairs: impl IntoIterator<Item = (&'static str, Ipld)>) -> Ipld {
    Ipld::Map(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Paths as accounts have them: mostly likes, then posts, reposts and follows, in the order of their time.
fn path(record: u64) -> String {
    let collection = match record % 20 {
        0..=10 => "app.bsky.feed.like",
        11..=15 => "app.bsky.feed.post",
        16..=17 => "app.bsky.feed.repost",
        _ => "app.bsky.graph.follow",
    };
    format!("{collection}/{}", Rev::from_parts(BEGIN - 40_000_000_000 * (2 * RECORDS - record % (2 * RECORDS)), 7))
}

fn content(record: u64, version: u64) -> Vec<u8> {
    let cid = "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm";
    let subject = json!({"cid": cid, "uri": format!("at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3k{version:011}")});
    let value = match record % 20 {
        11..=15 => {
            json!({"$type": "app.bsky.feed.post", "text": format!("Number {version}. A line that goes on for a while, as posts do."),
                   "langs": ["en"], "createdAt": "2026-01-01T00:00:00.000Z", "reply": {"root": subject, "parent": subject}})
        }
        18.. => {
            json!({"$type": "app.bsky.graph.follow", "subject": format!("did:plc:{version:024}"), "createdAt": "2026-01-01T00:00:00.000Z"})
        }
        _ => json!({"$type": "app.bsky.feed.like", "subject": subject, "createdAt": "2026-01-01T00:00:00.000Z"}),
    };
    black_box(atproto_backfill::repo::json::from_value(&value).expect("it is a record"))
}
