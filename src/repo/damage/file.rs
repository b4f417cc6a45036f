use super::{CidBytes, Verdict, cid, raw_cid};
use crate::job::FailureKind;
use crate::repo::Link;
use crate::repo::emit::{self, Major};
use crate::repo::export::{car_block, varint};

/// What can be wrong, or just odd, with the file that holds the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileDamage {
    /// No bytes.
    Empty,
    /// A page for people.
    Html,
    /// A header and no block.
    HeaderOnly,
    /// A header without root.
    NoRoots,
    /// A header of version 2.
    Version2,
    /// A header that is cut.
    CutInHeader,
    /// The last block is cut.
    CutInBlock,
    /// The last block is not there.
    CutAtBlock,
    /// Some bytes follow the last block that are none.
    TrailingBytes,
    /// A block claims to have 2^40 bytes.
    HugeLength,
    /// The length of a block goes on for ever.
    EndlessLength,
    /// A block has no CID.
    NoCid,
    /// One bit of a record is wrong.
    FlippedBit,
    /// A node links back to the root, by a CID that is not the root's.
    Cycle,
    /// The commit is not there.
    MissingCommit,
    /// A node is not there.
    MissingNode,
    /// A record is not there.
    MissingRecord,
    /// The root is a node.
    RootIsANode,
    /// The root is a record.
    RootIsARecord,
    /// The commit comes last, the records first. That is allowed.
    Backwards,
    /// Every block is there twice. That is allowed.
    DuplicateBlocks,
    /// There are blocks that the tree does not name. That is allowed.
    UnrelatedBlocks,
    /// There are blocks with other kinds of CIDs. That is allowed.
    OtherCids,
    /// There is a second root. That is allowed.
    TwoRoots,
}

impl FileDamage {
    /// Every one.
    pub const ALL: [Self; 24] = [
        Self::Empty,
        Self::Html,
        Self::HeaderOnly,
        Self::NoRoots,
        Self::Version2,
        Self::CutInHeader,
        Self::CutInBlock,
        Self::CutAtBlock,
        Self::TrailingBytes,
        Self::HugeLength,
        Self::EndlessLength,
        Self::NoCid,
        Self::FlippedBit,
        Self::Cycle,
        Self::MissingCommit,
        Self::MissingNode,
        Self::MissingRecord,
        Self::RootIsANode,
        Self::RootIsARecord,
        Self::Backwards,
        Self::DuplicateBlocks,
        Self::UnrelatedBlocks,
        Self::OtherCids,
        Self::TwoRoots,
    ];

    pub(super) fn verdict(self) -> Verdict {
        Verdict::Fails(match self {
            Self::Empty
            | Self::Html
            | Self::NoRoots
            | Self::Version2
            | Self::CutInHeader
            | Self::CutInBlock
            | Self::TrailingBytes
            | Self::HugeLength
            | Self::EndlessLength
            | Self::NoCid
            | Self::FlippedBit
            | Self::Cycle => FailureKind::MalformedCar,
            Self::HeaderOnly | Self::CutAtBlock | Self::MissingCommit | Self::MissingNode | Self::MissingRecord => {
                FailureKind::MissingBlock
            }
            Self::RootIsANode | Self::RootIsARecord => FailureKind::InvalidCommit,
            Self::Backwards | Self::DuplicateBlocks | Self::UnrelatedBlocks | Self::OtherCids | Self::TwoRoots => return Verdict::Reads,
        })
    }

    pub(super) fn write(self, mut export: Export) -> Vec<u8> {
        match self {
            Self::Empty => return Vec::new(),
            Self::Html => return b"<!DOCTYPE html>\n<html><body><h1>Bad gateway</h1></body></html>\n".to_vec(),
            Self::HeaderOnly => export.blocks.clear(),
            Self::NoRoots => export.roots.clear(),
            Self::Version2 => export.version = 2,
            Self::CutAtBlock => drop(export.blocks.pop()),
            Self::MissingRecord => drop(export.blocks.remove(export.blocks.len() - 2)),
            Self::FlippedBit => flip(&mut export),
            Self::Cycle => cycle(&mut export),
            Self::MissingCommit => drop(export.blocks.remove(0)),
            // The commit is first, the root second, and the sample has more nodes than one.
            Self::MissingNode => drop(export.blocks.remove(2)),
            Self::RootIsANode => export.roots[0].clone_from(&export.blocks[1].0),
            Self::RootIsARecord => export.roots = export.blocks.last().map(|(cid, _)| cid.clone()).into_iter().collect(),
            Self::Backwards => export.blocks.reverse(),
            Self::DuplicateBlocks => export.blocks.extend(export.blocks.clone()),
            Self::UnrelatedBlocks => {
                let block = b"\xa1\x61a\x01".to_vec();
                export.blocks.insert(1, (cid(Link::of(&block)), block));
            }
            Self::OtherCids => other_cids(&mut export),
            Self::TwoRoots => export.roots.push(cid(Link::of(b"another root"))),
            Self::CutInHeader | Self::CutInBlock | Self::TrailingBytes | Self::HugeLength | Self::EndlessLength | Self::NoCid => {}
        }
        self.spoil(export.car())
    }

    /// The damages that are not about whole blocks.
    fn spoil(self, mut car: Vec<u8>) -> Vec<u8> {
        match self {
            Self::CutInHeader => car.truncate(30),
            Self::CutInBlock => drop(car.pop()),
            Self::TrailingBytes => car.extend_from_slice(b"\r\n\r\n"),
            Self::HugeLength => car.extend_from_slice(b"\x80\x80\x80\x80\x80\x20\x01\x71\x12\x20"),
            Self::EndlessLength => car.extend_from_slice(&[0xff; 64]),
            Self::NoCid => car.extend_from_slice(&[&[40][..], &[0xee; 40]].concat()),
            _ => {}
        }
        car
    }
}

fn flip(export: &mut Export) {
    if let Some(byte) = export.blocks.last_mut().and_then(|(_, block)| block.last_mut()) {
        *byte ^= 1;
    }
}

/// A real cycle would take two blocks that name each other's hash. So this one can only pretend: the CID is not that of the block.
fn cycle(export: &mut Export) {
    let root = export.blocks[1].1.clone();
    export.blocks[2].1 = root;
}

fn other_cids(export: &mut Export) {
    let block = b"a blob".to_vec();
    export.blocks.insert(1, (raw_cid(&block), block.clone()));
    // Version 0: a bare multihash, which always stands for another codec.
    export.blocks.insert(1, (cid(Link::of(&block))[2..].to_vec(), block.clone()));
    // A hash of 64 bytes that nobody here can check.
    export.blocks.push(([&[0x01, 0x71, 0x13, 0x40][..], &[7; 64]].concat(), block));
}

/// A CAR file to be.
pub(super) struct Export {
    roots: Vec<CidBytes>,
    version: u64,
    /// The commit, the nodes each before its children, the records.
    blocks: Vec<(CidBytes, Vec<u8>)>,
}

impl Export {
    pub(super) fn new(commit: (CidBytes, Vec<u8>), mut blocks: Vec<(CidBytes, Vec<u8>)>) -> Self {
        let roots = vec![commit.0.clone()];
        blocks.insert(0, commit);
        Self { roots, version: 1, blocks }
    }

    pub(super) fn car(&self) -> Vec<u8> {
        let mut header = Vec::new();
        emit::head(&mut header, Major::Map, 2);
        emit::text(&mut header, "roots");
        emit::head(&mut header, Major::Array, self.roots.len() as u64);
        self.roots.iter().for_each(|root| emit::cid(&mut header, root));
        emit::text(&mut header, "version");
        emit::head(&mut header, Major::Unsigned, self.version);
        let mut car = Vec::new();
        varint(&mut car, header.len());
        car.extend_from_slice(&header);
        for (cid, block) in &self.blocks {
            varint(&mut car, cid.len() + block.len());
            car.extend_from_slice(cid);
            car.extend_from_slice(block);
        }
        car
    }
}

/// Blocks that no repo names, each with its CID, to be put behind a CAR: pieces of a little more than 64 KiB, `bytes` or more in all.
pub fn unrelated(bytes: u64) -> impl Iterator<Item = Vec<u8>> {
    const BLOCK: usize = 65_536;
    (0..bytes.div_ceil(BLOCK as u64)).map(|number| {
        let mut block = vec![0; BLOCK];
        block[..8].copy_from_slice(&number.to_be_bytes());
        let mut section = Vec::with_capacity(BLOCK + 40);
        car_block(&mut section, &Link::of(&block), &block);
        section
    })
}
