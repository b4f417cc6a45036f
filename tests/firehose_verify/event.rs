//! The generated commits, taken apart by a general library and put together again in other ways.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::firehose::{CommitFault, Prepared, Verdict};
use atproto_backfill::job::{Op, OpAction, OpSet, Timestamp};
use atproto_backfill::repo::export::{car_block, car_header};
use atproto_backfill::repo::{Link, PublicKey};
use bytes::Bytes;
use ipld_core::ipld::Ipld;
use serde_json::Value;

use crate::common::vectors::{Blocks, json_lines, read_car, ref_frames};

pub(crate) type Map = BTreeMap<String, Ipld>;

/// Later than every generated commit.
pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// A `#commit` taken apart by a general library.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) body: Map,
    pub(crate) root: Link,
    pub(crate) blocks: Vec<(Link, Vec<u8>)>,
}

impl Event {
    pub(crate) fn parse(frame: &[u8]) -> Self {
        let mut rest = frame;
        let _header: Ipld = serde_ipld_dagcbor::de::from_reader_once(&mut rest).unwrap();
        let body: Map = serde_ipld_dagcbor::from_slice(rest).unwrap();
        let Ipld::Bytes(car) = &body["blocks"] else { panic!("no blocks") };
        let (root, blocks) = read_car(car);
        Self { root, blocks: blocks.into_iter().collect(), body }
    }

    pub(crate) fn set(mut self, field: &str, value: impl Into<Option<Ipld>>) -> Self {
        match value.into() {
            Some(value) => self.body.insert(field.into(), value),
            None => self.body.remove(field),
        };
        self
    }

    pub(crate) fn ops(&mut self) -> &mut Vec<Ipld> {
        let Some(Ipld::List(ops)) = self.body.get_mut("ops") else { panic!("no ops") };
        ops
    }

    pub(crate) fn op(&mut self, at: usize) -> &mut Map {
        let Ipld::Map(op) = &mut self.ops()[at] else { panic!("an op is no map") };
        op
    }

    pub(crate) fn first_op(&self) -> &Map {
        let Ipld::List(ops) = &self.body["ops"] else { panic!("no ops") };
        let Some(Ipld::Map(op)) = ops.first() else { panic!("an op is no map") };
        op
    }

    pub(crate) fn with_op(mut self, field: &str, value: Option<Ipld>) -> Self {
        match value {
            Some(value) => self.op(0).insert(field.into(), value),
            None => self.op(0).remove(field),
        };
        self
    }

    pub(crate) fn without_block(mut self, gone: Link) -> Self {
        self.blocks.retain(|(link, _)| *link != gone);
        self
    }

    pub(crate) fn link(&self, field: &str) -> Link {
        as_link(&self.body[field])
    }

    pub(crate) fn car(&self) -> Vec<u8> {
        let mut car = Vec::new();
        car_header(&mut car, &self.root);
        self.blocks.iter().for_each(|(link, block)| car_block(&mut car, link, block));
        car
    }

    /// The frame with its blocks.
    pub(crate) fn frame(&self) -> Bytes {
        self.clone().set("blocks", Ipld::Bytes(self.car())).bare_frame()
    }

    /// The frame with what the body has as blocks.
    pub(crate) fn bare_frame(&self) -> Bytes {
        [b"\xa2\x61t\x67#commit\x62op\x01".to_vec(), serde_ipld_dagcbor::to_vec(&self.body).unwrap()].concat().into()
    }
}

pub(crate) fn as_link(value: &Ipld) -> Link {
    let Ipld::Link(cid) = value else { panic!("{value:?} is no link") };
    Link::from_cid(cid).unwrap()
}

pub(crate) fn text(value: &str) -> Ipld {
    Ipld::String(value.into())
}

pub(crate) fn cid(link: Link) -> Ipld {
    Ipld::Link(link.to_cid())
}

/// The generated commits.
pub(crate) static EVENTS: LazyLock<Vec<Event>> = LazyLock::new(|| {
    ref_frames().iter().filter(|frame| frame.starts_with(b"\xa2\x61t\x67#commit")).map(|frame| Event::parse(frame)).collect()
});

pub(crate) static KEY: LazyLock<PublicKey> = LazyLock::new(|| {
    let lines: Vec<Value> = json_lines("generated/ref_commits.jsonl.gz", 120);
    PublicKey::from_did_key(lines[0]["key"].as_str().unwrap()).unwrap()
});

/// What each generated commit changed, as a general library reads it.
pub(crate) static TRUTH: LazyLock<Vec<OpSet>> = LazyLock::new(|| EVENTS.iter().map(truth).collect());

pub(crate) fn truth(event: &Event) -> OpSet {
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

pub(crate) fn prepare(frame: &Bytes) -> Result<Prepared, CommitFault> {
    match read(frame) {
        Ok(Frame::Commit(event)) => Prepared::commit(frame, &event, NOW),
        other => panic!("no commit: {other:?}"),
    }
}

pub(crate) fn verify(frame: &Bytes) -> Result<OpSet, CommitFault> {
    let prepared = prepare(frame)?;
    assert_eq!(prepared.signed_by(&KEY), Ok(()));
    prepared.prove()
}

/// A generated commit whose first op is of a kind, of a path that no other of its ops has.
pub(crate) fn sample(action: &str) -> Event {
    EVENTS.iter().rev().find(|event| event.first_op()["action"] == text(action)).unwrap().clone()
}

/// What is said of a frame: the fault's name and verdict, and whether the signature was checked before.
pub(crate) fn said(frame: &Bytes) -> (&'static str, Option<Verdict>, bool) {
    let prepared = match prepare(frame) {
        Ok(prepared) => prepared,
        Err(fault) => return (fault.as_str(), Some(fault.verdict()), false),
    };
    match prepared.prove() {
        Ok(_) => ("", None, true),
        Err(fault) => (fault.as_str(), Some(fault.verdict()), true),
    }
}

pub(crate) const DROP: Option<Verdict> = Some(Verdict::Drop);
pub(crate) const GAP: Option<Verdict> = Some(Verdict::Gap);

/// The commit's block with another content.
pub(crate) fn rewritten(event: &Event, change: impl FnOnce(&mut Map)) -> Vec<u8> {
    let (_, block) = event.blocks.iter().find(|(link, _)| *link == event.root).unwrap();
    let mut commit: Map = serde_ipld_dagcbor::from_slice(block).unwrap();
    change(&mut commit);
    serde_ipld_dagcbor::to_vec(&commit).unwrap()
}
