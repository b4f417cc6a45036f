//! What can go wrong on a simulated network, where and how often, and the count of how often it did.
mod event;
mod gate;
mod kind;
mod place;
mod rule;
mod stream;

pub use event::EventFault;
pub use gate::Gate;
pub use kind::{Ending, Fault, Missing, Position, RetryHint};
pub(in crate::sim) use place::Place;
pub use rule::{Faults, Rule, RuleId};
pub use stream::{FrameFn, StreamFault};
