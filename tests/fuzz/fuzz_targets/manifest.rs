//! Any bytes as what the store holds: paths, a chunk of a manifest, an op set. What is accepted is what encoding writes, byte for byte; and a chunk that is accepted
//! is edited as a map is.
#![no_main]

use std::collections::BTreeMap;

use atproto_backfill::job::OpSet;
use atproto_backfill::manifest::{Builder, Chunk, Edit, MAX_ENTRIES, ManifestError, apply, decode_paths, encode_paths};
use atproto_backfill::repo::Link;
use atproto_backfill::syntax::{Did, RecordPath};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(paths) = decode_paths(input) {
        assert_eq!(encode_paths(&paths).expect("paths in order"), input);
    }
    let did = Did::new("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("a DID");
    match OpSet::decode(did, input.to_vec().into()) {
        Ok(op_set) => {
            assert_eq!(op_set.encode(), input);
            let paths: Vec<RecordPath> = op_set.ops.into_iter().map(|op| op.path).collect();
            assert_eq!(OpSet::decode_paths(input.to_vec().into()), Ok(paths));
        }
        Err(error) => assert_eq!(OpSet::decode_paths(input.to_vec().into()), Err(error)),
    }
    chunk(input);
});

/// A line with the first path, a byte with the number of entries less one, and the chunk.
fn chunk(input: &[u8]) -> Option<()> {
    let (first, rest) = input.split_at(input.iter().position(|&byte| byte == b'\n')?);
    let (&entries, bytes) = rest.get(1..)?.split_first()?;
    let first = RecordPath::new(std::str::from_utf8(first).ok()?).ok()?;
    let chunk = Chunk { first, entries: u32::from(entries) + 1, bytes: bytes.to_vec() };
    let entries = read(&chunk).ok()?;
    assert_eq!((entries.len() as u32, &entries.first()?.0), (chunk.entries, &chunk.first));
    let mut builder = Builder::default();
    let made: Vec<Chunk> = entries.iter().filter_map(|(path, link)| builder.push(path.as_ref(), *link).expect("paths in order")).collect();
    let made: Vec<Chunk> = made.into_iter().chain(builder.finish()).collect();
    assert_eq!(made, std::slice::from_ref(&chunk));
    edited(chunk, entries.into_iter().collect());
    Some(())
}

fn read(chunk: &Chunk) -> Result<Vec<(RecordPath, Link)>, ManifestError> {
    let (mut entries, mut reading) = (Vec::new(), chunk.read());
    while let Some((path, link)) = reading.entry()? {
        entries.push((path.to_owned(), link));
    }
    Ok(entries)
}

/// Deletes, updates and adds beside entries, as their digests choose.
fn edited(chunk: Chunk, mut map: BTreeMap<RecordPath, Link>) {
    let mut edits: BTreeMap<RecordPath, Option<Link>> = BTreeMap::new();
    for (path, link) in &map {
        let choice = link.digest()[31];
        match choice % 4 {
            0 => drop(edits.insert(path.clone(), None)),
            1 => drop(edits.insert(path.clone(), Some(Link::of(&[choice])))),
            2 => {
                if let Ok(path) = RecordPath::new(&format!("{path}{}", choice / 4 % 10)) {
                    edits.insert(path, (choice & 64 == 0).then_some(*link));
                }
            }
            _ => {}
        }
    }
    let before = map.len() as i64;
    for (path, link) in &edits {
        match link {
            Some(link) => drop(map.insert(path.clone(), *link)),
            None => drop(map.remove(path)),
        }
    }
    let edits: Vec<Edit> = edits.into_iter().map(|(path, cid)| Edit { path, cid }).collect();
    let applied = apply(&[chunk], &edits).expect("a chunk that was read, and edits in order");
    assert_eq!(applied.added, map.len() as i64 - before);
    assert!(applied.chunks.iter().all(|chunk| (1..=MAX_ENTRIES).contains(&chunk.entries)));
    let after: Vec<(RecordPath, Link)> = applied.chunks.iter().flat_map(|chunk| read(chunk).expect("a chunk that was made")).collect();
    assert!(after.into_iter().eq(map));
}
