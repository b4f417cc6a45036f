//! How fast records are checked and turned into JSON, trees edited and signatures verified, each on one thread.
//!
//! `cargo bench --bench records`: prints one line per measurement, the best of twenty rounds.
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use atproto_backfill::repo::mst::Tree;
use atproto_backfill::repo::{Curve, Link, SigningKey, json, record};
use ipld_core::ipld::Ipld;
use serde_json::json;

fn main() {
    records();
    signatures();
    trees();
}

/// The best of twenty rounds: other programs on the machine only ever make one slower.
fn best(mut round: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed());
    }
    best
}

/// A mix of likes, follows and posts, as most records are.
fn sample() -> Vec<Vec<u8>> {
    let cid = "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm";
    let subject =
        |number: usize| json!({"cid": cid, "uri": format!("at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3k{number:011}")});
    let record = |number: usize| match number % 8 {
        0..=4 => json!({"$type": "app.bsky.feed.like", "subject": subject(number), "createdAt": "2026-01-01T00:00:00.000Z"}),
        5 => {
            json!({"$type": "app.bsky.graph.follow", "subject": "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "createdAt": "2026-01-01T00:00:00.000Z"})
        }
        6 => {
            json!({"$type": "app.bsky.feed.post", "text": format!("Number {number}, «quoted», and a line\nthat goes on for a while. ").repeat(3),
                    "langs": ["en"], "createdAt": "2026-01-01T00:00:00.000Z", "reply": {"root": subject(number), "parent": subject(number)}})
        }
        _ => json!({"$type": "app.bsky.feed.post", "text": "A picture", "createdAt": "2026-01-01T00:00:00.000Z", "embed": {
                    "$type": "app.bsky.embed.images", "images": [{"alt": "", "image": {"$type": "blob", "mimeType": "image/jpeg", "size": number + 1,
                    "ref": {"$link": "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"}}}]}}),
    };
    (0..20_000).map(|number| json::from_value(&record(number)).expect("the sample is made of records")).collect()
}

fn records() {
    let sample = sample();
    let bytes: usize = sample.iter().map(Vec::len).sum();
    println!("records: {} of {} bytes on average", sample.len(), bytes / sample.len());
    let report = |name: &str, each: &mut dyn FnMut(&[u8])| {
        let time = best(|| sample.iter().for_each(|record| each(record)));
        let seconds = time.as_secs_f64();
        println!("  {name:<34} {:>7.0} MB/s {:>6.0} ns a record", bytes as f64 / seconds / 1e6, seconds / sample.len() as f64 * 1e9);
    };
    report("hash, for comparison", &mut |record| {
        black_box(Link::of(record));
    });
    report("check", &mut |record| {
        black_box(record::check(record).is_ok());
    });
    let mut text = Vec::new();
    report("check and write as JSON", &mut |record| {
        text.clear();
        black_box(json::write(record, &mut text).is_ok());
    });
    report("check and build a JSON value", &mut |record| {
        black_box(json::to_value(record).is_ok());
    });
    report("decode to Ipld by the library", &mut |record| {
        black_box(record::decode::<Ipld>(record).is_ok());
    });
}

fn signatures() {
    const ROUND: u32 = 50;
    let message = [7; 220];
    for curve in [Curve::K256, Curve::P256] {
        let key = SigningKey::from_seed(curve, &[1; 32]);
        let signature = key.sign(&message);
        let verify = best(|| (0..ROUND).for_each(|_| assert!(key.public().verify(&message, &signature).is_ok())));
        let sign = best(|| {
            (0..ROUND).for_each(|_| {
                black_box(key.sign(&message));
            });
        });
        println!("{curve}: verify {:?}, sign {:?}", verify / ROUND, sign / (ROUND));
    }
}

fn trees() {
    const SIZE: u32 = 1_000_000;
    const EDITS: u32 = 10_000;
    let value = Link::of(b"a record");
    let key = |number: u32| format!("app.bsky.feed.like/3k{number:011}").into_bytes();
    let start = Instant::now();
    let mut tree: Tree = (0..SIZE).map(|number| (key(number), value)).collect();
    let built = start.elapsed();
    tree.seal();
    println!("tree of {SIZE}: built from sorted keys in {built:?}, sealed after {:?}", start.elapsed());
    let edits = |tree: &mut Tree, round: u32| {
        let start = Instant::now();
        for edit in 0..EDITS {
            // Spread over the whole tree, each followed by a seal as a commit would be.
            let key = key(edit.wrapping_mul(2_654_435_761) % SIZE);
            if round == 0 { tree.remove(&key) } else { tree.insert(&key, value) }.expect("a whole tree has no stubs");
            black_box(tree.seal());
        }
        start.elapsed() / EDITS
    };
    let removed = edits(&mut tree, 0);
    println!("  remove and seal {removed:?}, insert and seal {:?}", edits(&mut tree, 1));
}
