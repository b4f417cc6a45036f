//! Makes a repo as its past would have left it: each record came with a commit of its own, in the order of their times.
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use rand::Rng;

use super::blocks::Blocks;
use super::content::{self, Kind};
use super::repo::{Leaf, Repo};
use super::{clock, frame, names, seed};
use crate::repo::export::{car_block, signed_commit};
use crate::repo::mst::Tree;
use crate::repo::{Link, SigningKey};
use crate::syntax::{Did, RecordPath, Rev};

/// What a repo is made from.
#[derive(Debug)]
pub(super) struct Past<'w> {
    pub(super) world: u64,
    pub(super) index: u64,
    pub(super) did: &'w Did,
    pub(super) key: &'w SigningKey,
    pub(super) records: u64,
    pub(super) collections: &'w [String],
}

/// A record, or a node or the commit, in the order of the export.
#[derive(Clone, Copy)]
struct Block {
    rev: u32,
    link: Link,
    source: Source,
}

#[derive(Clone, Copy)]
enum Source {
    Record { start: usize, end: usize },
    Node(usize),
    Commit,
}

impl Past<'_> {
    pub(super) fn make(&self) -> Repo {
        let mut records = Records::default();
        let mut rng = seed::stream(self.world, "records", self.index);
        let start = clock::EPOCH - 1_000_000 * (self.records + 1 + rng.random_range(0..100_000_000));
        let mut rev = Rev::from_parts(start, self.index as u16);
        let mut ordinal = 0;
        for record in 0..self.records {
            let micros = start + 1_000_000 * (record + 1) + rng.random_range(0..900_000);
            rev = Rev::from_parts(micros, self.index as u16);
            let (kind, collection) = content::draw(self.collections, &mut rng);
            let key = if kind == Kind::Note {
                ordinal += 1;
                names::unusual_key(&mut rng, ordinal - 1)
            } else {
                Rev::from_parts(micros, rng.random_range(0..1024)).to_string()
            };
            let at = records.raw.len();
            content::write(&mut records.raw, kind, collection, micros, &mut rng);
            records.add(format!("{collection}/{key}"), at, record as u32);
        }
        records.into_repo(self, start, rev)
    }
}

#[derive(Default)]
struct Records {
    raw: Vec<u8>,
    paths: Vec<(String, u32)>,
    /// Each distinct record, in order of time.
    blocks: Vec<Block>,
    /// Link → index in `blocks`.
    known: HashMap<Link, u32>,
}

impl Records {
    /// Takes what was appended to `raw` since `at` as a record.
    fn add(&mut self, path: String, at: usize, rev: u32) {
        let link = Link::of(&self.raw[at..]);
        let block = *self.known.entry(link).or_insert_with(|| {
            self.blocks.push(Block { rev, link, source: Source::Record { start: at, end: self.raw.len() } });
            self.blocks.len() as u32 - 1
        });
        self.paths.push((path, block));
    }

    fn into_repo(mut self, past: &Past<'_>, since: u64, rev: Rev) -> Repo {
        // Within one collection the paths are in order of time, so that this sort finds long runs.
        self.paths.sort();
        let mut tree: Tree = self.paths.iter().map(|(path, block)| (path.as_bytes(), self.blocks[*block as usize].link)).collect();
        let sealed = tree.seal();
        let (commit, signed) = signed_commit(past.did, rev, sealed.root, past.key);
        let mut order = self.blocks.clone();
        order.extend(self.nodes(&sealed.created));
        let last = past.records.saturating_sub(1) as u32;
        order.push(Block { rev: last, link: commit, source: Source::Commit });
        order.sort_unstable_by_key(|block| Reverse((block.rev, block.link)));
        let block = |source| match source {
            Source::Record { start, end } => &self.raw[start..end],
            Source::Node(node) => &sealed.created[node].1,
            Source::Commit => &signed,
        };
        let mut base = Vec::with_capacity(order.iter().map(|one| frame::len(block(one.source).len())).sum());
        // Where the frame of each record ends up: by the index of the record.
        let mut placed = vec![(0, 0); self.blocks.len()];
        for one in &order {
            let start = base.len();
            car_block(&mut base, &one.link, block(one.source));
            if let Source::Record { .. } = one.source {
                placed[self.known[&one.link] as usize] = (start, base.len());
            }
        }
        let base = Bytes::from(base);
        let leaf = |(path, block): (String, u32)| {
            let (start, end) = placed[block as usize];
            let path = RecordPath::new(&path).expect("the simulator makes valid paths");
            (path, Leaf::new(base.slice(start..end)))
        };
        let leaves: BTreeMap<RecordPath, Leaf> = self.paths.drain(..).map(leaf).collect();
        Repo::new(past.did.clone(), since, rev, sealed.root, commit, leaves, Blocks::new(base))
    }

    /// The nodes with the revs that made them: a node changes with whatever is below it.
    fn nodes(&self, nodes: &[(Link, Vec<u8>)]) -> Vec<Block> {
        let mut revs: HashMap<Link, u32> = HashMap::with_capacity(nodes.len());
        let mut blocks = Vec::with_capacity(nodes.len());
        // Parents come before their children, so from the back each child is known before its parent.
        for (index, (link, block)) in nodes.iter().enumerate().rev() {
            let below = links(block).filter_map(|link| {
                let record = self.known.get(&link).map(|&record| self.blocks[record as usize].rev);
                record.or_else(|| revs.get(&link).copied())
            });
            let rev = below.max().unwrap_or(0);
            revs.insert(*link, rev);
            blocks.push(Block { rev, link: *link, source: Source::Node(index) });
        }
        blocks
    }
}

/// The links in a canonical tree node: nothing else in one can look like a link, keys being ASCII.
fn links(block: &[u8]) -> impl Iterator<Item = Link> + '_ {
    const LINK: [u8; 5] = [0xd8, 0x2a, 0x58, 0x25, 0x00];
    let mut rest = block;
    std::iter::from_fn(move || {
        let at = rest.windows(LINK.len()).position(|window| window == LINK)?;
        let (link, after) = rest[at + LINK.len()..].split_at_checked(frame::CID_LEN)?;
        rest = after;
        Link::from_bytes(link)
    })
}
