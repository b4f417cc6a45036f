//! Asks hosts for repos, at a pace they can bear.
mod spool;

pub use spool::{Spool, SpoolBudget, SpoolOptions};
