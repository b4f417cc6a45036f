use std::num::NonZeroUsize;
use std::time::Duration;

use crate::consumer::CollectionFilter;

/// How a [`super::Backfiller`] works. Every field has a default that is kind to hosts and fits a small machine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Repos that are checked out at once. Default 10.
    pub parallel_backfills: NonZeroUsize,
    /// Changes of one repo's checkout that the default [`crate::consumer::Handler::batch`] may have in hand at once. Default 100.
    pub parallel_record_creates: NonZeroUsize,
    /// Collections that the consumer takes. Default all.
    pub collections: CollectionFilter,
    /// Changes in one delivery, at most. Default 512; a larger delivery costs memory, a smaller one transactions.
    pub delivery_records: NonZeroUsize,
    /// Deliveries of one checkout that are with the handler at once. Default 4.
    pub parallel_deliveries: NonZeroUsize,
    /// Repos whose buffers are flushed at once after their checkouts. Default 32.
    pub parallel_lanes: NonZeroUsize,
    /// Bytes of op sets that one job may buffer. Past it the buffer is emptied and the repo checked out again. Default 16 MiB.
    pub buffer_bytes: u64,
    /// How long the handler may take over one delivery before the attempt counts as failed. Default 2 minutes.
    pub handler_timeout: Duration,
    /// Attempts of one delivery before the job fails or its lane pauses. Default 5.
    pub handler_attempts: NonZeroUsize,
    /// How long a graceful stop waits for what is with the handler. Default 30 seconds.
    pub stop_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let some = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            parallel_backfills: some(10),
            parallel_record_creates: some(100),
            collections: CollectionFilter::default(),
            delivery_records: some(512),
            parallel_deliveries: some(4),
            parallel_lanes: some(32),
            buffer_bytes: 16 << 20,
            handler_timeout: Duration::from_secs(120),
            handler_attempts: some(5),
            stop_grace: Duration::from_secs(30),
        }
    }
}
