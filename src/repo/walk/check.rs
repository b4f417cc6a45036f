use sha2::{Digest, Sha256};

use super::Leaves;
use crate::repo::{CheckoutError, Link, TreeFault};

/// The layer that a key belongs to: half the zero bits that its SHA-256 begins with.
pub(super) fn layer(key: &[u8]) -> u8 {
    let hash = Sha256::digest(key);
    let mut zeros = 0;
    for byte in hash {
        zeros += byte.leading_zeros() as u8;
        if byte != 0 {
            break;
        }
    }
    zeros / 2
}

/// Checks for all keys of a batch that they belong to the layer of their node.
pub(super) fn layers(leaves: &Leaves, root: &Link) -> Result<(), CheckoutError> {
    for (key, node) in leaves.keys() {
        let layer = layer(key);
        if layer != node {
            return Err(CheckoutError::tree(*root, key, TreeFault::Layer { key: layer, node }));
        }
    }
    Ok(())
}
