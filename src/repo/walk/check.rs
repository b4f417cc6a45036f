use super::Leaves;
use crate::repo::mst::height_of_hash;
use crate::repo::{CheckoutError, Link, TreeFault, hash};

/// Checks for all keys of a batch that they belong to the layer of their node.
///
/// # Errors
/// On the first key that does not.
pub(super) fn layers(leaves: &Leaves, root: &Link) -> Result<(), CheckoutError> {
    let mut broken: Option<(usize, u8)> = None;
    hash::digests(leaves.keys(), |position, digest| {
        let belongs = height_of_hash(digest) as u8;
        if belongs != leaves.layer(position) && broken.is_none_or(|(first, _)| position < first) {
            broken = Some((position, belongs));
        }
    });
    match broken {
        Some((position, key)) => {
            let fault = TreeFault::Layer { key, node: leaves.layer(position) };
            Err(CheckoutError::tree(*root, leaves.keys().nth(position).unwrap_or_default(), fault))
        }
        None => Ok(()),
    }
}
