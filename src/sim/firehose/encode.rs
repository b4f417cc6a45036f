//! Frames as they go over the wire: two DAG-CBOR values, header then body (atproto.com/specs/event-stream, "Framing").
use bytes::Bytes;

use super::event::{Body, CommitEvent, Event, EventOp};
use crate::repo::emit::{self, FALSE, Major, NULL, TRUE};

impl Event {
    /// The frame of this event at a number.
    pub(in crate::sim) fn frame(&self, seq: u64) -> Bytes {
        let mut out = Vec::with_capacity(512 + self.blocks().len());
        header(&mut out, self.name());
        let mut map = Map::begin(&mut out, self.without);
        match &self.body {
            Body::Commit(commit) => self.commit(&mut map, seq, commit),
            Body::Sync { rev, blocks, .. } => {
                map.text("did", self.did.as_str());
                map.text("rev", rev.as_str());
                map.unsigned("seq", seq);
                map.text("time", &self.time);
                map.field("blocks", |out| emit::bytes(out, blocks));
            }
            Body::Identity { handle } => {
                map.text("did", self.did.as_str());
                map.unsigned("seq", seq);
                map.text("time", &self.time);
                map.text("handle", handle);
            }
            Body::Account { active, status } => {
                map.text("did", self.did.as_str());
                map.unsigned("seq", seq);
                map.text("time", &self.time);
                map.field("active", |out| out.push(if *active { TRUE } else { FALSE }));
                if let Some(status) = status {
                    map.text("status", status);
                }
            }
            Body::Unknown => {
                map.text("did", self.did.as_str());
                map.unsigned("seq", seq);
                map.text("time", &self.time);
                map.text("novelty", "simulated");
            }
        }
        out.into()
    }

    fn name(&self) -> &'static str {
        match &self.body {
            Body::Commit(_) => "#commit",
            Body::Sync { .. } => "#sync",
            Body::Identity { .. } => "#identity",
            Body::Account { .. } => "#account",
            Body::Unknown => "#simulated",
        }
    }

    fn blocks(&self) -> &[u8] {
        match &self.body {
            Body::Commit(CommitEvent { blocks, .. }) | Body::Sync { blocks, .. } => blocks,
            Body::Identity { .. } | Body::Account { .. } | Body::Unknown => &[],
        }
    }

    fn commit(&self, map: &mut Map<'_>, seq: u64, commit: &CommitEvent) {
        map.field("ops", |out| {
            emit::head(out, Major::Array, commit.ops.len() as u64);
            commit.ops.iter().for_each(|one| op(out, one));
        });
        map.text("rev", commit.rev.as_str());
        map.unsigned("seq", seq);
        map.text("repo", self.did.as_str());
        map.text("time", &self.time);
        map.field("blobs", |out| emit::head(out, Major::Array, 0));
        map.field("since", |out| match &commit.since {
            Some(since) => emit::text(out, since.as_str()),
            None => out.push(NULL),
        });
        map.field("blocks", |out| emit::bytes(out, &commit.blocks));
        map.field("commit", |out| emit::link(out, &commit.commit));
        map.field("rebase", |out| out.push(FALSE));
        map.field("tooBig", |out| out.push(if commit.too_big { TRUE } else { FALSE }));
        if let Some(prev_data) = &commit.prev_data {
            map.field("prevData", |out| emit::link(out, prev_data));
        }
    }
}

fn op(out: &mut Vec<u8>, op: &EventOp) {
    let mut map = Map::begin(out, None);
    map.field("cid", |out| emit::optional_link(out, op.cid.as_ref()));
    map.text("path", &op.path);
    if let Some(prev) = &op.prev {
        map.field("prev", |out| emit::link(out, prev));
    }
    map.text("action", op.action);
}

/// An `#info` frame, which has no number.
pub(in crate::sim) fn info(name: &str, message: &str) -> Bytes {
    let mut out = Vec::new();
    header(&mut out, "#info");
    let mut map = Map::begin(&mut out, None);
    map.text("name", name);
    map.text("message", message);
    out.into()
}

/// An error frame, after which the connection is closed.
pub(in crate::sim) fn error(name: &str, message: &str) -> Bytes {
    let mut out = Vec::new();
    Map::begin(&mut out, None).field("op", |out| emit::head(out, Major::Negative, 0));
    let mut map = Map::begin(&mut out, None);
    map.text("error", name);
    map.text("message", message);
    out.into()
}

/// A frame with an `op` that is neither a message nor an error.
pub(in crate::sim) fn unknown_op() -> Bytes {
    let mut out = Vec::new();
    let mut map = Map::begin(&mut out, None);
    map.text("t", "#simulated");
    map.unsigned("op", 2);
    Map::begin(&mut out, None).text("novelty", "simulated");
    out.into()
}

fn header(out: &mut Vec<u8>, kind: &str) {
    let mut map = Map::begin(out, None);
    map.text("t", kind);
    map.unsigned("op", 1);
}

/// A map of fewer than 24 fields, given in canonical order: the shorter name first, then by bytes.
struct Map<'o> {
    out: &'o mut Vec<u8>,
    /// Where its head is, which counts the fields.
    head: usize,
    without: Option<&'static str>,
}

impl<'o> Map<'o> {
    fn begin(out: &'o mut Vec<u8>, without: Option<&'static str>) -> Self {
        let head = out.len();
        emit::head(out, Major::Map, 0);
        Self { out, head, without }
    }

    fn field(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if self.without == Some(name) {
            return;
        }
        self.out[self.head] += 1;
        emit::text(self.out, name);
        value(self.out);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.field(name, |out| emit::text(out, value));
    }

    fn unsigned(&mut self, name: &str, value: u64) {
        self.field(name, |out| emit::head(out, Major::Unsigned, value));
    }
}
