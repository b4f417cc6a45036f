//! Frames of the event stream: what they say, and what bytes that are none do.

mod common;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use atproto_backfill::firehose::event::{MAX_COMMIT_BLOCKS, MAX_OPS, MAX_SYNC_BLOCKS, RawAction, moment};
use atproto_backfill::firehose::frame::{Frame, FramingError, MAX_FRAME, Malformed, read};
use atproto_backfill::job::Timestamp;
use atproto_backfill::repo::Link;
use atproto_backfill::syntax::Seq;
use common::vectors::ref_frames;
use ipld_core::ipld::Ipld;
use proptest::prelude::*;

type Map = BTreeMap<String, Ipld>;

fn encode(value: &Ipld) -> Vec<u8> {
    serde_ipld_dagcbor::to_vec(value).unwrap()
}

fn text(value: &str) -> Ipld {
    Ipld::String(value.into())
}

fn map<const N: usize>(pairs: [(&str, Ipld); N]) -> Map {
    pairs.into_iter().map(|(key, value)| (key.into(), value)).collect()
}

fn link(byte: u8) -> Ipld {
    Ipld::Link(Link::of(&[byte]).to_cid())
}

fn frame(t: &str, body: Map) -> Vec<u8> {
    let header = Ipld::Map(map([("op", Ipld::Integer(1)), ("t", text(t))]));
    [encode(&header), encode(&Ipld::Map(body))].concat()
}

/// The header and the body, read by a general library.
fn foreign(frame: &[u8]) -> (Map, Map) {
    let mut rest = frame;
    let header: Ipld = serde_ipld_dagcbor::de::from_reader_once(&mut rest).unwrap();
    let body: Ipld = serde_ipld_dagcbor::from_slice(rest).unwrap();
    let (Ipld::Map(header), Ipld::Map(body)) = (header, body) else { panic!("not two maps") };
    (header, body)
}

fn good_commit() -> Map {
    let op = |action: &str, cid: Ipld, prev: Option<Ipld>| {
        let mut op = map([("action", text(action)), ("path", text("app.example.record/1")), ("cid", cid), ("later", Ipld::Null)]);
        op.extend(prev.map(|prev| ("prev".into(), prev)));
        Ipld::Map(op)
    };
    map([
        ("seq", Ipld::Integer(7)),
        ("repo", text("did:web:example.test")),
        ("rev", text("3jzfcijpj2z2a")),
        ("since", Ipld::Null),
        ("commit", link(1)),
        ("blocks", Ipld::Bytes(vec![1, 2, 3])),
        (
            "ops",
            Ipld::List(vec![op("create", link(2), None), op("update", link(3), Some(link(4))), op("delete", Ipld::Null, Some(link(5)))]),
        ),
        ("prevData", link(6)),
        ("time", text("2026-11-30T08:45:09.123Z")),
        ("tooBig", Ipld::Bool(false)),
        ("blobs", Ipld::List(vec![])),
        ("later", Ipld::Map(map([("more", Ipld::Integer(-1))]))),
    ])
}

fn good_sync() -> Map {
    map([
        ("seq", Ipld::Integer(8)),
        ("did", text("did:web:example.test")),
        ("rev", text("3jzfcijpj2z2a")),
        ("blocks", Ipld::Bytes(vec![1, 2, 3])),
        ("time", text("2026-11-30T08:45:09.123Z")),
    ])
}

fn good_identity() -> Map {
    map([
        ("seq", Ipld::Integer(9)),
        ("did", text("did:web:example.test")),
        ("handle", text("handle.invalid")),
        ("time", text("2026-11-30T08:45:09.123Z")),
    ])
}

fn good_account() -> Map {
    map([
        ("seq", Ipld::Integer(10)),
        ("did", text("did:web:example.test")),
        ("active", Ipld::Bool(false)),
        ("status", text("deactivated")),
        ("time", text("2026-11-30T08:45:09.123Z")),
    ])
}

#[test]
fn the_generated_frames_are_read_as_a_general_library_reads_them() {
    let frames = ref_frames();
    let kinds: Vec<&str> = frames.iter().map(|bytes| read(bytes).unwrap().kind()).collect();
    let mut expected = vec!["info", "identity", "account"];
    expected.extend(["commit"; 120]);
    expected.extend(["sync", "unknown", "account", "error"]);
    assert_eq!(kinds, expected);
    for (number, bytes) in frames.iter().enumerate() {
        let ((header, body), frame) = (foreign(bytes), read(bytes).unwrap());
        let seq = body.get("seq").map(|seq| if let Ipld::Integer(seq) = seq { *seq as u64 } else { panic!("{seq:?}") });
        assert_eq!(frame.seq().map(Seq::get), seq);
        assert_eq!(seq, (1..=125).contains(&number).then_some(number as u64));
        if let Frame::Unknown { .. } = frame {
            assert_eq!(header["t"], text("#unknownFutureType"));
            continue;
        }
        assert_eq!(frame.did().map(text).as_ref(), body.get("did").or(body.get("repo")));
        assert_eq!(frame.time().map(text).as_ref(), body.get("time"));
        assert!(frame.time().is_none_or(|time| moment(time).is_some()));
        compare(&frame, &body);
    }
}

/// Compares what only one kind of frame has.
fn compare(frame: &Frame<'_>, body: &Map) {
    let cid = |link: Link| Ipld::Link(link.to_cid());
    match frame {
        Frame::Commit(event) => {
            assert_eq!((text(event.rev), event.since.map_or(Ipld::Null, text)), (body["rev"].clone(), body["since"].clone()));
            assert_eq!((cid(event.commit), &Ipld::Bytes(event.blocks.into())), (body["commit"].clone(), &body["blocks"]));
            assert_eq!(event.prev_data.map(cid).as_ref(), body.get("prevData"));
            assert!(!event.too_big);
            let Ipld::List(ops) = &body["ops"] else { panic!("no ops") };
            assert_eq!(event.ops.len(), ops.len() as u64);
            for (op, expected) in event.ops.iter().map(Result::unwrap).zip(ops) {
                let Ipld::Map(expected) = expected else { panic!("an op is no map") };
                let action = text(&format!("{:?}", op.action).to_lowercase());
                assert_eq!((action, text(op.path)), (expected["action"].clone(), expected["path"].clone()));
                assert_eq!(op.cid.map_or(Ipld::Null, cid), expected["cid"]);
                assert_eq!(op.prev.map(cid).as_ref(), expected.get("prev"));
            }
        }
        Frame::Sync(event) => {
            assert_eq!((text(event.rev), Ipld::Bytes(event.blocks.into())), (body["rev"].clone(), body["blocks"].clone()))
        }
        Frame::Account(event) => {
            assert_eq!((Ipld::Bool(event.active), event.status.map(text).as_ref()), (body["active"].clone(), body.get("status")));
        }
        Frame::Identity(event) => assert_eq!(event.handle.map(text).as_ref(), body.get("handle")),
        Frame::Info { name, message } => {
            assert_eq!((*name, message.map(text).as_ref()), ("OutdatedCursor", body.get("message")));
        }
        Frame::Error { name, .. } => assert_eq!(*name, "ConsumerTooSlow"),
        Frame::Unknown { .. } | Frame::Malformed(_) => panic!("{frame:?}"),
    }
}

#[test]
fn the_fields_of_an_event_are_found_among_fields_of_later_versions() {
    let bytes = frame("#commit", good_commit());
    let Frame::Commit(event) = read(&bytes).unwrap() else { panic!("no commit") };
    assert_eq!((event.seq, event.repo, event.since, event.blocks), (Seq::new(7).unwrap(), "did:web:example.test", None, &[1, 2, 3][..]));
    let ops: Vec<_> = event.ops.iter().map(Result::unwrap).map(|op| (op.action, op.cid, op.prev)).collect();
    let of = |byte: u8| Some(Link::of(&[byte]));
    assert_eq!(ops, [(RawAction::Create, of(2), None), (RawAction::Update, of(3), of(4)), (RawAction::Delete, None, of(5))]);
    assert_eq!(moment(event.time), Some(Timestamp(1_796_028_309_123)));
}

/// Each field of each event: missing, and as another type.
#[test]
fn an_event_with_a_broken_field_is_dropped_alone_and_by_its_name() {
    let kinds = [("#commit", good_commit()), ("#sync", good_sync()), ("#identity", good_identity()), ("#account", good_account())];
    let required = ["seq", "repo", "did", "rev", "since", "commit", "blocks", "ops", "active", "time"];
    let optional = ["prevData", "tooBig", "handle", "status"];
    let mut checked = 0;
    for (t, good) in kinds {
        let whole = frame(t, good.clone());
        assert!(!matches!(read(&whole), Ok(Frame::Malformed(_)) | Err(_)), "{t}");
        for field in required.iter().chain(&optional).filter(|field| good.contains_key(**field)) {
            let mut without = good.clone();
            without.remove(*field);
            let mut other = good.clone();
            other.insert((*field).into(), Ipld::Map(Map::new()));
            for (body, missing) in [(without, true), (other, false)] {
                let bytes = frame(t, body);
                match read(&bytes).unwrap() {
                    Frame::Malformed(Malformed { seq, did, field: named }) => {
                        assert_eq!(named, *field);
                        assert!(!(missing && optional.contains(field)), "{t} without {field}");
                        assert_eq!(seq.is_some(), *field != "seq");
                        assert_eq!(did.is_some(), !["did", "repo"].contains(field));
                    }
                    _ => assert!(missing && optional.contains(field), "{t} without {field}"),
                }
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 2 * (10 + 5 + 4 + 5));
    let list = [encode(&Ipld::Map(map([("op", Ipld::Integer(1)), ("t", text("#sync"))]))), encode(&Ipld::List(vec![]))].concat();
    assert!(matches!(read(&list), Ok(Frame::Malformed(Malformed { seq: None, did: None, field: "body" }))));
}

#[test]
fn an_event_beyond_its_limits_is_dropped_alone() {
    let verdict = |t: &str, mut body: Map, field: &str, value: Ipld| {
        body.insert(field.into(), value);
        match read(&frame(t, body)) {
            Ok(Frame::Malformed(malformed)) => Some(malformed.field),
            Ok(_) => None,
            Err(error) => panic!("{error}"),
        }
    };
    for (number, accepted) in [(0, false), (-1, false), (1, true), ((1 << 53) - 1, true), (1 << 53, false), (i64::MAX.into(), false)] {
        assert_eq!(verdict("#account", good_account(), "seq", Ipld::Integer(number)).is_none(), accepted, "{number}");
    }
    let blocks = |len: usize| Ipld::Bytes(vec![0; len]);
    assert_eq!(verdict("#commit", good_commit(), "blocks", blocks(MAX_COMMIT_BLOCKS)), None);
    assert_eq!(verdict("#commit", good_commit(), "blocks", blocks(MAX_COMMIT_BLOCKS + 1)), Some("blocks"));
    assert_eq!(verdict("#sync", good_sync(), "blocks", blocks(MAX_SYNC_BLOCKS)), None);
    assert_eq!(verdict("#sync", good_sync(), "blocks", blocks(MAX_SYNC_BLOCKS + 1)), Some("blocks"));
    let ops = |len: u64| Ipld::List(vec![Ipld::Map(Map::new()); len as usize]);
    assert_eq!(verdict("#commit", good_commit(), "ops", ops(MAX_OPS)), None);
    assert_eq!(verdict("#commit", good_commit(), "ops", ops(MAX_OPS + 1)), Some("ops"));
    // A link of another kind than commits and tree nodes have.
    let raw = Ipld::Link("bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity".parse().unwrap());
    assert_eq!(verdict("#commit", good_commit(), "commit", raw), Some("commit"));
}

#[test]
fn an_op_with_a_broken_field_is_told_by_its_name() {
    let op = map([("action", text("update")), ("path", text("a.b.c/d")), ("cid", link(1)), ("prev", link(2))]);
    let told = |op: Ipld| {
        let mut body = good_commit();
        body.insert("ops".into(), Ipld::List(vec![op]));
        let bytes = frame("#commit", body);
        let Ok(Frame::Commit(event)) = read(&bytes) else { panic!("no commit") };
        event.ops.iter().next().unwrap().err()
    };
    assert_eq!(told(Ipld::Map(op.clone())), None);
    assert_eq!(told(Ipld::Integer(1)), Some("ops"));
    for (field, name) in [("action", "ops.action"), ("path", "ops.path"), ("cid", "ops.cid"), ("prev", "ops.prev")] {
        let mut other = op.clone();
        other.insert(field.into(), Ipld::Integer(1));
        assert_eq!(told(Ipld::Map(other)), Some(name));
    }
    let mut unknown = op.clone();
    unknown.insert("action".into(), text("upsert"));
    assert_eq!(told(Ipld::Map(unknown)), Some("ops.action"));
}

#[test]
fn kinds_of_frames_that_are_not_known_are_passed_over() {
    let body = || encode(&Ipld::Map(map([("seq", Ipld::Integer(5))])));
    let header = |op: i128, t: &str| encode(&Ipld::Map(map([("op", Ipld::Integer(op)), ("t", text(t))])));
    for header in [header(1, "#handle"), header(1, "commit"), header(2, "#commit"), header(-2, "#commit"), header(0, "")] {
        assert!(matches!(read(&[header, body()].concat()), Ok(Frame::Unknown { seq: Some(seq) }) if seq.get() == 5));
    }
    assert!(matches!(read(&[header(2, ""), encode(&Ipld::Null)].concat()), Ok(Frame::Unknown { seq: None })));
    let error = |body: Ipld| [encode(&Ipld::Map(map([("op", Ipld::Integer(-1))]))), encode(&body)].concat();
    let future = error(Ipld::Map(map([("error", text("FutureCursor")), ("message", text("in words"))])));
    assert!(matches!(read(&future), Ok(Frame::Error { name: "FutureCursor", message: Some("in words") })));
    assert!(matches!(read(&error(Ipld::List(vec![]))), Ok(Frame::Error { name: "", message: None })));
}

#[test]
fn bytes_that_are_not_two_strict_values_end_the_connection() {
    let good = frame("#account", good_account());
    let header_len = encode(&Ipld::Map(map([("op", Ipld::Integer(1)), ("t", text("#account"))]))).len();
    for len in 0..good.len() {
        let expected = if len < header_len { FramingError::Header } else { FramingError::Body };
        assert_eq!(read(&good[..len]).unwrap_err(), expected, "{len}");
    }
    assert_eq!(read(&[&good[..], &[0xf6]].concat()).unwrap_err(), FramingError::Trailing(1));
    assert_eq!(read(&vec![0; MAX_FRAME + 1]).unwrap_err(), FramingError::TooLong(MAX_FRAME + 1));
    let body = &good[header_len..];
    let headers: [&[u8]; 7] = [
        b"\x80",                                    // an array
        b"\xa1\x61t\x68#account",                   // no op
        b"\xa1\x62op\x01",                          // no t
        b"\xa2\x61t\x68#account\x62op\x18\x01",     // not as short as it can be
        b"\xa2\x62op\x01\x61t\x68#account",         // keys out of order
        b"\xa2\x61t\x68#account\x62op\xf9\x3c\x00", // a float
        b"\xbf\x61t\x68#account\x62op\x01\xff",     // no length
    ];
    for header in headers {
        assert_eq!(read(&[header, body].concat()).unwrap_err(), FramingError::Header, "{header:x?}");
    }
    let mut nested = vec![0x81; 100];
    nested.push(0xf6);
    let bodies: [&[u8]; 4] = [
        b"\xa2\x63seq\x01\x63seq\x02", // a key twice
        b"\xa1\x61x\xfb\x3f\xf0\0\0\0\0\0\0",
        b"\xa1\x61x\x61\xff",
        &[b"\xa1\x61x", &nested[..]].concat(),
    ];
    for body in bodies {
        assert_eq!(read(&[&good[..header_len], body].concat()).unwrap_err(), FramingError::Body, "{body:x?}");
    }
}

/// Reads everything that a frame offers.
fn exhaust(bytes: &[u8]) -> bool {
    let Ok(frame) = read(bytes) else { return false };
    if let Frame::Commit(event) = frame {
        assert_eq!(event.ops.iter().count() as u64, event.ops.len());
    }
    frame.time().map(moment);
    frame.seq().is_some() || frame.did().is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), with_header in any::<bool>()) {
        let header: &[u8] = if with_header { b"\xa2\x61t\x67#commit\x62op\x01" } else { b"" };
        exhaust(&[header, &bytes].concat());
    }

    #[test]
    fn no_damage_of_a_frame_makes_the_decoder_panic(number in 0usize..127, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>()) {
        static FRAMES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(ref_frames);
        let mut frame = FRAMES[number].clone();
        for (at, to) in flips {
            // Mostly near the beginning or the end, where the fields are; the blocks lie between.
            let len = frame.len();
            let at = at.index(len.min(600));
            frame[if to & 1 == 0 { at } else { len - 1 - at }] = to;
        }
        exhaust(&frame);
        exhaust(&frame[..cut.index(frame.len() + 1)]);
    }
}
