use super::nodes::RawTree;
use super::{cid, raw_cid};
use crate::repo::{Link, record};

/// What can be wrong with one record, which is then dropped alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordDamage {
    /// Its bytes are not DAG-CBOR.
    NotCbor,
    /// Its keys are not in canonical order.
    NotCanonical,
    /// It has a float.
    Float,
    /// It is a list.
    NotAMap,
    /// It is one byte too large.
    TooLarge,
    /// Its key is no path.
    KeyNotAPath,
    /// Its key is not text.
    KeyNotText,
    /// The tree links to it by a CID with the codec of blobs.
    OtherCid,
}

impl RecordDamage {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::NotCbor,
        Self::NotCanonical,
        Self::Float,
        Self::NotAMap,
        Self::TooLarge,
        Self::KeyNotAPath,
        Self::KeyNotText,
        Self::OtherCid,
    ];

    /// Adds one such record to the tree.
    pub(super) fn apply(self, tree: &mut RawTree) {
        let block = match self {
            Self::NotCbor => b"\xff\xff\xff".to_vec(),
            Self::NotCanonical => b"\xa2\x61b\x01\x61a\x02".to_vec(),
            Self::Float => b"\xa1\x61a\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00".to_vec(),
            Self::NotAMap => b"\x83\x01\x02\x03".to_vec(),
            Self::TooLarge => {
                let text = record::MAX_BYTES + 1 - 8;
                [&b"\xa1\x61a\x7a"[..], &(text as u32).to_be_bytes(), &vec![b'x'; text]].concat()
            }
            Self::KeyNotAPath | Self::KeyNotText | Self::OtherCid => b"\xa1\x61a\x01".to_vec(),
        };
        let key: &[u8] = match self {
            Self::KeyNotAPath => b"com.example.damaged",
            Self::KeyNotText => b"com.example.damaged/\xff\xfe",
            _ => b"com.example.damaged/record",
        };
        let cid = if self == Self::OtherCid { raw_cid(&block) } else { cid(Link::of(&block)) };
        tree.insert(key, cid.clone());
        tree.blocks.push((cid, block));
    }
}
