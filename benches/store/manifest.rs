//! The manifest alone, without a store.

use std::time::Instant;

use atproto_backfill::manifest::{Builder, Chunk, Diff, Step};
use atproto_backfill::repo::Link;
use atproto_backfill::syntax::{RecordPath, Rev};

/// A record about every ten minutes, in four collections.
pub(crate) fn paths(records: u64) -> Vec<RecordPath> {
    let collections = ["app.bsky.feed.like", "app.bsky.feed.post", "app.bsky.feed.repost", "app.bsky.graph.follow"];
    let each = records / 4;
    let path = |n: u64, collection| {
        let tid = Rev::from_parts(1_600_000_000_000_000 + n * 612_345_678, (n * 7 % 1024) as u16);
        RecordPath::new(&format!("{collection}/{tid}")).expect("a path")
    };
    collections.into_iter().flat_map(|collection| (0..each).map(move |n| path(n, collection))).collect()
}

pub(crate) fn link(n: usize) -> Link {
    Link::of(&n.to_le_bytes())
}

pub(crate) fn build(paths: &[RecordPath], links: &[Link]) -> Vec<Chunk> {
    let mut builder = Builder::default();
    let mut chunks: Vec<Chunk> =
        paths.iter().zip(links).filter_map(|(path, &cid)| builder.push(path.as_ref(), cid).expect("in order")).collect();
    chunks.extend(builder.finish());
    chunks
}

fn per_entry(what: &str, started: Instant, entries: usize) {
    println!("{what}: {:.1} ns for each entry", started.elapsed().as_nanos() as f64 / entries as f64);
}

pub(crate) fn measure(paths: &[RecordPath], links: &[Link]) -> Vec<Chunk> {
    let started = Instant::now();
    let chunks = build(paths, links);
    per_entry("manifest encode", started, paths.len());
    let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len() + chunk.first.as_str().len()).sum();
    println!("manifest size: {:.1} bytes for each entry", bytes as f64 / paths.len() as f64);

    let started = Instant::now();
    let mut read = 0;
    for chunk in &chunks {
        let mut entries = chunk.read();
        while entries.entry().expect("a chunk").is_some() {
            read += 1;
        }
    }
    assert_eq!(read, paths.len());
    per_entry("manifest decode", started, read);

    let started = Instant::now();
    let mut pages = chunks.chunks(16);
    let mut diff = Diff::new(Vec::new());
    for (path, &cid) in paths.iter().zip(links) {
        while diff.leaf(path.as_ref(), cid, &mut |_| ()).expect("in order") == Step::Starved {
            diff.feed(pages.next().unwrap_or_default().to_vec());
        }
    }
    assert_eq!(diff.same(), paths.len() as u64);
    per_entry("manifest diff, all the same", started, paths.len());
    chunks
}
