//! The commits that the firehose of the reference PDS tells, as op sets.

use atproto_backfill::job::{Op, OpAction, OpSet};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The op set of a commit event, as `network.mjs` prints it; `None` for other events. `proven`: with the root that it was made on.
pub(crate) fn op_set(event: &Value, proven: bool) -> Option<OpSet> {
    if event["event"] != "commit" {
        return None;
    }
    let parse = |name: &str| event[name].as_str().map(|text| text.parse().expect("a rev"));
    let link = |name: &str| event[name].as_str().map(|text| text.parse().expect("a CID"));
    Some(OpSet {
        did: event["did"].as_str().expect("a DID").parse().expect("a DID"),
        rev: parse("rev").expect("a rev"),
        since: parse("since"),
        data: link("data"),
        prev_data: if proven { link("prevData") } else { None },
        ops: event["ops"].as_array().expect("ops").iter().map(op).collect(),
    })
}

fn op(op: &Value) -> Op {
    let text = |name: &str| op[name].as_str().unwrap_or_else(|| panic!("no {name} in {op}"));
    let cid = || text("cid").parse().expect("a CID");
    let record = || STANDARD.decode(text("bytes")).expect("base64").into();
    let action = match text("action") {
        "create" => OpAction::Create { cid: cid(), record: record() },
        "update" => OpAction::Update { cid: cid(), record: record() },
        "delete" => OpAction::Delete,
        other => panic!("unknown action {other}"),
    };
    Op { path: text("path").parse().expect("a record path"), action }
}
