//! Writes what each target begins with into a folder of its name below the one that is given: made from `fixtures`.

use std::io::Read;
use std::path::{Path, PathBuf};

use atproto_backfill::job::{Op, OpAction, OpSet};
use atproto_backfill::manifest::{Builder, encode_paths};
use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::Tree;
use atproto_backfill::syntax::{Did, RecordPath, Rev};
use atproto_backfill_fuzz::input;

/// The largest CAR that is taken, in bytes: larger ones make a fuzzer slow.
const LARGEST: usize = 40_000;
/// Messages of a firehose that are taken: every so manieth.
const EVERY: usize = 8;

fn main() -> std::io::Result<()> {
    let to = PathBuf::from(std::env::args().nth(1).expect("a folder"));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    for car in std::fs::read_dir(fixtures.join("cars"))? {
        let bytes = std::fs::read(car?.path())?;
        if bytes.len() <= LARGEST {
            write(&to, "car", &bytes)?;
        }
    }
    let mut frames = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(fixtures.join("generated/ref_frames.bin.gz"))?).read_to_end(&mut frames)?;
    for frame in split(&frames).into_iter().step_by(EVERY) {
        write(&to, "frame", frame)?;
    }
    for records in [0, 1, 2, 5, 40] {
        let paths: Vec<RecordPath> = (0..records).map(path).collect();
        write(&to, "manifest", &encode_paths(&paths).expect("in order"))?;
        write(&to, "manifest", &op_set(&paths).encode())?;
        write(&to, "mst", &tree(&paths))?;
        let mut builder = Builder::default();
        for (n, path) in paths.iter().enumerate() {
            builder.push(path.as_ref(), Link::of(&n.to_le_bytes())).expect("in order");
        }
        if let Some(chunk) = builder.finish() {
            let mut bytes = format!("{}\n", chunk.first.as_str()).into_bytes();
            bytes.push((chunk.entries - 1) as u8);
            bytes.extend_from_slice(&chunk.bytes);
            write(&to, "manifest", &bytes)?;
        }
    }
    Ok(())
}

fn path(n: u64) -> RecordPath {
    RecordPath::new(&format!("app.bsky.feed.post/{}", Rev::from_parts(1_700_000_000_000_000 + n * 7_654_321, 3))).expect("a path")
}

/// An op set that creates, updates and deletes them in turn.
fn op_set(paths: &[RecordPath]) -> OpSet {
    let (cid, record) = (Link::of(b"\xa0"), bytes::Bytes::from_static(b"\xa0"));
    let actions = [OpAction::Create { cid, record: record.clone() }, OpAction::Update { cid, record }, OpAction::Delete];
    let ops = paths.iter().zip(actions.into_iter().cycle()).map(|(path, action)| Op { path: path.clone(), action }).collect();
    let rev = Rev::from_parts(1_700_000_000_000_000, 1);
    let did = Did::new("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("a DID");
    OpSet { did, rev, since: (paths.len() > 1).then_some(rev), data: Some(cid), prev_data: (paths.len() > 2).then_some(cid), ops }
}

/// A tree of these records, which are empty maps, children before their parents.
fn tree(paths: &[RecordPath]) -> Vec<u8> {
    let record = vec![0xa0];
    let mut tree = Tree::new();
    for path in paths {
        tree.insert(path.as_str().as_bytes(), Link::of(&record)).expect("a tree without stubs");
    }
    let sealed = tree.seal();
    let mut blocks = vec![(Link::of(&record), record)];
    blocks.extend(sealed.created.into_iter().rev());
    blocks.sort_by_key(|(link, _)| *link == sealed.root);
    input(&blocks)
}

/// Messages, each behind its length in four bytes.
fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(4) {
        let length = u32::from_be_bytes(head.try_into().expect("four bytes")) as usize;
        let (frame, rest) = rest.split_at(length.min(rest.len()));
        frames.push(frame);
        bytes = rest;
    }
    frames
}

fn write(to: &Path, target: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = to.join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(&Link::of(bytes).to_string()[40..]), bytes)
}
