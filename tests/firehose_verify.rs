//! Which commits are believed: those of the reference implementation, and no damaged one.
#![cfg(feature = "sim")]

mod common;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use atproto_backfill::firehose::event::RawAction;
use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::firehose::{CommitFault, Prepared, Verdict};
use atproto_backfill::job::{Chain, Op, OpAction, OpSet, Position, Timestamp, chain};
use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
use atproto_backfill::repo::mst::Tree;
use atproto_backfill::repo::{Curve, Link, PublicKey, SigningKey};
use atproto_backfill::syntax::{Did, RecordPath, Rev};
use bytes::Bytes;
use common::vectors::{Blocks, json_lines, read_car, ref_frames};
use ipld_core::ipld::Ipld;
use proptest::prelude::*;
use serde_json::Value;

type Map = BTreeMap<String, Ipld>;

/// Later than every generated commit.
const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// A `#commit` taken apart by a general library.
#[derive(Debug, Clone)]
struct Event {
    body: Map,
    root: Link,
    blocks: Vec<(Link, Vec<u8>)>,
}

impl Event {
    fn parse(frame: &[u8]) -> Self {
        let mut rest = frame;
        let _header: Ipld = serde_ipld_dagcbor::de::from_reader_once(&mut rest).unwrap();
        let body: Map = serde_ipld_dagcbor::from_slice(rest).unwrap();
        let Ipld::Bytes(car) = &body["blocks"] else { panic!("no blocks") };
        let (root, blocks) = read_car(car);
        Self { root, blocks: blocks.into_iter().collect(), body }
    }

    fn set(mut self, field: &str, value: impl Into<Option<Ipld>>) -> Self {
        match value.into() {
            Some(value) => self.body.insert(field.into(), value),
            None => self.body.remove(field),
        };
        self
    }

    fn ops(&mut self) -> &mut Vec<Ipld> {
        let Some(Ipld::List(ops)) = self.body.get_mut("ops") else { panic!("no ops") };
        ops
    }

    fn op(&mut self, at: usize) -> &mut Map {
        let Ipld::Map(op) = &mut self.ops()[at] else { panic!("an op is no map") };
        op
    }

    fn first_op(&self) -> &Map {
        let Ipld::List(ops) = &self.body["ops"] else { panic!("no ops") };
        let Some(Ipld::Map(op)) = ops.first() else { panic!("an op is no map") };
        op
    }

    fn with_op(mut self, field: &str, value: Option<Ipld>) -> Self {
        match value {
            Some(value) => self.op(0).insert(field.into(), value),
            None => self.op(0).remove(field),
        };
        self
    }

    fn without_block(mut self, gone: Link) -> Self {
        self.blocks.retain(|(link, _)| *link != gone);
        self
    }

    fn link(&self, field: &str) -> Link {
        as_link(&self.body[field])
    }

    fn car(&self) -> Vec<u8> {
        let mut car = Vec::new();
        car_header(&mut car, &self.root);
        self.blocks.iter().for_each(|(link, block)| car_block(&mut car, link, block));
        car
    }

    /// The frame with its blocks.
    fn frame(&self) -> Bytes {
        self.clone().set("blocks", Ipld::Bytes(self.car())).bare_frame()
    }

    /// The frame with what the body has as blocks.
    fn bare_frame(&self) -> Bytes {
        [b"\xa2\x61t\x67#commit\x62op\x01".to_vec(), serde_ipld_dagcbor::to_vec(&self.body).unwrap()].concat().into()
    }
}

fn as_link(value: &Ipld) -> Link {
    let Ipld::Link(cid) = value else { panic!("{value:?} is no link") };
    Link::from_cid(cid).unwrap()
}

fn text(value: &str) -> Ipld {
    Ipld::String(value.into())
}

fn cid(link: Link) -> Ipld {
    Ipld::Link(link.to_cid())
}

/// The generated commits.
static EVENTS: LazyLock<Vec<Event>> = LazyLock::new(|| {
    ref_frames().iter().filter(|frame| frame.starts_with(b"\xa2\x61t\x67#commit")).map(|frame| Event::parse(frame)).collect()
});

static KEY: LazyLock<PublicKey> = LazyLock::new(|| {
    let lines: Vec<Value> = json_lines("generated/ref_commits.jsonl.gz", 120);
    PublicKey::from_did_key(lines[0]["key"].as_str().unwrap()).unwrap()
});

/// What each generated commit changed, as a general library reads it.
static TRUTH: LazyLock<Vec<OpSet>> = LazyLock::new(|| EVENTS.iter().map(truth).collect());

fn truth(event: &Event) -> OpSet {
    let blocks: Blocks = event.blocks.iter().cloned().collect();
    let string = |value: &Ipld| if let Ipld::String(text) = value { text.clone() } else { panic!("{value:?} is no text") };
    let commit: Map = serde_ipld_dagcbor::from_slice(&blocks[&event.root]).unwrap();
    let Ipld::List(ops) = &event.body["ops"] else { panic!("no ops") };
    let ops = ops.iter().map(|op| {
        let Ipld::Map(op) = op else { panic!("an op is no map") };
        let record = || Bytes::from(blocks[&as_link(&op["cid"])].clone());
        let action = match string(&op["action"]).as_str() {
            "create" => OpAction::Create { cid: as_link(&op["cid"]), record: record() },
            "update" => OpAction::Update { cid: as_link(&op["cid"]), record: record() },
            "delete" => OpAction::Delete,
            other => panic!("{other}"),
        };
        Op { path: string(&op["path"]).parse().unwrap(), action }
    });
    OpSet {
        did: string(&event.body["repo"]).parse().unwrap(),
        rev: string(&event.body["rev"]).parse().unwrap(),
        since: Some(string(&event.body["since"]).parse().unwrap()),
        data: Some(as_link(&commit["data"])),
        prev_data: Some(event.link("prevData")),
        ops: ops.collect(),
    }
}

fn prepare(frame: &Bytes) -> Result<Prepared, CommitFault> {
    match read(frame) {
        Ok(Frame::Commit(event)) => Prepared::commit(frame, &event, NOW),
        other => panic!("no commit: {other:?}"),
    }
}

fn verify(frame: &Bytes) -> Result<OpSet, CommitFault> {
    let prepared = prepare(frame)?;
    assert_eq!(prepared.signed_by(&KEY), Ok(()));
    prepared.prove()
}

#[test]
fn the_generated_firehose_is_believed_whole() {
    let mut position: Option<Position> = None;
    let mut counts = [0; 3];
    for frame in ref_frames().into_iter().map(Bytes::from) {
        match read(&frame).unwrap() {
            Frame::Commit(_) => {
                let op_set = verify(&frame).unwrap();
                assert_eq!(op_set, TRUTH[counts[0]]);
                if let Some(stands) = position {
                    assert_eq!((op_set.since, op_set.prev_data), (Some(stands.rev), stands.data));
                    assert_eq!(chain(position, &op_set), Chain::Apply);
                }
                position = Some(Position { rev: op_set.rev, data: op_set.data });
                counts[0] += 1;
            }
            Frame::Sync(event) => {
                let prepared = Prepared::sync(&frame, &event, NOW).unwrap();
                assert_eq!(prepared.signed_by(&KEY), Ok(()));
                let (op_set, stands) = (prepared.prove().unwrap(), position.unwrap());
                assert_eq!((op_set.rev, op_set.data, op_set.prev_data, op_set.ops.len()), (stands.rev, stands.data, stands.data, 0));
                assert_eq!(chain(position, &op_set), Chain::Stale);
                assert_eq!(prepared.unproven().unwrap(), op_set);
                counts[1] += 1;
            }
            _ => counts[2] += 1,
        }
    }
    assert_eq!(counts, [120, 1, 6]);
    assert_eq!(position.unwrap().rev.as_str(), "3n3inktkstc2m");
}

#[test]
fn the_generated_commits_are_the_same_as_json() {
    let lines: Vec<Value> = json_lines("generated/ref_commits.jsonl.gz", 120);
    for (line, truth) in lines.into_iter().zip(&*TRUTH) {
        let Value::Object(mut body) = line else { panic!("a line is no object") };
        body.remove("key");
        body.insert("seq".into(), 1.into());
        body.entry("time").or_insert("2026-11-30T00:00:00Z".into());
        let body = atproto_backfill::repo::json::from_value(&Value::Object(body)).unwrap();
        let frame = Bytes::from([b"\xa2\x61t\x67#commit\x62op\x01".to_vec(), body].concat());
        assert_eq!(verify(&frame).unwrap(), *truth);
    }
}

/// A generated commit whose first op is of a kind, of a path that no other of its ops has.
fn sample(action: &str) -> Event {
    EVENTS.iter().rev().find(|event| event.first_op()["action"] == text(action)).unwrap().clone()
}

/// What is said of a frame: the fault's name and verdict, and whether the signature was checked before.
fn said(frame: &Bytes) -> (&'static str, Option<Verdict>, bool) {
    let prepared = match prepare(frame) {
        Ok(prepared) => prepared,
        Err(fault) => return (fault.as_str(), Some(fault.verdict()), false),
    };
    match prepared.prove() {
        Ok(_) => ("", None, true),
        Err(fault) => (fault.as_str(), Some(fault.verdict()), true),
    }
}

const DROP: Option<Verdict> = Some(Verdict::Drop);
const GAP: Option<Verdict> = Some(Verdict::Gap);

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

/// The commit's block with another content.
fn rewritten(event: &Event, change: impl FnOnce(&mut Map)) -> Vec<u8> {
    let (_, block) = event.blocks.iter().find(|(link, _)| *link == event.root).unwrap();
    let mut commit: Map = serde_ipld_dagcbor::from_slice(block).unwrap();
    change(&mut commit);
    serde_ipld_dagcbor::to_vec(&commit).unwrap()
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
fn a_commit_that_names_no_tree_before_it_chains_by_since() {
    let (event, truth) = (&EVENTS[60], &TRUTH[60]);
    let legacy = event.clone().set("prevData", None);
    let prepared = prepare(&legacy.frame()).unwrap();
    assert!(!prepared.names_prev_data() && prepare(&event.frame()).unwrap().names_prev_data());
    let op_set = prepared.prove().unwrap();
    assert_eq!(op_set, OpSet { prev_data: None, ..truth.clone() });
    assert_eq!(prepared.unproven().unwrap(), op_set);
    let stands = |rev| Some(Position { rev, data: truth.prev_data });
    assert_eq!(chain(stands(truth.since.unwrap()), &op_set), Chain::Apply);
    assert_eq!(chain(stands(Rev::ZERO), &op_set), Chain::Gap);
    // What the tree can tell is still asked.
    let mut lying = legacy.clone();
    lying.op(0).insert("path".into(), text("app.example.record/zzz"));
    assert_ne!(said(&lying.frame()).1, None);
}

#[test]
fn the_weaker_levels_take_the_ops_as_they_are_told() {
    for (event, truth) in EVENTS.iter().zip(&*TRUTH) {
        let prepared = prepare(&event.frame()).unwrap();
        assert_eq!(prepared.unproven().unwrap(), OpSet { prev_data: None, ..truth.clone() });
    }
    let event = sample("create");
    let record = as_link(&event.first_op()["cid"]);
    let fault = prepare(&event.without_block(record).frame()).unwrap().unproven().unwrap_err();
    assert_eq!((fault.as_str(), fault.verdict()), ("missing_record", Verdict::Gap));
}

#[test]
fn a_gap_is_an_op_set_that_chains_nowhere() {
    let event = sample("create").set("tooBig", Ipld::Bool(true));
    let prepared = prepare(&event.frame()).unwrap();
    let truth = truth(&event);
    let gap = prepared.gap();
    assert_eq!((&gap.did, gap.rev, gap.ops.len()), (&truth.did, truth.rev, 0));
    assert_eq!((prepared.did(), prepared.rev(), Some(prepared.data())), (&truth.did, truth.rev, truth.data));
    assert_eq!(chain(Some(Position { rev: truth.since.unwrap(), data: truth.prev_data }), &gap), Chain::Gap);
    assert_eq!(chain(Some(Position { rev: truth.since.unwrap(), data: None }), &gap), Chain::Gap);
}

/// The first commit of a repo of these records, told as `told` says.
fn first(curve: Curve, records: &[&str], told: &[&str]) -> (Bytes, PublicKey) {
    let key = SigningKey::from_seed(curve, &[7; 32]);
    let did = Did::new("did:web:example.test").unwrap();
    let record = |path: &str| serde_ipld_dagcbor::to_vec(&Ipld::Map(Map::from([("path".into(), text(path))]))).unwrap();
    let mut tree: Tree = records.iter().map(|path| (path.as_bytes(), Link::of(&record(path)))).collect();
    let sealed = tree.seal();
    let rev = Rev::from_parts(1_790_000_000_000_000, 1);
    let (root, commit) = signed_commit(&did, rev, sealed.root, &key);
    let mut blocks = vec![(root, commit)];
    blocks.extend(sealed.created);
    blocks.extend(records.iter().map(|path| (Link::of(&record(path)), record(path))));
    let ops = told.iter().map(|path| {
        let op = [("action", text("create")), ("path", text(path)), ("cid", cid(Link::of(&record(path))))];
        Ipld::Map(op.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    });
    let body = [
        ("seq", Ipld::Integer(1)),
        ("repo", text(did.as_str())),
        ("rev", text(rev.as_str())),
        ("since", Ipld::Null),
        ("commit", cid(root)),
        ("ops", Ipld::List(ops.collect())),
        ("time", text("2026-11-30T00:00:00Z")),
    ];
    let body = body.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    (Event { body, root, blocks }.frame(), key.public().clone())
}

#[test]
fn a_first_commit_leads_from_the_empty_tree() {
    let paths: Vec<String> = (0..30).map(|number| format!("app.example.record/{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    for (curve, count) in [(Curve::K256, 30), (Curve::P256, 1), (Curve::P256, 0)] {
        let (frame, key) = first(curve, &paths[..count], &paths[..count]);
        let prepared = prepare(&frame).unwrap();
        assert_eq!(prepared.signed_by(&key), Ok(()));
        let op_set = prepared.prove().unwrap();
        assert_eq!((op_set.since, op_set.prev_data, op_set.ops.len()), (None, Some(Tree::new().seal().root), count));
    }
    let (frame, _) = first(Curve::K256, &paths, &paths[1..]);
    assert_eq!(said(&frame), ("prev_data", DROP, true));
    let (frame, _) = first(Curve::K256, &paths[..1], &[]);
    assert_eq!(said(&frame), ("prev_data", DROP, true));
}

#[test]
fn records_do_not_keep_large_frames_in_memory() {
    for event in EVENTS.iter() {
        let frame = event.frame();
        let span = frame.as_ptr() as usize..frame.as_ptr() as usize + frame.len();
        let ops = verify(&frame).unwrap().ops;
        let records: Vec<&Bytes> = ops
            .iter()
            .filter_map(|op| {
                if let OpAction::Create { record, .. } | OpAction::Update { record, .. } = &op.action { Some(record) } else { None }
            })
            .collect();
        let total: usize = records.iter().map(|record| record.len()).sum();
        let shared = records.iter().any(|record| span.contains(&(record.as_ptr() as usize)));
        assert_eq!(shared, !records.is_empty() && total >= frame.len() / 4);
    }
}

/// Ways of damaging an event that leave it a frame.
fn damage(mut event: Event, kind: u8, at: usize, other: &Event) -> Event {
    let (ops, blocks) = (event.ops().len().max(1), event.blocks.len());
    let donor = other.clone().ops().first().cloned();
    match kind % 16 {
        0 => drop(event.blocks.remove(at % blocks)),
        1 => event.blocks.swap(at % blocks, at / 7 % blocks),
        2 => event.blocks.push(event.blocks[at % blocks].clone()),
        3 => event.blocks.extend(other.blocks.iter().cloned()),
        4 => event.blocks = other.blocks.clone(),
        5 => event.blocks[at % blocks].1.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        6 if !event.ops().is_empty() => drop(event.ops().remove(at % ops)),
        7 if !event.ops().is_empty() => event.ops().swap(at % ops, at / 7 % ops),
        8 => event.ops().extend(donor),
        9 => event.body.extend([("ops".to_owned(), other.body["ops"].clone())]),
        10 => event.body.extend([("prevData".to_owned(), other.body["prevData"].clone())]),
        11 => event.body.extend([("rev".to_owned(), other.body["rev"].clone())]),
        12 => event.body.extend([("since".to_owned(), other.body["since"].clone())]),
        13 => event.root = other.root,
        14 => {
            for field in ["cid", "prev", "action", "path"] {
                if let (Some(Ipld::Map(donor)), true, true) = (&donor, !event.ops().is_empty(), at.is_multiple_of(field.len())) {
                    event.op(at % ops).extend(donor.get(field).cloned().map(|value| (field.to_owned(), value)));
                }
            }
        }
        _ => {
            let (link, block) = other.blocks[at % other.blocks.len()].clone();
            let place = at % blocks;
            event.blocks[place] = (link, block);
        }
    }
    event
}

/// The op sets that the firehose may tell, without what is unsigned and unproven: the order of the ops and `since`.
fn comparable(op_set: &OpSet) -> OpSet {
    let mut op_set = OpSet { since: None, ..op_set.clone() };
    op_set.ops.sort_by(|one, other| one.path.cmp(&other.path));
    op_set
}

/// Whatever comes of a frame is true, or nothing comes of it.
fn assert_true(frame: &Bytes) {
    let Ok(Frame::Commit(event)) = read(frame) else { return };
    let Ok(prepared) = Prepared::commit(frame, &event, NOW) else { return };
    if prepared.signed_by(&KEY).is_err() {
        return;
    }
    let truth = TRUTH.iter().find(|truth| truth.rev == prepared.rev()).expect("a signed commit is one of the generated");
    if let Ok(op_set) = prepared.prove()
        && prepared.names_prev_data()
    {
        assert_eq!(comparable(&op_set), comparable(truth));
    }
    if let Ok(op_set) = prepared.unproven() {
        assert_eq!((&op_set.did, op_set.data, op_set.prev_data), (&truth.did, truth.data, None));
        for op in op_set.ops {
            match op.action {
                OpAction::Create { cid, record } | OpAction::Update { cid, record } => assert_eq!(Link::of(&record), cid),
                OpAction::Delete => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_damaged_event_is_true_or_nothing(number in 0usize..120, other in 0usize..120, damages in prop::collection::vec((any::<u8>(), any::<usize>()), 1..3)) {
        let mut event = EVENTS[number].clone();
        for (kind, at) in damages {
            if !event.blocks.is_empty() {
                event = damage(event, kind, at, &EVENTS[other]);
            }
        }
        assert_true(&event.frame());
    }

    #[test]
    fn a_frame_with_a_flipped_byte_is_true_or_nothing(number in 0usize..120, at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut frame = EVENTS[number].frame().to_vec();
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        assert_true(&frame.into());
    }

    #[test]
    fn blocks_of_any_bytes_are_refused(number in 0usize..120, mut car in prop::collection::vec(any::<u8>(), 0..400), from_truth in any::<prop::sample::Index>()) {
        let event = &EVENTS[number];
        // Behind a part of a true CAR, so that reading gets that far.
        let truth = event.car();
        let mut blocks = truth[..from_truth.index(truth.len())].to_vec();
        blocks.append(&mut car);
        assert_true(&event.clone().set("blocks", Ipld::Bytes(blocks)).bare_frame());
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
