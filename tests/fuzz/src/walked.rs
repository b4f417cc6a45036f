//! What the readers of the library find in a CAR.

use std::sync::Arc;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::{Checkout, CheckoutError, Leaves, Link, Records};

/// All that a walk told.
#[derive(Debug, PartialEq, Eq)]
pub struct Walked {
    /// Paths and CIDs of the records handed out.
    pub records: Vec<(String, Link)>,
    /// How many were dropped.
    pub dropped: u64,
    /// How it ended.
    pub end: Result<(), String>,
}

/// The checkout of a file that arrives in pieces.
///
/// # Errors
/// As the spool.
pub fn spooled<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, options: SpoolOptions) -> Result<Arc<Checkout>, CheckoutError> {
    let mut spool = Spool::new(options, &SpoolBudget::new(1 << 26));
    for piece in pieces {
        spool.push(piece)?;
    }
    spool.finish().map(Arc::new)
}

/// Walks a checkout in batches, reading every record, which must have the hash of its CID.
pub fn walk(checkout: &Arc<Checkout>, batch: usize) -> Walked {
    let (mut walk, mut leaves, mut bytes) = (checkout.walk(), Leaves::new(), Records::new());
    let mut records = Vec::new();
    let end = loop {
        match walk.next(&mut leaves, batch) {
            Ok(true) => {
                let wanted: Vec<u32> = (0..leaves.len() as u32).collect();
                walk.read(&leaves, &wanted, &mut bytes).expect("records that a walk told are there");
                assert_eq!(bytes.len(), leaves.len());
                for (leaf, bytes) in leaves.iter().zip(bytes.iter()) {
                    assert_eq!((Link::of(bytes), bytes.len()), (leaf.link, leaf.len as usize));
                    records.push((leaf.path.as_str().to_owned(), leaf.link));
                }
            }
            Ok(false) => break Ok(()),
            Err(error) => break Err(error.to_string()),
        }
    };
    assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0), "paths that do not rise");
    Walked { records, dropped: walk.counts().dropped, end }
}
