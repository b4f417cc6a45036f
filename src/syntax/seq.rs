use std::fmt;

/// The number of an event on one firehose: from 1 to 2^53 - 1, rising on a connection, with gaps. Numbers of different firehoses have nothing to do with
/// each other. Rule: atproto.com/specs/event-stream, "Sequence Numbers".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(u64);

impl Seq {
    /// The highest sequence number, 2^53 - 1.
    pub const MAX: Seq = Seq((1 << 53) - 1);

    /// The sequence number; none when it is 0 or above [`Seq::MAX`].
    pub fn new(number: u64) -> Option<Self> {
        (1..=Self::MAX.0).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
