//! Exported repos that are bad, each in one way, to test what reads them.
//!
//! ```
//! use atproto_backfill::repo::damage::{Damage, Source, Verdict};
//! use atproto_backfill::repo::{Curve, SigningKey};
//! # use atproto_backfill::syntax::{Did, Rev};
//!
//! let key = SigningKey::from_seed(Curve::K256, &[1; 32]);
//! let source = Source { did: Did::new("did:web:example.com")?, rev: Rev::ZERO, key };
//! for damage in Damage::all() {
//!     let car = damage.car(&source);
//!     match damage.verdict() {
//!         Verdict::Fails(kind) => { /* the checkout of `car` must fail with this kind, and nothing be delivered that is not proven */ }
//!         Verdict::Reads => { /* exactly `damage::records()` must come out of it */ }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod commit;
mod file;
mod nodes;
mod record;
mod tree;

pub use commit::CommitDamage;
pub use file::{FileDamage, unrelated};
pub use record::RecordDamage;
pub use tree::TreeDamage;

use std::collections::BTreeMap;

use super::{Link, SigningKey};
use crate::job::FailureKind;
use crate::syntax::{Did, Rev};

/// Whose repo it is.
#[derive(Debug, Clone)]
pub struct Source {
    /// The account.
    pub did: Did,
    /// The rev of the commit.
    pub rev: Rev,
    /// The account's key.
    pub key: SigningKey,
}

/// One way in which an export is bad, or odd but good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Damage {
    /// The file around the blocks.
    File(FileDamage),
    /// The commit.
    Commit(CommitDamage),
    /// The tree.
    Tree(TreeDamage),
    /// One record, or how the tree names it.
    Record(RecordDamage),
}

/// What must become of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The checkout fails.
    Fails(FailureKind),
    /// It completes with exactly [`records`].
    Reads,
}

impl Damage {
    /// Every damage there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let file = FileDamage::ALL.into_iter().map(Self::File);
        let commit = CommitDamage::ALL.into_iter().map(Self::Commit);
        let tree = TreeDamage::ALL.into_iter().map(Self::Tree);
        let record = RecordDamage::ALL.into_iter().map(Self::Record);
        file.chain(commit).chain(tree).chain(record)
    }

    /// What must become of it.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::File(damage) => damage.verdict(),
            Self::Commit(damage) => damage.verdict(),
            Self::Tree(_) => Verdict::Fails(FailureKind::InvalidTree),
            Self::Record(_) => Verdict::Reads,
        }
    }

    /// The body that a host would answer with: the export of [`records`] with this damage.
    pub fn car(self, source: &Source) -> Vec<u8> {
        let mut tree = nodes::RawTree::new(records());
        match self {
            Self::File(_) | Self::Commit(_) => {}
            Self::Tree(damage) => damage.apply(&mut tree),
            Self::Record(damage) => damage.apply(&mut tree),
        }
        let record = Link::of(&tree.blocks[0].1);
        let (root, blocks) = tree.encode();
        let data = if self == Self::Tree(TreeDamage::RootIsARecord) { record } else { root };
        let commit = match self {
            Self::Commit(damage) => damage.commit(source, data),
            Self::File(_) | Self::Tree(_) | Self::Record(_) => commit::sound(source, data),
        };
        let export = file::Export::new(commit, blocks);
        match self {
            Self::File(damage) => damage.write(export),
            Self::Commit(_) | Self::Tree(_) | Self::Record(_) => export.car(),
        }
    }
}

/// An export without any damage.
pub fn sound(source: &Source) -> Vec<u8> {
    let (data, blocks) = nodes::RawTree::new(records()).encode();
    file::Export::new(commit::sound(source, data), blocks).car()
}

/// What the repo holds: 120 records of three collections, their paths and bytes. No two are the same.
pub fn records() -> BTreeMap<String, Vec<u8>> {
    let record = |number: usize| {
        let collection = format!("com.example.{}", ["alpha", "beta", "gamma"][number % 3]);
        let json = serde_json::json!({"$type": collection, "number": number, "text": "a record of a damaged repo"});
        let bytes = super::json::from_value(&json).expect("the sample is made of records");
        (format!("{collection}/3k{number:011}"), bytes)
    };
    (0..120).map(record).collect()
}

/// A binary CID: of a block, or of a kind that the repository format does not allow.
type CidBytes = Vec<u8>;

fn cid(link: Link) -> CidBytes {
    link.to_bytes().to_vec()
}

/// A CID with the codec of blobs instead of that of records.
fn raw_cid(block: &[u8]) -> CidBytes {
    let mut cid = cid(Link::of(block));
    cid[1] = 0x55;
    cid
}
