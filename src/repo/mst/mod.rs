//! The tree of a repo: a Merkle search tree whose shape follows from its keys alone (atproto.com/specs/repository, "MST Structure").
mod build;
mod edit;
mod encode;
mod load;
mod node;
mod tree;
mod visit;

pub use load::LoadError;
pub(crate) use load::{MAX_HEIGHT, MAX_KEY};
pub use node::NodeFault;
pub(crate) use node::{Entry, Node};
pub use tree::{Sealed, StubReached, Tree};
pub use visit::{Entries, Visit};

use sha2::{Digest, Sha256};

/// The height at which a key lives: half the number of leading zero bits of its SHA-256, rounded down; 0 is the bottom, 128 the highest there can be.
pub fn key_height(key: &[u8]) -> u32 {
    height_of_hash(&Sha256::digest(key).into())
}

/// The height of the key that has this SHA-256.
pub(crate) fn height_of_hash(hash: &[u8; 32]) -> u32 {
    let mut bits = 0;
    for byte in hash {
        bits += byte.leading_zeros();
        if *byte != 0 {
            break;
        }
    }
    bits / 2
}

/// How many bytes two keys have in common at their start.
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let mut shared = 0;
    // Eight bytes at a time: keys share most of their bytes.
    for (left, right) in left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0) {
        match u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right) {
            0 => shared += 8,
            differ => return shared + differ.trailing_zeros() as usize / 8,
        }
    }
    let rest = left.iter().zip(right).skip(shared);
    shared + rest.take_while(|(left, right)| left == right).count()
}
