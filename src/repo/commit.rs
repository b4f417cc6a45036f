use super::Link;
use super::cbor::{Reader, precedes};
use super::emit::{self, Major};
use crate::syntax::{Did, Rev};

/// A signed commit: names the account, the revision and the root of the tree.
///
/// Decoded strictly (atproto.com/specs/repository, "Commit Objects"), but fields that this program does not know are kept, because the
/// signature covers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    link: Link,
    did: Did,
    rev: Rev,
    data: Link,
    signature: [u8; 64],
    unsigned: Vec<u8>,
}

/// The rule that a commit breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CommitFault {
    /// Not a map of strict DAG-CBOR.
    #[error("it is not strict DAG-CBOR")]
    Encoding,
    /// A required field is not there.
    #[error("the field {0:?} is missing")]
    Missing(&'static str),
    /// A field has another type than the format gives it, or breaks its own syntax.
    #[error("the field {0:?} is not valid")]
    Field(&'static str),
    /// The format is not version 3.
    #[error("its version is {0}, not 3")]
    Version(u64),
}

impl Commit {
    /// The longest commit block, in bytes; a real one has about 200.
    pub const MAX_LEN: usize = 8192;

    /// Decodes a block.
    ///
    /// # Errors
    /// On the first rule that the bytes break.
    pub fn decode(block: &[u8]) -> Result<Self, CommitFault> {
        Self::decode_at(Link::of(block), block)
    }

    /// As [`Self::decode`], of a block whose link is known to be right.
    pub(crate) fn decode_at(link: Link, block: &[u8]) -> Result<Self, CommitFault> {
        let mut reader = Reader::new(block);
        let pairs = reader.map().ok_or(CommitFault::Encoding)?;
        let mut fields = Fields::default();
        let mut unsigned = Vec::with_capacity(block.len());
        emit::head(&mut unsigned, Major::Map, pairs.saturating_sub(1));
        let mut previous = "";
        for _ in 0..pairs {
            let start = reader.position();
            let key = reader.text().filter(|key| precedes(previous, key)).ok_or(CommitFault::Encoding)?;
            previous = key;
            fields.read(key, &mut reader)?;
            if key != "sig" {
                unsigned.extend_from_slice(&block[start..reader.position()]);
            }
        }
        if !reader.is_at_end() {
            return Err(CommitFault::Encoding);
        }
        fields.finish(link, unsigned)
    }

    /// The CID of the commit itself.
    pub fn link(&self) -> Link {
        self.link
    }

    /// The account.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// The revision.
    pub fn rev(&self) -> Rev {
        self.rev
    }

    /// The root of the tree.
    pub fn data(&self) -> Link {
        self.data
    }

    /// The signature: 32 bytes r, 32 bytes s.
    pub fn signature(&self) -> &[u8; 64] {
        &self.signature
    }

    /// The bytes that are signed: the block without its `sig`.
    pub fn unsigned(&self) -> &[u8] {
        &self.unsigned
    }
}

#[derive(Default)]
struct Fields {
    did: Option<Did>,
    rev: Option<Rev>,
    signature: Option<[u8; 64]>,
    data: Option<Link>,
    prev: Option<()>,
    version: Option<u64>,
}

impl Fields {
    /// Reads the value of one field. The values of fields not known are only checked for strict encoding.
    fn read(&mut self, key: &str, reader: &mut Reader<'_>) -> Result<(), CommitFault> {
        let broken = CommitFault::Field;
        match key {
            "did" => self.did = Some(reader.text().and_then(|text| Did::new(text).ok()).ok_or(broken("did"))?),
            "rev" => self.rev = Some(reader.text().and_then(|text| Rev::new(text).ok()).ok_or(broken("rev"))?),
            "sig" => self.signature = Some(reader.bytes().and_then(|sig| sig.try_into().ok()).ok_or(broken("sig"))?),
            "data" => self.data = Some(reader.link().ok_or(broken("data"))?),
            "version" => self.version = Some(reader.unsigned().ok_or(broken("version"))?),
            "prev" => {
                if !reader.null() {
                    reader.link().ok_or(broken("prev"))?;
                }
                self.prev = Some(());
            }
            _ => reader.skip().ok_or(CommitFault::Encoding)?,
        }
        Ok(())
    }

    fn finish(self, link: Link, unsigned: Vec<u8>) -> Result<Commit, CommitFault> {
        let missing = CommitFault::Missing;
        match self.version.ok_or(missing("version"))? {
            3 => {}
            other => return Err(CommitFault::Version(other)),
        }
        self.prev.ok_or(missing("prev"))?;
        Ok(Commit {
            link,
            did: self.did.ok_or(missing("did"))?,
            rev: self.rev.ok_or(missing("rev"))?,
            data: self.data.ok_or(missing("data"))?,
            signature: self.signature.ok_or(missing("sig"))?,
            unsigned,
        })
    }
}
