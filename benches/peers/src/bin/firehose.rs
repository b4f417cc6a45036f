//! Reading the firehose with this project beside other readers, with the same frames in one run.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml --bin firehose` prints frames per second for each reader, and how many times as fast ours is
//! at the same. What each checks is said beside its name.
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

#[path = "../../../firehose/input.rs"]
mod input;

use std::hint::black_box;
use std::time::{Duration, Instant};

use atproto_backfill::firehose::Prepared;
use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::job::Timestamp;
use atproto_backfill::repo::Curve;
use bytes::Bytes;
use input::Input;
use jacquard_api::com_atproto::sync::subscribe_repos::{Commit, SubscribeReposMessage};
use shrike::crypto::VerifyingKey;

/// Later than every commit.
const NOW: Timestamp = Timestamp(1_800_000_000_000);
/// How many frames are timed together.
const GROUP: usize = 20;
const ROUNDS: u32 = 20;

fn main() {
    let input = Input::new(Curve::K256, 20, 50);
    let did_key = input.key.to_did_key();
    let shrike_key = shrike::crypto::parse_did_key(&did_key).expect("it is a key");
    let multikey = input.key.to_multikey();
    let jacquard_key = jacquard_common::types::crypto::PublicKey::decode(&multikey).expect("it is a key");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    println!(
        "{} commits of one op, {} bytes each on average, secp256k1; µs each, and how many times as fast ours is",
        input.frames.len(),
        input.frame_len()
    );

    let frames = &input.frames;
    println!("the frame is read");
    let ours = report("ours", None, best(frames, |frame| assert!(black_box(read(frame)).is_ok())));
    report("jacquard (copies, fields checked)", Some(ours), best(frames, |frame| drop(black_box(jacquard(frame)))));
    println!("every block is hashed as well");
    let ours = report("ours (and the commit decoded)", None, best(frames, |frame| drop(black_box(prepare(frame)))));
    report(
        "shrike (and the records copied)",
        Some(ours),
        best(frames, |frame| drop(black_box(shrike::streaming::parse_firehose_frame(frame).expect("it is a frame")))),
    );
    println!("the ops are checked and undone as well");
    let ours = report("ours", None, best(frames, |frame| drop(black_box(prepare(frame).prove().expect("it is proven")))));
    report("shrike", Some(ours), best(frames, |frame| shrike_verify(frame, None)));
    println!("the signature is checked as well");
    let verified = |frame: &Bytes| {
        let commit = prepare(frame);
        commit.signed_by(&input.key).expect("it is signed");
        drop(black_box(commit.prove().expect("it is proven")));
    };
    let ours = report("ours", None, best(frames, verified));
    report("shrike", Some(ours), best(frames, |frame| shrike_verify(frame, Some(shrike_key.as_ref()))));
    let validate = |frame: &Bytes| {
        let commit = jacquard(frame);
        let validated = jacquard_repo::commit::firehose::validate_v1_1(&commit, &jacquard_key);
        black_box(runtime.block_on(validated).expect("it is proven"));
    };
    report("jacquard (no hashes)", Some(ours), best(frames, validate));
}

fn report(name: &str, ours: Option<f64>, each: f64) -> f64 {
    println!("  {name:<36} {:>8.2} µs {:>8.0} a second {:>7.2} x", each * 1e6, 1.0 / each, each / ours.unwrap_or(each));
    each
}

fn prepare(frame: &Bytes) -> Prepared {
    match read(frame) {
        Ok(Frame::Commit(event)) => Prepared::commit(frame, &event, NOW).expect("it is sound"),
        other => panic!("no commit: {other:?}"),
    }
}

fn jacquard(frame: &[u8]) -> Commit {
    let message: SubscribeReposMessage = SubscribeReposMessage::decode_framed(frame).expect("it is a frame");
    match message {
        SubscribeReposMessage::Commit(commit) => *commit,
        _ => panic!("no commit"),
    }
}

fn shrike_verify(frame: &[u8], key: Option<&dyn VerifyingKey>) {
    use shrike::sync::invert::{check_op_cids, decode_commit_car, invert_decoded_commit};
    let raw = shrike::sync::raw::parse_raw_sync_frame(frame).expect("it is a frame").into_commit().expect("it is a commit");
    let decoded = decode_commit_car(&raw).expect("it is sound");
    if let Some(key) = key {
        decoded.inner.verify(key).expect("it is signed");
    }
    check_op_cids(&raw, decoded.inner.data, &decoded.store).expect("the ops are what the tree says");
    let root = invert_decoded_commit(&raw, &decoded.inner, &decoded.store).expect("it is proven");
    assert_eq!(Some(root), raw.prev_data);
}

/// Seconds that each takes: of every group the best of many rounds, because other programs on the machine only ever make one slower.
fn best(frames: &[Bytes], mut each: impl FnMut(&Bytes)) -> f64 {
    let mut timed = |group: &[Bytes]| {
        let start = Instant::now();
        group.iter().for_each(&mut each);
        start.elapsed()
    };
    let total: Duration = frames.chunks(GROUP).map(|group| (0..ROUNDS).map(|_| timed(group)).min().unwrap_or_default()).sum();
    total.as_secs_f64() / frames.len() as f64
}
