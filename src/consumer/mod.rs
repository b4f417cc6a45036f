//! The consumer: who receives the records of the repos, and what reaches him.

mod delivery;
mod filter;
mod handler;

pub use delivery::{Action, Change, Delivery, Origin, Record};
pub use filter::{CollectionFilter, FilterError};
pub(crate) use handler::ErasedHandler;
pub use handler::{Handler, HandlerError};
