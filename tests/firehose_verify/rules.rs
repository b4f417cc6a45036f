//! Every rule, broken one at a time.

use atproto_backfill::firehose::event::RawAction;
use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::firehose::{Prepared, Verdict};
use atproto_backfill::job::Timestamp;
use atproto_backfill::repo::{Curve, Link, SigningKey};
use atproto_backfill::syntax::{RecordPath, Rev};
use ipld_core::ipld::Ipld;

use crate::event::{DROP, GAP, KEY, Map, as_link, cid, prepare, rewritten, said, sample, text, truth, verify};

#[test]
fn a_commit_whose_fields_break_a_rule_is_dropped_by_the_rule_s_name() {
    let event = || sample("create");
    let other = Link::of(b"another");
    let path = event().first_op()["path"].clone();
    let twice = {
        let mut event = event();
        let op = event.ops()[0].clone();
        event.ops().push(op);
        event
    };
    let cases = [
        (event(), ""),
        (event().set("repo", text("did:web:other.test")), "account"),
        (event().set("repo", text("did:WEB:other.test")), "field"),
        (event().set("rev", text("3jzfcijpj2z2a")), "rev"),
        (event().set("rev", text("3jzfcijpj2z2")), "field"),
        (event().set("since", text("")), "field"),
        (event().set("time", text("yesterday")), "field"),
        (event().with_op("path", Some(text("app.example.record"))), "field"),
        (event().with_op("action", Some(text("upsert"))), "op"),
        (event().with_op("prev", Some(cid(other))), "op"),
        (event().with_op("cid", Some(Ipld::Null)), "op"),
        (sample("delete").with_op("cid", Some(cid(other))), "op"),
        (sample("delete").with_op("prev", None), "op"),
        (sample("update").with_op("prev", None), "op"),
        (twice, "twice"),
        (event().set("commit", cid(other)), "root"),
    ];
    for (event, expected) in cases {
        let verdict = if expected.is_empty() { None } else { DROP };
        assert_eq!(said(&event.frame()), (expected, verdict, expected.is_empty()), "{path:?}");
    }
}

#[test]
fn a_rev_may_lie_five_minutes_ahead() {
    let frame = sample("create").frame();
    let Ok(Frame::Commit(event)) = read(&frame) else { panic!("no commit") };
    let at = Timestamp((Rev::new(event.rev).unwrap().micros() / 1000) as i64);
    let minutes = |minutes: i64| Timestamp(at.0 - minutes * 60_000);
    assert!(Prepared::commit(&frame, &event, minutes(5)).is_ok());
    let fault = Prepared::commit(&frame, &event, Timestamp(minutes(5).0 - 1)).unwrap_err();
    assert_eq!((fault.as_str(), fault.verdict()), ("future", Verdict::Drop));
}

#[test]
fn blocks_that_are_missing_are_a_gap_and_blocks_that_are_wrong_are_not() {
    let event = sample("update");
    let record = as_link(&event.first_op()["cid"]);
    let data = Link::from_cid(
        match &serde_ipld_dagcbor::from_slice::<Map>(&event.blocks.iter().find(|(link, _)| *link == event.root).unwrap().1).unwrap()["data"]
        {
            Ipld::Link(cid) => cid,
            other => panic!("{other:?}"),
        },
    )
    .unwrap();
    let empty = event.clone().set("blocks", Ipld::Bytes(vec![]));
    assert_eq!(said(&empty.bare_frame()), ("no_blocks", GAP, false));
    assert_eq!(said(&empty.set("tooBig", Ipld::Bool(true)).bare_frame()), ("too_big", GAP, false));
    assert_eq!(said(&event.clone().set("tooBig", Ipld::Bool(true)).frame()), ("too_big", GAP, true));
    assert_eq!(said(&event.clone().without_block(event.root).frame()), ("missing_commit", GAP, false));
    assert_eq!(said(&event.clone().without_block(record).frame()), ("missing_record", GAP, true));
    assert_eq!(said(&event.clone().without_block(data).frame()), ("insufficient", GAP, true));

    let mut flipped = event.clone();
    flipped.blocks[0].1[3] ^= 1;
    assert_eq!(said(&flipped.frame()), ("hash", DROP, false));
    let car = event.car();
    let cut = event.clone().set("blocks", Ipld::Bytes(car[..car.len() - 1].to_vec()));
    assert_eq!(said(&cut.bare_frame()), ("car", DROP, false));
    let page = event.clone().set("blocks", Ipld::Bytes(b"<html>".to_vec()));
    assert_eq!(said(&page.bare_frame()), ("car", DROP, false));

    // A node of the tree that is no node, though its hash is right.
    let mut bad = event.clone().without_block(data);
    let junk = b"\xa1\x61e\x80".to_vec();
    let commit = rewritten(&bad, |commit| drop(commit.insert("data".into(), cid(Link::of(&junk)))));
    bad.blocks.push((Link::of(&junk), junk));
    bad.blocks.push((Link::of(&commit), commit.clone()));
    bad.root = Link::of(&commit);
    let bad = bad.clone().set("commit", cid(bad.root));
    assert_eq!(said(&bad.frame()), ("tree", DROP, true));
}

#[test]
fn ops_that_are_not_what_the_commit_changed_are_dropped() {
    let other = Link::of(b"another");
    let stray = |action: &str| {
        let prev = (action != "create").then_some(("prev".to_owned(), cid(Link::of(b"a third"))));
        let target = if action == "delete" { Ipld::Null } else { cid(other) };
        let op = [("action".to_owned(), text(action)), ("path".to_owned(), text("app.example.record/zzz")), ("cid".to_owned(), target)];
        Ipld::Map(op.into_iter().chain(prev).collect())
    };
    let event = sample("create");
    assert_eq!(said(&event.clone().set("prevData", cid(other)).frame()), ("prev_data", DROP, true));
    assert_eq!(said(&event.clone().with_op("cid", Some(cid(other))).frame()), ("contradiction", DROP, true));
    for action in ["create", "update", "delete"] {
        let mut more = event.clone();
        more.ops().push(stray(action));
        let (name, verdict, _) = said(&more.frame());
        assert!(matches!((name, verdict), ("contradiction" | "prev_data", DROP) | ("insufficient", GAP)), "{action}: {name} {verdict:?}");
    }
    let mut fewer = event.clone();
    fewer.ops().remove(0);
    assert_eq!(said(&fewer.frame()), ("prev_data", DROP, true));
    let update = sample("update");
    assert_eq!(said(&update.clone().with_op("prev", Some(cid(other))).frame()), ("prev_data", DROP, true));
    // An update to the record that was there tells nothing, and hides nothing.
    let same = update.first_op()["cid"].clone();
    assert_eq!(said(&update.with_op("prev", Some(same)).frame()), ("prev_data", DROP, true));
    let mut more = event.clone();
    let nothing = Ipld::Map(Map::from([
        ("prev".into(), cid(other)),
        ("cid".into(), cid(other)),
        ("path".into(), text("a.b.c/d")),
        ("action".into(), text("update")),
    ]));
    more.ops().push(nothing);
    assert_eq!(verify(&more.frame()).unwrap(), truth(&event));
}

#[test]
fn a_signature_of_another_key_or_of_another_commit_does_not_count() {
    let event = sample("create");
    assert!(prepare(&event.frame()).unwrap().signed_by(SigningKey::from_seed(Curve::K256, &[1; 32]).public()).is_err());
    for change in ["sig", "later"] {
        let mut other = event.clone();
        let commit = rewritten(&event, |commit| match commit.get_mut(change) {
            Some(Ipld::Bytes(signature)) => signature[5] ^= 1,
            _ => drop(commit.insert(change.into(), Ipld::Integer(1))),
        });
        other.root = Link::of(&commit);
        other.blocks.push((other.root, commit));
        let prepared = prepare(&other.clone().set("commit", cid(other.root)).frame()).unwrap();
        assert!(prepared.signed_by(&KEY).is_err(), "{change}");
    }
}

#[test]
fn the_samples_are_of_their_kinds() {
    for (name, action) in [("create", RawAction::Create), ("update", RawAction::Update), ("delete", RawAction::Delete)] {
        let frame = sample(name).frame();
        let Ok(Frame::Commit(event)) = read(&frame) else { panic!("no commit") };
        let op = event.ops.iter().next().unwrap().unwrap();
        assert_eq!(op.action, action);
        assert!(RecordPath::new(op.path).is_ok());
    }
}
