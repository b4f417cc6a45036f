//! How the buffer keeps an op set. Layout: version, flags, rev, [since], [data], [prev_data], count of ops, ops;
//! an op is its action, path and, unless a delete, CID and record. Lengths are LEB128, revs their 13 characters, CIDs their digests.

use bytes::{Buf, Bytes};

use super::{Op, OpAction, OpSet};
use crate::repo::Link;
use crate::syntax::{Did, RecordPath, RecordPathRef, Rev, SyntaxError};

const VERSION: u8 = 1;
const HAS_SINCE: u8 = 1;
const HAS_DATA: u8 = 2;
const HAS_PREV_DATA: u8 = 4;
const KNOWN_FLAGS: u8 = HAS_SINCE | HAS_DATA | HAS_PREV_DATA;

/// Bytes that are not an op set as [`OpSet::encode`] writes it: the store is corrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpSetError {
    /// The bytes end too early.
    #[error("op set cut within {0}")]
    Cut(&'static str),
    /// Bytes follow the last op.
    #[error("{0} bytes behind an op set")]
    Trailing(usize),
    /// A version, flag or action that this program does not write.
    #[error("op set with {what} {value}")]
    Unknown {
        /// Which of them.
        what: &'static str,
        /// What was found.
        value: u8,
    },
    /// A length that is not the shortest form of a number below 2^32.
    #[error("op set with a bad length")]
    Length,
    /// A rev or a path that breaks its syntax.
    #[error("op set with a bad identifier")]
    Syntax(#[from] SyntaxError),
}

impl OpSet {
    /// The op set in the form that the buffer keeps, without the DID.
    pub fn encode(&self) -> Vec<u8> {
        let records: usize = self.ops.iter().map(|op| op.action.record().map_or(0, Bytes::len) + op.path.as_str().len() + 40).sum();
        let mut out = Vec::with_capacity(128 + records);
        let flag = |present: bool, flag| if present { flag } else { 0 };
        let flags =
            flag(self.since.is_some(), HAS_SINCE) | flag(self.data.is_some(), HAS_DATA) | flag(self.prev_data.is_some(), HAS_PREV_DATA);
        out.extend([VERSION, flags]);
        out.extend_from_slice(self.rev.as_str().as_bytes());
        out.extend_from_slice(self.since.as_ref().map_or(&[], |since| since.as_str().as_bytes()));
        for link in [self.data, self.prev_data].iter().flatten() {
            out.extend_from_slice(link.digest());
        }
        put_length(&mut out, self.ops.len());
        for op in &self.ops {
            put_op(&mut out, op);
        }
        out
    }

    /// Reads what [`OpSet::encode`] wrote. Records are slices of `bytes`, not copies.
    ///
    /// # Errors
    /// For anything that `encode` does not write.
    pub fn decode(did: Did, mut bytes: Bytes) -> Result<Self, OpSetError> {
        let (rev, since, data, prev_data) = take_head(&mut bytes)?;
        let ops = take_ops(&mut bytes)?;
        Ok(OpSet { did, rev, since, data, prev_data, ops })
    }

    /// The paths of an encoded op set, in the order of its ops.
    ///
    /// # Errors
    /// As [`OpSet::decode`].
    pub fn decode_paths(mut bytes: Bytes) -> Result<Vec<RecordPath>, OpSetError> {
        take_head(&mut bytes)?;
        Ok(take_ops(&mut bytes)?.into_iter().map(|op| op.path).collect())
    }
}

type Head = (Rev, Option<Rev>, Option<Link>, Option<Link>);

fn take_head(bytes: &mut Bytes) -> Result<Head, OpSetError> {
    let [version, flags] = take(bytes, "the head")?;
    if version != VERSION {
        return Err(OpSetError::Unknown { what: "version", value: version });
    }
    if flags & !KNOWN_FLAGS != 0 {
        return Err(OpSetError::Unknown { what: "flags", value: flags });
    }
    let has = |flag| flags & flag != 0;
    let rev = take_rev(bytes)?;
    let since = has(HAS_SINCE).then(|| take_rev(bytes)).transpose()?;
    let data = has(HAS_DATA).then(|| take_link(bytes)).transpose()?;
    let prev_data = has(HAS_PREV_DATA).then(|| take_link(bytes)).transpose()?;
    Ok((rev, since, data, prev_data))
}

fn take_ops(bytes: &mut Bytes) -> Result<Vec<Op>, OpSetError> {
    let count = take_length(bytes)?;
    // An op is at least three bytes, so a wrong count cannot reserve more than the bytes bear out.
    let mut ops = Vec::with_capacity(count.min(bytes.len() / 3));
    for _ in 0..count {
        ops.push(take_op(bytes)?);
    }
    if bytes.is_empty() { Ok(ops) } else { Err(OpSetError::Trailing(bytes.len())) }
}

impl OpAction {
    fn record(&self) -> Option<&Bytes> {
        match self {
            OpAction::Create { record, .. } | OpAction::Update { record, .. } => Some(record),
            OpAction::Delete => None,
        }
    }
}

fn put_op(out: &mut Vec<u8>, op: &Op) {
    let (action, body) = match &op.action {
        OpAction::Create { cid, record } => (b'c', Some((cid, record))),
        OpAction::Update { cid, record } => (b'u', Some((cid, record))),
        OpAction::Delete => (b'd', None),
    };
    out.push(action);
    put_length(out, op.path.as_str().len());
    out.extend_from_slice(op.path.as_str().as_bytes());
    if let Some((cid, record)) = body {
        out.extend_from_slice(cid.digest());
        put_length(out, record.len());
        out.extend_from_slice(record);
    }
}

fn take_op(bytes: &mut Bytes) -> Result<Op, OpSetError> {
    let [action] = take(bytes, "an action")?;
    let path = take_slice(bytes, "a path")?;
    let path = RecordPathRef::new(&path)?.to_owned();
    let action = match action {
        b'c' => OpAction::Create { cid: take_link(bytes)?, record: take_slice(bytes, "a record")? },
        b'u' => OpAction::Update { cid: take_link(bytes)?, record: take_slice(bytes, "a record")? },
        b'd' => OpAction::Delete,
        value => return Err(OpSetError::Unknown { what: "action", value }),
    };
    Ok(Op { path, action })
}

fn put_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

fn take_length(bytes: &mut Bytes) -> Result<usize, OpSetError> {
    let mut length = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let [byte] = take(bytes, "a length")?;
        length |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            let shortest = byte != 0 || shift == 0;
            return u32::try_from(length).ok().filter(|_| shortest).map(|length| length as usize).ok_or(OpSetError::Length);
        }
    }
    Err(OpSetError::Length)
}

fn take<const N: usize>(bytes: &mut Bytes, what: &'static str) -> Result<[u8; N], OpSetError> {
    let mut taken = [0; N];
    bytes.try_copy_to_slice(&mut taken).map_err(|_| OpSetError::Cut(what))?;
    Ok(taken)
}

fn take_slice(bytes: &mut Bytes, what: &'static str) -> Result<Bytes, OpSetError> {
    let length = take_length(bytes)?;
    if length > bytes.len() {
        return Err(OpSetError::Cut(what));
    }
    Ok(bytes.split_to(length))
}

fn take_rev(bytes: &mut Bytes) -> Result<Rev, OpSetError> {
    let text: [u8; 13] = take(bytes, "a rev")?;
    Ok(Rev::new(&String::from_utf8_lossy(&text))?)
}

fn take_link(bytes: &mut Bytes) -> Result<Link, OpSetError> {
    take(bytes, "a link").map(Link::from_digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_op_set() -> impl Strategy<Value = OpSet> {
        let link = || any::<[u8; 32]>().prop_map(Link::from_digest);
        let rev = || (0u64..1 << 53, 0u16..1024).prop_map(|(micros, clock)| Rev::from_parts(micros, clock));
        let path = "[a-z]{1,9}\\.[a-z]{1,9}\\.[a-zA-Z]{1,20}/[a-zA-Z0-9_~:-]{1,200}".prop_map(|text| RecordPath::new(&text).unwrap());
        let record = || proptest::collection::vec(any::<u8>(), 0..400).prop_map(Bytes::from);
        let action = prop_oneof![
            (link(), record()).prop_map(|(cid, record)| OpAction::Create { cid, record }),
            (link(), record()).prop_map(|(cid, record)| OpAction::Update { cid, record }),
            Just(OpAction::Delete),
        ];
        let ops = proptest::collection::vec((path, action).prop_map(|(path, action)| Op { path, action }), 0..8);
        (rev(), proptest::option::of(rev()), proptest::option::of(link()), proptest::option::of(link()), ops)
            .prop_map(|(rev, since, data, prev_data, ops)| OpSet { did: did(), rev, since, data, prev_data, ops })
    }

    fn did() -> Did {
        Did::new("did:plc:ewvi7nxzyoun6zhxrhs64oiz").unwrap()
    }

    proptest! {
        #[test]
        fn an_op_set_reads_back_as_it_was_written(op_set in any_op_set()) {
            prop_assert_eq!(OpSet::decode(did(), op_set.encode().into()), Ok(op_set));
        }

        #[test]
        fn an_encoded_op_set_takes_little_more_memory_than_it_has_bytes(mut op_set in any_op_set(), size in 2_000usize..50_000) {
            let path = RecordPath::new("a.b.c/large").unwrap();
            op_set.ops.push(Op { path, action: OpAction::Update { cid: Link::of(b"large"), record: vec![7; size].into() } });
            let bytes = op_set.encode();
            prop_assert!(bytes.capacity() - bytes.len() <= 128 + 40 * op_set.ops.len(), "{} of {}", bytes.len(), bytes.capacity());
        }

        #[test]
        fn a_cut_or_lengthened_op_set_is_refused(op_set in any_op_set(), cut: prop::sample::Index) {
            let mut bytes = op_set.encode();
            let kept = cut.index(bytes.len());
            prop_assert!(OpSet::decode(did(), Bytes::copy_from_slice(&bytes[..kept])).is_err());
            bytes.push(0);
            prop_assert_eq!(OpSet::decode(did(), bytes.into()), Err(OpSetError::Trailing(1)));
        }

        #[test]
        fn what_can_be_read_is_what_would_be_written(bytes in proptest::collection::vec(any::<u8>(), 0..200), op_set in any_op_set(), at: prop::sample::Index, with: u8) {
            let mut flipped = op_set.encode();
            let at = at.index(flipped.len());
            flipped[at] = with;
            for bytes in [bytes, flipped] {
                if let Ok(read) = OpSet::decode(did(), bytes.clone().into()) {
                    prop_assert_eq!(read.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn a_count_that_the_bytes_do_not_bear_out_reserves_nothing() {
        let op_set = OpSet { did: did(), rev: Rev::ZERO, since: None, data: None, prev_data: None, ops: Vec::new() };
        let mut bytes = op_set.encode();
        bytes.pop();
        bytes.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(OpSet::decode(did(), bytes.into()), Err(OpSetError::Cut("an action")));
    }
}
