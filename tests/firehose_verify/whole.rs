//! What is believed, and what comes of it.

use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::firehose::{Prepared, Verdict};
use atproto_backfill::job::{Chain, OpAction, OpSet, Position, chain};
use atproto_backfill::repo::export::signed_commit;
use atproto_backfill::repo::mst::{Tree, Visit, key_height};
use atproto_backfill::repo::{Curve, Link, PublicKey, SigningKey};
use atproto_backfill::syntax::{Did, Rev};
use bytes::Bytes;
use ipld_core::ipld::Ipld;
use serde_json::Value;

use crate::common::vectors::{json_lines, ref_frames};
use crate::event::{DROP, EVENTS, Event, GAP, KEY, Map, NOW, TRUTH, as_link, cid, prepare, said, sample, text, truth, verify};

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

fn record(path: &str) -> Vec<u8> {
    serde_ipld_dagcbor::to_vec(&Ipld::Map(Map::from([("path".into(), text(path))]))).unwrap()
}

/// The link of the record at a path.
fn link_of(path: &str) -> Link {
    Link::of(&record(path))
}

/// The first commit of a repo of these records, told as `told` says.
fn first(curve: Curve, records: &[&str], told: &[&str]) -> (Bytes, PublicKey) {
    let key = SigningKey::from_seed(curve, &[7; 32]);
    let did = Did::new("did:web:example.test").unwrap();
    let mut tree: Tree = records.iter().map(|path| (path.as_bytes(), link_of(path))).collect();
    let sealed = tree.seal();
    let rev = Rev::from_parts(1_790_000_000_000_000, 1);
    let (root, commit) = signed_commit(&did, rev, sealed.root, &key);
    let mut blocks = vec![(root, commit)];
    blocks.extend(sealed.created);
    blocks.extend(records.iter().map(|path| (link_of(path), record(path))));
    let ops = told.iter().map(|path| {
        let op = [("action", text("create")), ("path", text(path)), ("cid", cid(link_of(path)))];
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
fn a_commit_that_does_not_bring_the_root_before_it_is_believed_where_it_names_it_and_is_else_a_gap() {
    let at =
        |height| (0..).map(|number| format!("app.example.record/{number:06}")).filter(move |path| key_height(path.as_bytes()) == height);
    let low: Vec<String> = at(0).take(3).collect();
    let high = at(2).find(|path| *path > low[2]).unwrap();
    let paths: Vec<&str> = low.iter().chain([&high]).map(String::as_str).collect();
    let (frame, _) = first(Curve::K256, &paths, &paths[3..]);
    let before = low.iter().map(|path| (path.as_bytes(), link_of(path))).collect::<Tree>().seal().root;
    let event = Event::parse(&frame).set("since", text("3lllllllllll2")).set("prevData", cid(before));
    assert_eq!(said(&event.frame()), ("", None, true));
    let unseen = event.without_block(before);
    assert_eq!(said(&unseen.frame()), ("", None, true));
    // What is left leads to the root before, but does not show it.
    let tree =
        Tree::load(prepare(&frame).unwrap().data(), |link| unseen.blocks.iter().find(|(of, _)| of == link).map(|(_, block)| &block[..]));
    let mut between = Vec::new();
    tree.unwrap().visit(|visit| {
        if let Visit::Node(link, _) = visit {
            between.push(link)
        }
    });
    assert_eq!(between.len(), 2);
    assert_eq!(said(&unseen.without_block(between[1]).frame()), ("insufficient", GAP, true));
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
