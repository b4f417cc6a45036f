/// What becomes of an op set that is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// It is in the buffer, durably, and will be delivered in order.
    Buffered {
        /// Whether the job is complete, so that a lane has to be told; in progress, its worker flushes.
        complete: bool,
    },
    /// The job waits for a checkout, which will contain it; the rev is remembered as `min_rev`.
    Discarded,
    /// The job, or its buffer, has it already.
    Stale,
    /// It does not start where the job stands, or the buffer is full: the job is enqueued again.
    Gap,
    /// The account is unavailable: dropped; the rev is remembered.
    Unavailable,
    /// There is no such job.
    Unknown,
}
