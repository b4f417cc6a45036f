//! The manifest against a `BTreeMap`: whatever is built, read, edited or compared, both must agree.

use std::collections::{BTreeMap, BTreeSet};

use atproto_backfill::manifest::{
    Builder, Chunk, ChunkMap, Diff, Edit, MAX_ENTRIES, ManifestError, Step, apply, decode_paths, encode_paths, rewrite,
};
use atproto_backfill::repo::Link;
use atproto_backfill::syntax::{RecordPath, Rev};
use proptest::prelude::*;

type Truth = BTreeMap<RecordPath, Link>;

fn link(n: u8) -> Link {
    Link::of(&[n])
}

/// Paths that share long prefixes, short ones and none, so that collisions and every kind of front coding happen.
fn any_path() -> impl Strategy<Value = RecordPath> {
    let collection =
        prop_oneof![Just("app.bsky.feed.like"), Just("app.bsky.feed.post"), Just("a.b.c"), Just("zone.example.longNameOfACollection")];
    let key = prop_oneof![
        6 => (0u64..600).prop_map(|n| Rev::from_parts(1_700_000_000_000_000 + n * 7919, (n % 3) as u16).to_string()),
        1 => Just("self".to_owned()),
        1 => "[a-zA-Z0-9_~.:-]{1,3}",
        1 => "[ab]{100,512}",
    ];
    (collection, key).prop_filter_map("not a record key", |(collection, key)| RecordPath::new(&format!("{collection}/{key}")).ok())
}

fn any_truth(most: usize) -> impl Strategy<Value = Truth> {
    proptest::collection::btree_map(any_path(), any::<u8>().prop_map(link), 0..most)
}

fn any_edits(most: usize) -> impl Strategy<Value = BTreeMap<RecordPath, Option<Link>>> {
    proptest::collection::btree_map(any_path(), proptest::option::of(any::<u8>().prop_map(link)), 0..most)
}

fn edits(of: &BTreeMap<RecordPath, Option<Link>>) -> Vec<Edit> {
    of.iter().map(|(path, cid)| Edit { path: path.clone(), cid: *cid }).collect()
}

fn build(truth: &Truth, limit: u32) -> Vec<Chunk> {
    let mut builder = Builder::with_limit(limit);
    let mut chunks: Vec<Chunk> = truth.iter().filter_map(|(path, cid)| builder.push(path.as_ref(), *cid).unwrap()).collect();
    chunks.extend(builder.finish());
    chunks
}

fn read(chunks: &[Chunk]) -> Result<Vec<(RecordPath, Link)>, ManifestError> {
    let mut all = Vec::new();
    for chunk in chunks {
        let mut entries = chunk.read();
        while let Some((path, cid)) = entries.entry()? {
            all.push((path.to_owned(), cid));
        }
    }
    Ok(all)
}

fn assert_holds(chunks: &[Chunk], truth: &Truth) {
    let held = read(chunks).unwrap();
    assert!(held.is_sorted_by(|a, b| a.0 < b.0), "entries are not in order");
    assert_eq!(&held.into_iter().collect::<Truth>(), truth);
    for chunk in chunks {
        assert!((1..=MAX_ENTRIES).contains(&chunk.entries));
        let mut entries = chunk.read();
        assert_eq!(entries.entry().unwrap().unwrap().0, chunk.first.as_ref());
    }
}

fn edit_truth(truth: &mut Truth, edits: &BTreeMap<RecordPath, Option<Link>>) -> i64 {
    let before = truth.len() as i64;
    for (path, cid) in edits {
        match cid {
            Some(cid) => truth.insert(path.clone(), *cid),
            None => truth.remove(path),
        };
    }
    truth.len() as i64 - before
}

/// A manifest kept by first path, as a store keeps it.
#[derive(Default)]
struct Kept(BTreeMap<RecordPath, Chunk>);

impl Kept {
    fn of(chunks: Vec<Chunk>) -> Self {
        Self(chunks.into_iter().map(|chunk| (chunk.first.clone(), chunk)).collect())
    }

    fn chunks(&self) -> Vec<Chunk> {
        self.0.values().cloned().collect()
    }

    fn page(&self, after: Option<&RecordPath>, limit: usize) -> Vec<Chunk> {
        let from = after.and_then(|after| self.0.range(..=after).next_back());
        match from {
            Some((first, _)) => self.0.range(first.clone()..).take(limit).map(|(_, chunk)| chunk.clone()).collect(),
            None => self.0.values().take(limit).cloned().collect(),
        }
    }
}

impl ChunkMap for Kept {
    type Error = ManifestError;

    fn covering(&mut self, path: &RecordPath) -> Result<Option<Chunk>, ManifestError> {
        Ok(self.0.range(..=path).next_back().or_else(|| self.0.iter().next()).map(|(_, chunk)| chunk.clone()))
    }

    fn behind(&mut self, first: &RecordPath) -> Result<Option<Chunk>, ManifestError> {
        use std::ops::Bound::{Excluded, Unbounded};
        Ok(self.0.range((Excluded(first), Unbounded)).next().map(|(_, chunk)| chunk.clone()))
    }

    fn replace(&mut self, old: &[Chunk], new: &[Chunk]) -> Result<(), ManifestError> {
        for chunk in old {
            assert_eq!(self.0.remove(&chunk.first).as_ref(), Some(chunk), "replaced a chunk that is not there");
        }
        for chunk in new {
            assert!(self.0.insert(chunk.first.clone(), chunk.clone()).is_none(), "two chunks with one key");
        }
        Ok(())
    }
}

/// What a consumer is told by a diff, driven as the engine drives it: pages of two chunks, and edits applied every few changes while it goes on.
fn told_by_diff(kept: &mut Kept, new: &Truth, in_doubt: &BTreeSet<RecordPath>, apply_every: usize) -> Vec<(RecordPath, &'static str)> {
    let mut diff = Diff::new(in_doubt.iter().cloned().collect());
    let mut told: Vec<(RecordPath, &'static str)> = Vec::new();
    let mut applied = 0;
    let mut flush = |told: &[(RecordPath, &'static str)], kept: &mut Kept, all: bool| {
        if told.len() - applied >= apply_every || all {
            let edits: Vec<Edit> =
                told[applied..].iter().map(|(path, _)| Edit { path: path.clone(), cid: new.get(path).copied() }).collect();
            rewrite(kept, &edits).unwrap();
            applied = told.len();
        }
    };
    for (path, cid) in new {
        let (is_past, told_before) = (diff.is_past(), told.len());
        let step = loop {
            match diff.leaf(path.as_ref(), *cid, &mut |gone| told.push((gone.to_owned(), "delete"))).unwrap() {
                Step::Starved => diff.feed(kept.page(diff.after().as_ref(), 2)),
                step => break step,
            }
        };
        assert!(!is_past || (step == Step::Create && told.len() == told_before), "{path} is {step:?} behind the end");
        match step {
            Step::Create => told.push((path.clone(), "create")),
            Step::Update => told.push((path.clone(), "update")),
            Step::Same => {}
            Step::Starved => unreachable!(),
        }
        flush(&told, kept, false);
    }
    while !diff.finish(&mut |gone| told.push((gone.to_owned(), "delete"))).unwrap() {
        diff.feed(kept.page(diff.after().as_ref(), 2));
        flush(&told, kept, false);
    }
    flush(&told, kept, true);
    assert!(diff.is_past(), "the end of a diff is not behind the end");
    let changed = told.iter().filter(|(_, change)| *change != "delete").count();
    assert_eq!(diff.same(), (new.len() - changed) as u64);
    told
}

fn expected_changes(old: &Truth, new: &Truth, in_doubt: &BTreeSet<RecordPath>) -> Vec<(RecordPath, &'static str)> {
    let paths: BTreeSet<&RecordPath> = old.keys().chain(new.keys()).chain(in_doubt).collect();
    let change = |path: &RecordPath| match (old.get(path), new.get(path)) {
        (None, Some(_)) => Some("create"),
        (Some(held), Some(cid)) if held != cid || in_doubt.contains(path) => Some("update"),
        (Some(_), Some(_)) => None,
        (Some(_), None) => Some("delete"),
        (None, None) => in_doubt.contains(path).then_some("delete"),
    };
    paths.into_iter().filter_map(|path| Some((path.clone(), change(path)?))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn chunks_hold_what_was_pushed(truth in any_truth(700), limit in 1u32..300) {
        let chunks = build(&truth, limit);
        assert_holds(&chunks, &truth);
        prop_assert_eq!(chunks.len(), truth.len().div_ceil(limit.min(MAX_ENTRIES) as usize));
    }

    #[test]
    fn edits_do_to_a_run_of_chunks_what_they_do_to_a_map(mut truth in any_truth(600), limit in 1u32..300, changes in any_edits(400)) {
        let applied = apply(&build(&truth, limit), &edits(&changes)).unwrap();
        prop_assert_eq!(applied.added, edit_truth(&mut truth, &changes));
        assert_holds(&applied.chunks, &truth);
    }

    #[test]
    fn edits_do_to_a_kept_manifest_what_they_do_to_a_map(
        mut truth in any_truth(900), limit in 1u32..300, rounds in proptest::collection::vec(any_edits(40), 0..12),
    ) {
        let mut kept = Kept::of(build(&truth, limit));
        for changes in rounds {
            let added = rewrite(&mut kept, &edits(&changes)).unwrap();
            prop_assert_eq!(added, edit_truth(&mut truth, &changes));
            assert_holds(&kept.chunks(), &truth);
        }
    }

    #[test]
    fn a_diff_tells_every_change_in_order_and_leaves_the_manifest_equal_to_the_checkout(
        old in any_truth(900), new in any_truth(900), in_doubt in proptest::collection::btree_set(any_path(), 0..40),
        limit in 1u32..300, apply_every in 1usize..50, kept_part in any::<bool>(),
    ) {
        let new = if kept_part { old.iter().chain(&new).map(|(path, cid)| (path.clone(), *cid)).collect() } else { new };
        let mut kept = Kept::of(build(&old, limit));
        let told = told_by_diff(&mut kept, &new, &in_doubt, apply_every);
        prop_assert_eq!(told, expected_changes(&old, &new, &in_doubt));
        assert_holds(&kept.chunks(), &new);
    }

    #[test]
    fn a_damaged_chunk_is_refused_or_is_another_valid_chunk(truth in any_truth(60), at: prop::sample::Index, with: u8, cut: prop::sample::Index) {
        for chunk in build(&truth, 256) {
            let mut short = chunk.clone();
            short.bytes.truncate(cut.index(chunk.bytes.len()));
            prop_assert!(read(&[short]).is_err(), "a cut chunk was read");
            let mut long = chunk.clone();
            long.bytes.push(with);
            prop_assert_eq!(read(&[long]), Err(ManifestError::Trailing { bytes: 1 }));
            let mut flipped = chunk.clone();
            let at = at.index(chunk.bytes.len());
            flipped.bytes[at] = with;
            if let Ok(entries) = read(&[flipped.clone()]) {
                prop_assert_eq!(build(&entries.into_iter().collect(), 256), vec![flipped], "what was read is not what would be written");
            }
        }
    }

    #[test]
    fn paths_read_back_as_they_were_written(paths in proptest::collection::btree_set(any_path(), 0..80), at: prop::sample::Index, with: u8) {
        let paths: Vec<RecordPath> = paths.into_iter().collect();
        let mut bytes = encode_paths(&paths).unwrap();
        prop_assert_eq!(decode_paths(&bytes), Ok(paths.clone()));
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Ok(read) = decode_paths(&bytes) {
                prop_assert_eq!(encode_paths(&read).unwrap(), bytes);
            }
        }
    }
}

#[test]
fn paths_that_do_not_rise_are_refused() {
    let path = |text: &str| RecordPath::new(text).unwrap();
    let mut builder = Builder::default();
    builder.push(path("a.b.c/m").as_ref(), link(1)).unwrap();
    assert!(matches!(builder.push(path("a.b.c/m").as_ref(), link(1)), Err(ManifestError::OutOfOrder { .. })));
    assert!(matches!(builder.push(path("a.b.c/a").as_ref(), link(1)), Err(ManifestError::OutOfOrder { .. })));
    builder.push(path("a.b.c/n").as_ref(), link(1)).unwrap();
    let mut diff = Diff::new(Vec::new());
    diff.feed(Vec::new());
    assert_eq!(diff.leaf(path("a.b.c/m").as_ref(), link(1), &mut |_| ()), Ok(Step::Create));
    assert!(matches!(diff.leaf(path("a.b.c/m").as_ref(), link(1), &mut |_| ()), Err(ManifestError::OutOfOrder { .. })));
    let edit = |text| Edit { path: path(text), cid: None };
    assert!(apply(&[], &[edit("a.b.c/m"), edit("a.b.c/a")]).is_err());
    assert!(rewrite(&mut Kept::default(), &[edit("a.b.c/m"), edit("a.b.c/m")]).is_err());
    assert!(encode_paths(&[path("a.b.c/m"), path("a.b.c/m")]).is_err());
}

#[test]
fn a_record_with_a_tid_costs_less_than_fifty_bytes() {
    let truth: Truth = (0..10_000u64)
        .map(|n| (Rev::from_parts(1_700_000_000_000_000 + n * 61_000_000, (n * 7 % 1024) as u16), n))
        .map(|(tid, n)| (RecordPath::new(&format!("app.bsky.feed.like/{tid}")).unwrap(), Link::of(&n.to_le_bytes())))
        .collect();
    let bytes: usize = build(&truth, MAX_ENTRIES).iter().map(|chunk| chunk.bytes.len() + chunk.first.as_str().len()).sum();
    let each = bytes as f64 / truth.len() as f64;
    assert!(each < 50.0, "{each:.1} bytes for each record");
}

#[test]
fn a_small_chunk_left_by_deletes_is_merged_with_the_one_behind_it() {
    let truth: Truth = (0..1024u64).map(|n| (RecordPath::new(&format!("a.b.c/{n:05}")).unwrap(), Link::of(&n.to_le_bytes()))).collect();
    let mut kept = Kept::of(build(&truth, 128));
    assert_eq!(kept.0.len(), 8);
    for path in truth.keys().take(1000) {
        rewrite(&mut kept, &[Edit { path: path.clone(), cid: None }]).unwrap();
    }
    assert_eq!(kept.0.len(), 1, "24 entries are left");
}

fn path(n: u32) -> RecordPath {
    RecordPath::new(&format!("a.b.c/{n:05}")).unwrap()
}

/// A manifest of chunks with so many entries; their paths are those of the even numbers from 0 on.
fn kept(sizes: &[u32]) -> Kept {
    let mut numbers = (0u32..).step_by(2);
    let chunks = sizes.iter().flat_map(|&size| build(&numbers.by_ref().take(size as usize).map(|n| (path(n), link(1))).collect(), size));
    Kept::of(chunks.collect())
}

/// How many entries the chunks have after edits.
fn sizes_after(sizes: &[u32], edits: &[(u32, Option<Link>)]) -> Vec<u32> {
    let mut kept = kept(sizes);
    let edits: Vec<Edit> = edits.iter().map(|&(n, cid)| Edit { path: path(n), cid }).collect();
    rewrite(&mut kept, &edits).unwrap();
    kept.0.values().map(|chunk| chunk.entries).collect()
}

#[test]
fn a_chunk_is_merged_when_deletes_leave_it_less_than_64_entries_and_both_have_at_most_192() {
    let (gone, new) = (None, Some(link(2)));
    assert_eq!(sizes_after(&[65, 100], &[(0, gone)]), [64, 100]);
    assert_eq!(sizes_after(&[64, 100], &[(0, gone)]), [163]);
    assert_eq!(sizes_after(&[64, 129], &[(0, gone)]), [192]);
    assert_eq!(sizes_after(&[64, 130], &[(0, gone)]), [63, 130]);
    assert_eq!(sizes_after(&[2, 100], &[(0, gone)]), [101]);
    assert_eq!(sizes_after(&[1, 100], &[(0, gone)]), [100]);
    assert_eq!(sizes_after(&[65, 100], &[(0, gone), (2, gone)]), [163]);
    assert_eq!(sizes_after(&[30, 30, 30], &[(60, gone)]), [30, 59]);
    assert_eq!(sizes_after(&[30, 30], &[(60, gone)]), [30, 29], "none is behind it");
    // What else is small stays as it is.
    assert_eq!(sizes_after(&[10, 100], &[(0, new)]), [10, 100]);
    assert_eq!(sizes_after(&[10, 100], &[(1, new)]), [11, 100]);
    assert_eq!(sizes_after(&[10, 100], &[(0, gone), (1, new)]), [10, 100]);
}

#[test]
fn the_entries_of_a_new_manifest_are_all_added() {
    let edits: Vec<Edit> = (0..3).map(|n| Edit { path: path(n), cid: Some(link(1)) }).collect();
    assert_eq!(rewrite(&mut Kept::default(), &edits), Ok(3));
}

/// Counts the chunks that are asked for.
struct Counted(Kept, usize);

impl ChunkMap for Counted {
    type Error = ManifestError;

    fn covering(&mut self, path: &RecordPath) -> Result<Option<Chunk>, ManifestError> {
        self.1 += 1;
        self.0.covering(path)
    }

    fn behind(&mut self, first: &RecordPath) -> Result<Option<Chunk>, ManifestError> {
        self.1 += 1;
        self.0.behind(first)
    }

    fn replace(&mut self, old: &[Chunk], new: &[Chunk]) -> Result<(), ManifestError> {
        self.0.replace(old, new)
    }
}

#[test]
fn an_edit_reads_the_chunk_it_falls_into_and_a_delete_the_one_behind_it() {
    let (gone, new) = (None, Some(link(2)));
    for (edits, read) in
        [(&[(40, new)][..], 1), (&[(41, new)], 1), (&[(40, gone)], 2), (&[(40, new), (42, new)], 2), (&[(40, new), (90, gone)], 4)]
    {
        let mut counted = Counted(kept(&[40, 40, 40]), 0);
        let edits: Vec<Edit> = edits.iter().map(|&(n, cid)| Edit { path: path(n), cid }).collect();
        rewrite(&mut counted, &edits).unwrap();
        assert_eq!(counted.1, read, "{edits:?}");
    }
}

#[test]
fn a_path_is_taken_only_as_it_is_coded_against_the_one_before_it() {
    let coded = |before: &str, shared: u8, suffix: &str| {
        let length = |length: usize| if length < 0x80 { vec![length as u8] } else { vec![length as u8 | 0x80, (length >> 7) as u8] };
        [&[0][..], &length(before.len()), before.as_bytes(), &[shared], &length(suffix.len()), suffix.as_bytes()].concat()
    };
    let long = "z".repeat(512);
    for (before, shared, suffix, path) in [
        ("a.b.c/m", 6, "n", Some("a.b.c/n")),
        ("a.b.c/m", 7, "1", Some("a.b.c/m1")),
        ("a.b.c/m", 4, "d/m", Some("a.b.d/m")),
        ("a.b.c/m", 6, "{", None),
        ("a.b.c/m", 6, "z/", None),
        ("a.b.c/m", 6, "\u{e9}", None),
        // It could share more, does not rise, shares more than there is, or is the same.
        ("a.b.c/m", 0, "a.b.c/n", None),
        ("a.b.c/m", 6, "m1", None),
        ("a.b.c/m", 6, "l", None),
        ("a.b.c/m", 8, "1", None),
        ("a.b.c/m", 7, "", None),
        ("a.b.c/-", 6, ".", None),
        ("a.b.c/-", 6, "..", None),
        ("a.b.c/-", 6, "...", Some("a.b.c/...")),
        ("a.b.c/.-", 7, ".", None),
        ("a.b.c/m", 6, &long, Some(&format!("a.b.c/{long}"))),
        ("a.b.c/z", 7, &long, None),
    ] {
        let read = decode_paths(&coded(before, shared, suffix));
        let expected = path.map(|path| vec![RecordPath::new(before).unwrap(), RecordPath::new(path).unwrap()]);
        assert_eq!(read, expected.ok_or(ManifestError::Path { entry: 1 }), "{suffix:?} behind {shared} of {before:?}");
    }
    let mut not_minimal = coded("a.b.c/m", 6, "n");
    not_minimal.splice(9..10, [0x86, 0]);
    assert_eq!(decode_paths(&not_minimal), Err(ManifestError::Path { entry: 1 }));
}
