/// An upstream: one that has a firehose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::sim) enum Place {
    /// The host of this number.
    Host(usize),
    /// The relay of this number.
    Relay(usize),
}
