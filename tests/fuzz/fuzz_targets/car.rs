//! Any bytes as the export of a repo. However they arrive and wherever they lie, the answer is the same; and what is accepted is what a plain reader of the
//! framing finds in them. Then the same with all hashes put right, so that what is within the blocks is read as well.
#![no_main]

use atproto_backfill::fetch::SpoolOptions;
use atproto_backfill::repo::{Checkout, Link};
use atproto_backfill_fuzz::walked::{spooled, walk};
use atproto_backfill_fuzz::{CID, repair, sections};
use libfuzzer_sys::fuzz_target;

/// Of so many inputs one is spooled to a file as well.
const ON_DISK: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut repaired = bytes.to_vec();
    repair(&mut repaired);
    if repaired != bytes {
        check(&repaired);
    }
});

fn check(bytes: &[u8]) {
    let whole = spooled([bytes], SpoolOptions::default());
    let pieces = spooled(pieces(bytes), SpoolOptions::default());
    let on_disk = (bytes.len() % ON_DISK == 0).then(|| spooled([bytes], SpoolOptions { memory_limit: 0, ..SpoolOptions::default() }));
    for other in [Some(pieces), on_disk].into_iter().flatten() {
        match (&whole, other) {
            (Ok(whole), Ok(other)) => {
                assert_eq!(whole.commit(), other.commit());
                assert_eq!(whole.is_streamable(), other.is_streamable());
                assert_eq!(walk(whole, 7), walk(&other, 7));
            }
            (Err(whole), Err(other)) => assert_eq!(whole.to_string(), other.to_string()),
            (whole, other) => panic!("in memory at once {:?}, else {:?}", whole.as_ref().map(drop), other.map(drop)),
        }
    }
    if let Ok(whole) = whole {
        framed(bytes, &whole);
    }
}

/// Pieces of lengths that follow from the input: often one byte, and often many.
fn pieces(mut bytes: &[u8]) -> Vec<&[u8]> {
    let lengths = *Link::of(bytes).digest();
    let mut pieces = Vec::new();
    for length in lengths.iter().cycle().map(|byte| if byte % 3 == 0 { 1 } else { usize::from(*byte) }) {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(length.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

/// A file that was accepted is whole, and each of its blocks has the hash of its CID.
fn framed(bytes: &[u8], checkout: &Checkout) {
    let sections = sections(bytes);
    assert_eq!(sections.last().map(|last| last.end), Some(bytes.len()), "a file was accepted that is not whole");
    let header = sections[0].end;
    assert_eq!(checkout.bytes(), (bytes.len() - header) as u64);
    let mut has_commit = false;
    for section in &sections[1..] {
        let section = &bytes[section.clone()];
        if section.starts_with(&CID) {
            let link = Link::of(&section[36..]);
            assert_eq!(link.digest()[..], section[4..36], "a block with another hash was accepted");
            has_commit |= link == checkout.commit().link();
        }
    }
    assert!(has_commit, "a commit was accepted that is not there");
}
