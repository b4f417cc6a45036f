use super::{CidBytes, Source, Verdict, cid, raw_cid};
use crate::job::FailureKind;
use crate::repo::emit::{self, Major};
use crate::repo::{Link, SigningKey};

/// What can be wrong with the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommitDamage {
    /// It is of another account, well signed by this one's key.
    OtherDid,
    /// It is signed with another key.
    OtherKey,
    /// One bit of the signature is wrong.
    WrongSignature,
    /// The signature is the other of the two that fit: its `s` is high.
    HighS,
    /// The signature is empty.
    EmptySignature,
    /// There is no signature.
    NoSignature,
    /// The signature is longer than 64 bytes.
    LongSignature,
    /// It is of format version 2.
    Version2,
    /// It has no `prev`, instead of a null.
    NoPrev,
    /// It has no `rev`.
    NoRev,
    /// Its `rev` is no TID.
    BadRev,
    /// Its `data` is a CID with the codec of blobs.
    DataOfOtherCid,
    /// It has a field that this version of the format does not know, which the signature covers. That is allowed.
    UnknownField,
    /// It has a `prev`. That is allowed.
    Prev,
}

impl CommitDamage {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::OtherDid,
        Self::OtherKey,
        Self::WrongSignature,
        Self::HighS,
        Self::EmptySignature,
        Self::NoSignature,
        Self::LongSignature,
        Self::Version2,
        Self::NoPrev,
        Self::NoRev,
        Self::BadRev,
        Self::DataOfOtherCid,
        Self::UnknownField,
        Self::Prev,
    ];

    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::OtherKey | Self::WrongSignature | Self::HighS => Verdict::Fails(FailureKind::BadSignature),
            Self::UnknownField | Self::Prev => Verdict::Reads,
            Self::OtherDid
            | Self::EmptySignature
            | Self::NoSignature
            | Self::LongSignature
            | Self::Version2
            | Self::NoPrev
            | Self::NoRev
            | Self::BadRev
            | Self::DataOfOtherCid => Verdict::Fails(FailureKind::InvalidCommit),
        }
    }

    pub(super) fn commit(self, source: &Source, data: Link) -> (CidBytes, Vec<u8>) {
        let mut fields = Fields::new(source, data);
        match self {
            Self::OtherDid => fields.set("did", |out| emit::text(out, "did:web:other.example.com")),
            Self::Version2 => fields.set("version", |out| out.push(2)),
            Self::NoPrev => fields.remove("prev"),
            Self::NoRev => fields.remove("rev"),
            Self::BadRev => fields.set("rev", |out| emit::text(out, "yesterday")),
            Self::DataOfOtherCid => fields.set("data", |out| emit::cid(out, &raw_cid(b"no tree"))),
            Self::UnknownField => fields.set("novelty", |out| emit::text(out, "from the future")),
            Self::Prev => fields.set("prev", |out| emit::link(out, &data)),
            Self::OtherKey | Self::WrongSignature | Self::HighS | Self::EmptySignature | Self::NoSignature | Self::LongSignature => {}
        }
        let unsigned = fields.encode();
        let curve = source.key.public().curve();
        let mut signature = source.key.sign(&unsigned).to_vec();
        match self {
            Self::OtherKey => signature = SigningKey::from_seed(curve, b"another key, as anyone could see").sign(&unsigned).to_vec(),
            Self::WrongSignature => signature[7] ^= 1,
            Self::HighS => negate(&mut signature[32..], curve.half_order()),
            Self::EmptySignature => signature.clear(),
            Self::LongSignature => signature.extend_from_slice(&[0; 6]),
            _ => {}
        }
        if self != Self::NoSignature {
            fields.set("sig", |out| emit::bytes(out, &signature));
        }
        let block = fields.encode();
        (cid(Link::of(&block)), block)
    }
}

pub(super) fn sound(source: &Source, data: Link) -> (CidBytes, Vec<u8>) {
    let (link, block) = crate::repo::export::signed_commit(&source.did, source.rev, data, &source.key);
    (cid(link), block)
}

/// The fields of a commit and their encoded values.
struct Fields(Vec<(&'static str, Vec<u8>)>);

impl Fields {
    fn new(source: &Source, data: Link) -> Self {
        let mut fields = Self(Vec::new());
        fields.set("did", |out| emit::text(out, source.did.as_str()));
        fields.set("rev", |out| emit::text(out, source.rev.as_str()));
        fields.set("data", |out| emit::link(out, &data));
        fields.set("prev", |out| out.push(emit::NULL));
        fields.set("version", |out| emit::head(out, Major::Unsigned, 3));
        fields
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| *field != name);
    }

    fn set(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        self.remove(name);
        let mut value = Vec::new();
        write(&mut value);
        self.0.push((name, value));
        self.0.sort_by_key(|(field, _)| (field.len(), *field));
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        emit::head(&mut out, Major::Map, self.0.len() as u64);
        for (name, value) in &self.0 {
            emit::text(&mut out, name);
            out.extend_from_slice(value);
        }
        out
    }
}

/// Replaces the number `s` by `n - s`, where `n`, the order of the group, is twice `half` plus one.
fn negate(s: &mut [u8], half: &[u8; 32]) {
    let mut carry = 1;
    for (digit, half) in s.iter_mut().zip(half).rev() {
        let difference = 2 * i32::from(*half) + carry - i32::from(*digit);
        *digit = difference.rem_euclid(256) as u8;
        carry = difference.div_euclid(256);
    }
}
