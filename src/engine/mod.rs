//! The engine: brings a consumer every record that exists, then every change, in order.
//!
//! ```text
//!            enqueue ─► store ─► dispatcher ─► worker ─► checkout ─► checkout_plan ─► checkout_delivery ─► flush ─► complete
//! upstreams ─► follow ─► router ─► store (buffer)
//! buffer (op sets) ─► store ─► lanes (complete repos) ─────────────────────────────────────────────────► flush
//! ```

mod audit;
mod backfiller;
mod backoff;
mod builder;
mod checkout;
mod checkout_delivery;
mod checkout_plan;
mod clock;
mod core;
mod deliver;
mod dispatcher;
mod flush;
mod flush_plan;
mod follow;
mod held;
mod lanes;
mod lease;
mod open;
mod options;
mod progress;
mod router;
mod shares;
mod tell;
mod worker;

pub use backfiller::{Backfiller, EngineError, NotStopped};
pub use builder::{BuildError, Builder};
pub use checkout::{CheckoutFailure, Fetcher};
pub use follow::{FollowOptions, FollowProgress, Track, UpstreamProgress};
pub use options::Options;
pub use progress::{Counts, Progress};
pub use router::OpSetError;
