//! The bodies of frames, field by field.

use super::event::{AccountEvent, CommitEvent, IdentityEvent, MAX_COMMIT_BLOCKS, MAX_OPS, MAX_SYNC_BLOCKS, RawOps, SyncEvent};
use super::frame::{Frame, Malformed};
use crate::repo::cbor::{Reader, Value, precedes};
use crate::syntax::Seq;

/// Reads the pairs of a map. None when it is not strict DAG-CBOR.
pub(super) fn pairs<'a>(reader: &mut Reader<'a>, mut pair: impl FnMut(&'a str, Value<'a>)) -> Option<()> {
    let mut previous = None;
    for _ in 0..reader.map()? {
        let key = reader.text().filter(|key| !key.is_empty() && previous.is_none_or(|previous| precedes(previous, key)))?;
        previous = Some(key);
        pair(key, reader.value()?);
    }
    Some(())
}

/// What events have in common, and the first field found not to be in order.
struct Event<'a> {
    seq: Option<Seq>,
    did: Option<&'a str>,
    time: Option<&'a str>,
    broken: Option<&'static str>,
}

impl<'a> Event<'a> {
    /// Reads a body. `did` is the name of the field that holds the account; `field` gets the other fields and answers the name of one that has the
    /// wrong type. None when the body is not strict DAG-CBOR.
    fn read(
        reader: &mut Reader<'a>,
        did: &'static str,
        mut field: impl FnMut(&'a str, Value<'a>) -> Result<(), &'static str>,
    ) -> Option<Self> {
        let mut event = Self { seq: None, did: None, time: None, broken: None };
        if !reader.peek_map()? {
            reader.skip()?;
            event.broken = Some("body");
            return Some(event);
        }
        pairs(reader, |key, value| {
            let read = match key {
                "seq" => seq(value).map(|seq| event.seq = Some(seq)).ok_or("seq"),
                "time" => value.text().map(|time| event.time = Some(time)).ok_or("time"),
                _ if key == did => value.text().map(|text| event.did = Some(text)).ok_or(did),
                _ => field(key, value),
            };
            event.broken = event.broken.or(read.err());
        })?;
        Some(event)
    }

    /// The frame of an event whose other fields are what `build` makes of them, or whose missing field it answers.
    fn finish(self, did: &'static str, build: impl FnOnce(Seq, &'a str, &'a str) -> Result<Frame<'a>, &'static str>) -> Frame<'a> {
        let built = match self {
            Self { broken: Some(field), .. } => Err(field),
            Self { seq: Some(seq), did: Some(did), time: Some(time), .. } => build(seq, did, time),
            Self { seq: None, .. } => Err("seq"),
            Self { did: None, .. } => Err(did),
            Self { time: None, .. } => Err("time"),
        };
        built.unwrap_or_else(|field| Frame::Malformed(Malformed { seq: self.seq, did: self.did, field }))
    }
}

fn seq(value: Value<'_>) -> Option<Seq> {
    match value {
        Value::Integer(number) => u64::try_from(number).ok().and_then(Seq::new),
        _ => None,
    }
}

/// Reads the body of a `#commit`. None when it is not strict DAG-CBOR.
pub(super) fn commit<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let (mut rev, mut since, mut commit, mut blocks, mut ops) = (None, None, None, None, None);
    let (mut prev_data, mut too_big) = (None, false);
    let event = Event::read(reader, "repo", |key, value| {
        match key {
            "rev" => rev = Some(value.text().ok_or("rev")?),
            "since" => since = Some(value.optional_text().ok_or("since")?),
            "commit" => commit = Some(value.link().ok_or("commit")?),
            "blocks" => blocks = Some(value.bytes().filter(|blocks| blocks.len() <= MAX_COMMIT_BLOCKS).ok_or("blocks")?),
            "ops" => ops = Some(RawOps::new(value).filter(|ops| ops.len() <= MAX_OPS).ok_or("ops")?),
            "prevData" => prev_data = value.optional_link().ok_or("prevData")?,
            "tooBig" => too_big = value.boolean().ok_or("tooBig")?,
            _ => {}
        }
        Ok(())
    })?;
    Some(event.finish("repo", |seq, repo, time| {
        Ok(Frame::Commit(CommitEvent {
            seq,
            repo,
            rev: rev.ok_or("rev")?,
            since: since.ok_or("since")?,
            commit: commit.ok_or("commit")?,
            blocks: blocks.ok_or("blocks")?,
            ops: ops.ok_or("ops")?,
            prev_data,
            too_big,
            time,
        }))
    }))
}

/// Reads the body of a `#sync`. None when it is not strict DAG-CBOR.
pub(super) fn sync<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let (mut rev, mut blocks) = (None, None);
    let event = Event::read(reader, "did", |key, value| {
        match key {
            "rev" => rev = Some(value.text().ok_or("rev")?),
            "blocks" => blocks = Some(value.bytes().filter(|blocks| blocks.len() <= MAX_SYNC_BLOCKS).ok_or("blocks")?),
            _ => {}
        }
        Ok(())
    })?;
    Some(event.finish("did", |seq, did, time| {
        Ok(Frame::Sync(SyncEvent { seq, did, rev: rev.ok_or("rev")?, blocks: blocks.ok_or("blocks")?, time }))
    }))
}

/// Reads the body of a `#identity`. None when it is not strict DAG-CBOR.
pub(super) fn identity<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let mut handle = None;
    let event = Event::read(reader, "did", |key, value| {
        if key == "handle" {
            handle = value.optional_text().ok_or("handle")?;
        }
        Ok(())
    })?;
    Some(event.finish("did", |seq, did, time| Ok(Frame::Identity(IdentityEvent { seq, did, handle, time }))))
}

/// Reads the body of a `#account`. None when it is not strict DAG-CBOR.
pub(super) fn account<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let (mut active, mut status) = (None, None);
    let event = Event::read(reader, "did", |key, value| {
        match key {
            "active" => active = Some(value.boolean().ok_or("active")?),
            "status" => status = value.optional_text().ok_or("status")?,
            _ => {}
        }
        Ok(())
    })?;
    Some(event.finish("did", |seq, did, time| Ok(Frame::Account(AccountEvent { seq, did, active: active.ok_or("active")?, status, time }))))
}

/// Reads the body of a `#info`. None when it is not strict DAG-CBOR.
pub(super) fn info<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let (name, message, broken) = named(reader, "name")?;
    Some(match name {
        Some(name) => Frame::Info { name, message },
        None => Frame::Malformed(Malformed { seq: None, did: None, field: broken }),
    })
}

/// Reads the body of an error frame. None when it is not strict DAG-CBOR.
pub(super) fn error<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let (name, message, _) = named(reader, "error")?;
    // Whatever it says, the stream ends.
    Some(Frame::Error { name: name.unwrap_or_default(), message })
}

/// Reads the body of some other frame. None when it is not strict DAG-CBOR.
pub(super) fn unknown<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    Event::read(reader, "", |_, _| Ok(())).map(|event| Frame::Unknown { seq: event.seq })
}

/// A name in the field `field` and a message; the field that is missing when there is no name.
fn named<'a>(reader: &mut Reader<'a>, field: &'static str) -> Option<(Option<&'a str>, Option<&'a str>, &'static str)> {
    let (mut name, mut message) = (None, None);
    if !reader.peek_map()? {
        reader.skip()?;
        return Some((None, None, "body"));
    }
    pairs(reader, |key, value| {
        if key == field {
            name = value.text();
        } else if key == "message" {
            message = value.text();
        }
    })?;
    Some((name, message, field))
}
