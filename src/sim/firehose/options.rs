/// How the firehose of one upstream, a host or a relay, behaves when nothing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirehoseOptions {
    /// Events that are retained for those who come with a cursor (at least 1).
    pub window: usize,
    /// The number of the first event (at least 1).
    pub first_seq: u64,
    /// Events that a connection that has caught up may fall behind; then it is told `ConsumerTooSlow` and closed.
    pub queue: u64,
    /// Whether a cursor asks for the event of its own number too, as the specification has it; the known implementations begin with the next.
    pub inclusive: bool,
    /// Whether it says nothing of a cursor that it cannot honour, as the Go relay: of one older than its window it begins with the oldest event,
    /// of one that is yet to come with the next.
    pub silent: bool,
}

impl Default for FirehoseOptions {
    /// The reference implementation, with 4,096 events in the window and 2,048 in the queue; numbers begin at 1.
    fn default() -> Self {
        Self { window: 4_096, first_seq: 1, queue: 2_048, inclusive: false, silent: false }
    }
}

/// The clock that dates events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventTimes {
    /// That of the world ([`crate::sim::SimClock`]): the same in each run, and the test's to set.
    #[default]
    World,
    /// The real one, for programs that show how far they are behind.
    Wall,
}
