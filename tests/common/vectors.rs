//! Reading the fixtures that hold trees, without the code under test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};

use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::{Tree, Visit};
use flate2::read::GzDecoder;
use ipld_core::ipld::Ipld;
use serde::Deserialize;

pub type Map = BTreeMap<Vec<u8>, Link>;
pub type Blocks = BTreeMap<Link, Vec<u8>>;

pub fn fixture(path: &str) -> Vec<u8> {
    let path = format!("{}/fixtures/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The lines of a gzipped fixture, each one a JSON object.
pub fn json_lines<T: for<'de> Deserialize<'de>>(path: &str, count: usize) -> Vec<T> {
    let compressed = fixture(path);
    let lines = BufReader::new(GzDecoder::new(&compressed[..])).lines();
    let lines: Vec<T> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(lines.len(), count, "{path} has lost or gained lines");
    lines
}

/// The 127 frames of the generated firehose.
pub fn ref_frames() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(&fixture("generated/ref_frames.bin.gz")[..]).read_to_end(&mut bytes).unwrap();
    let mut rest = &bytes[..];
    let mut frames = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (frame, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        frames.push(frame.to_vec());
        rest = after;
    }
    assert_eq!(frames.len(), 127, "the generated frames have become more or fewer");
    frames
}

/// The root and the blocks of a CAR whose CIDs are all of the usual kind, and whose header names one root.
pub fn read_car(bytes: &[u8]) -> (Link, Blocks) {
    let mut rest = bytes;
    let mut chunk = || {
        let (mut len, mut shift) = (0, 0);
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            len |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let (chunk, after) = rest.split_at(len);
        rest = after;
        Some(chunk)
    };
    let Ipld::Map(header) = serde_ipld_dagcbor::from_slice(chunk().unwrap()).unwrap() else { panic!("the header is no map") };
    let Ipld::List(roots) = &header["roots"] else { panic!("the roots are no list") };
    let [Ipld::Link(root)] = &roots[..] else { panic!("not one root") };
    let mut blocks = Blocks::new();
    while let Some(block) = chunk() {
        let (cid, block) = block.split_at(36);
        blocks.insert(Link::from_bytes(cid).unwrap(), block.to_vec());
    }
    (Link::from_cid(root).unwrap(), blocks)
}

/// Collects the keys and values of a tree, reading its nodes with a general library.
pub fn foreign_entries(blocks: &Blocks, root: Link, map: &mut Map) {
    let node: BTreeMap<String, Ipld> = serde_ipld_dagcbor::from_slice(&blocks[&root]).unwrap();
    let child = |link: &Ipld, map: &mut Map| {
        if let Ipld::Link(cid) = link {
            foreign_entries(blocks, Link::from_cid(cid).unwrap(), map);
        }
    };
    child(&node["l"], map);
    let Ipld::List(entries) = &node["e"] else { panic!("the entries are no list") };
    let mut key = Vec::new();
    for entry in entries {
        let Ipld::Map(entry) = entry else { panic!("an entry is no map") };
        let (Ipld::Integer(prefix), Ipld::Bytes(suffix), Ipld::Link(value)) = (&entry["p"], &entry["k"], &entry["v"]) else {
            panic!("{entry:?}")
        };
        key.truncate(usize::try_from(*prefix).unwrap());
        key.extend_from_slice(suffix);
        map.insert(key.clone(), Link::from_cid(value).unwrap());
        child(&entry["t"], map);
    }
}

/// The node blocks of a tree, each before its children.
pub fn blocks_of(tree: &Tree) -> Vec<(Link, Vec<u8>)> {
    let mut blocks = Vec::new();
    tree.visit(|seen| {
        if let Visit::Node(link, block) = seen {
            blocks.push((link, block.to_vec()));
        }
    });
    blocks
}

pub fn map_of(tree: &Tree) -> Map {
    tree.entries().map(|(key, value)| (key.to_vec(), value)).collect()
}

pub fn links<'t>(texts: impl IntoIterator<Item = &'t String>) -> BTreeSet<Link> {
    texts.into_iter().map(|text| text.parse().unwrap()).collect()
}

/// One of the 128 trees of the mst-test-suite: all subsets of seven keys.
pub struct SuiteTree {
    pub root: Link,
    pub blocks: Blocks,
    pub map: Map,
}

pub fn suite_trees() -> Vec<SuiteTree> {
    let read = |number| {
        let (root, blocks) = read_car(&fixture(&format!("mst-test-suite/cars/exhaustive_{number:03}.car")));
        let mut map = Map::new();
        foreign_entries(&blocks, root, &mut map);
        SuiteTree { root, blocks, map }
    };
    (0..128).map(read).collect()
}

/// What the mst-test-suite says of the way from one of its trees to another.
#[derive(Deserialize)]
pub struct Diff {
    inputs: Inputs,
    pub results: Results,
}
#[derive(Deserialize)]
struct Inputs {
    mst_a: String,
    mst_b: String,
}
#[derive(Deserialize)]
pub struct Results {
    pub created_nodes: Vec<String>,
    pub deleted_nodes: Vec<String>,
    pub record_ops: Vec<RecordOp>,
    pub proof_nodes: Vec<String>,
    pub inductive_proof_nodes: Vec<String>,
}
#[derive(Deserialize)]
pub struct RecordOp {
    pub rpath: String,
    pub old_value: Option<String>,
    pub new_value: Option<String>,
}

impl Diff {
    /// The numbers of the tree before and of the one after.
    pub fn trees(&self) -> (usize, usize) {
        let number = |path: &str| path[path.len() - 7..path.len() - 4].parse().unwrap();
        (number(&self.inputs.mst_a), number(&self.inputs.mst_b))
    }
}

pub fn diffs() -> Vec<Diff> {
    json_lines("mst-test-suite/diff-exhaustive.jsonl.gz", 16_384)
}
