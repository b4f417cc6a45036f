//! Any bytes as a message of a firehose. One that is read is canonical, and says what a general CBOR reader finds in it; what becomes of a commit agrees with
//! what it says, and an op set made of it reads back as it was written. Then the same with the hashes of its blocks put right.
#![no_main]

use atproto_backfill::firehose::Prepared;
use atproto_backfill::firehose::event::CommitEvent;
use atproto_backfill::firehose::frame::{self, Frame};
use atproto_backfill::job::{OpAction, OpSet, Timestamp};
use atproto_backfill::repo::Link;
use atproto_backfill_fuzz::plain::field;
use atproto_backfill_fuzz::{rename, repair};
use bytes::Bytes;
use ciborium::Value;
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = frame::read(bytes) else { return };
    said(bytes, &frame);
    prepared(bytes, &frame);
    let Frame::Commit(CommitEvent { blocks, .. }) = frame else { return };
    let start = blocks.as_ptr() as usize - bytes.as_ptr() as usize;
    let mut repaired = bytes.to_vec();
    let changed = repair(&mut repaired[start..start + blocks.len()]);
    rename(&mut repaired[..start], &changed);
    rename(&mut repaired[start + blocks.len()..], &changed);
    if repaired != bytes {
        // A CID of a repo in the place of another: a frame stays one.
        prepared(&repaired, &frame::read(&repaired).expect("a frame with other digests"));
    }
});

/// What the frame says of itself.
fn said(bytes: &[u8], frame: &Frame<'_>) {
    let mut rest = bytes;
    let head: Value = ciborium::from_reader(&mut rest).expect("a frame that was read has a header");
    let body: Value = ciborium::from_reader(&mut rest).expect("a frame that was read has a body");
    let mut canonical = Vec::new();
    for value in [&head, &body] {
        ciborium::into_writer(value, &mut canonical).expect("a value can be written");
        sorted(value);
    }
    assert_eq!(canonical, bytes, "a frame that is not canonical was read");
    assert!(field(&head, "op").is_some(), "a frame was read without an op: {head:?}");
    if let Some(seq) = frame.seq() {
        let said = field(&body, "seq").and_then(Value::as_integer).and_then(|seq| u64::try_from(seq).ok());
        assert_eq!(said, Some(seq.get()), "{body:?}");
    }
    let texts = |names: &[&str]| names.iter().filter_map(|name| field(&body, name)?.as_text().map(str::to_owned)).collect::<Vec<_>>();
    if let Some(did) = frame.did() {
        assert!(texts(&["repo", "did"]).iter().any(|name| name == did), "{did} is not in {body:?}");
    }
    if let Some(time) = frame.time() {
        assert_eq!(texts(&["time"]), [time]);
    }
    if let Frame::Commit(event) = frame {
        assert_eq!(texts(&["rev"]), [event.rev]);
        assert_eq!(field(&body, "blocks").and_then(Value::as_bytes).map(|blocks| &blocks[..]), Some(event.blocks));
        let ops = field(&body, "ops").and_then(Value::as_array).expect("a commit has ops");
        assert_eq!((ops.len() as u64, ops.len()), (event.ops.len(), event.ops.iter().count()));
        for (said, read) in ops.iter().zip(event.ops.iter()) {
            if let Ok(op) = read {
                assert_eq!(field(said, "path").and_then(Value::as_text), Some(op.path));
            }
        }
    }
}

/// The keys of every map rise, the shorter first.
fn sorted(value: &Value) {
    match value {
        Value::Map(pairs) => {
            let keys: Vec<(usize, &str)> =
                pairs.iter().map(|(key, _)| key.as_text().expect("a key is a text")).map(|key| (key.len(), key)).collect();
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
            pairs.iter().for_each(|(_, value)| sorted(value));
        }
        Value::Array(values) => values.iter().for_each(sorted),
        Value::Tag(_, value) => sorted(value),
        _ => {}
    }
}

/// What becomes of a commit or a sync.
fn prepared(bytes: &[u8], frame: &Frame<'_>) {
    let owned = Bytes::copy_from_slice(bytes);
    let (prepared, ops, rev) = match frame {
        Frame::Commit(event) => (Prepared::commit(&owned, event, NOW), event.ops.len(), event.rev),
        Frame::Sync(event) => (Prepared::sync(&owned, event, NOW), 0, event.rev),
        _ => return,
    };
    let Ok(prepared) = prepared else { return };
    assert_eq!((Some(prepared.did().as_str()), prepared.rev().as_str()), (frame.did(), rev));
    let gap = prepared.gap();
    assert!(gap.ops.is_empty() && gap.since.is_none() && gap.prev_data.is_none(), "{gap:?}");
    assert_eq!((&gap.did, gap.rev, gap.data), (prepared.did(), prepared.rev(), Some(prepared.data())));
    if let Ok(unproven) = prepared.unproven() {
        read_back(&unproven, ops);
        if let Ok(proven) = prepared.prove() {
            read_back(&proven, ops);
            assert_eq!((proven.rev, proven.since, proven.data, proven.ops), (unproven.rev, unproven.since, unproven.data, unproven.ops));
        }
    } else {
        prepared.prove().expect_err("an op set cannot be made, and is proven");
    }
}

/// An op set has no more ops than were told, each with a record of its CID, and is kept as it is.
fn read_back(op_set: &OpSet, told: u64) {
    assert!(op_set.ops.len() as u64 <= told);
    for op in &op_set.ops {
        if let OpAction::Create { cid, record } | OpAction::Update { cid, record } = &op.action {
            assert_eq!(Link::of(record), *cid);
        }
    }
    assert_eq!(OpSet::decode(op_set.did.clone(), op_set.encode().into()).as_ref(), Ok(op_set));
}
