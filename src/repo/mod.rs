//! The repository format: CAR files, the tree, commits, records. Pure: no I/O of its own, no async, no store.
pub(crate) mod car;
pub(crate) mod cbor;
mod checkout;
mod cid_text;
mod commit;
mod cursor;
#[cfg(feature = "sim")]
pub mod damage;
pub(crate) mod emit;
mod error;
#[cfg(feature = "sim")]
pub mod export;
pub(crate) mod hash;
mod index;
mod intake;
pub mod inversion;
pub mod json;
mod link;
pub mod mst;
mod preorder;
pub mod record;
mod scan;
mod segment;
mod signature;
#[cfg(feature = "sim")]
mod signing;
mod storage;
mod walk;

pub use checkout::Checkout;
pub use commit::{Commit, CommitFault};
pub use error::{CheckoutError, TreeFault};
pub use index::Extent;
pub(crate) use intake::{Intake, Limits, Verifier};
pub use link::{Link, NotALink};
pub use mst::NodeFault;
pub use record::RecordFault;
pub(crate) use segment::{Segment, Verified};
pub use signature::{Curve, KeyError, PublicKey, SignatureError};
#[cfg(feature = "sim")]
pub use signing::SigningKey;
pub(crate) use storage::{SEGMENT, Storage};
pub use walk::{DroppedLeaf, Leaf, LeafFault, Leaves, Records, Walk, WalkCounts};
