use std::fmt::Debug;
use std::io;

/// Where the bytes of one CAR file lie, once they are all there.
///
/// Addresses are below 2^40. The sections lie one behind the other in segments of [`SEGMENT`] addresses; no section begins in one segment
/// and ends in another, so the end of a segment may be unused. A section that is longer than a segment has as many for itself as it needs.
pub(crate) trait Storage: Debug + Send + Sync {
    /// The bytes from an address on, when they lie in memory.
    fn slice(&self, at: u64, len: usize) -> Option<&[u8]>;

    /// Reads the bytes from an address on; unused addresses between sections read as anything.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// How many bytes of a segment are used; 0 for one that an earlier segment's long section takes up, none past the last.
    fn used(&self, segment: usize) -> Option<usize>;
}

/// Addresses in a segment. A power of two; small enough to lie in a core's own cache while its blocks are hashed.
pub(crate) const SEGMENT: usize = 1 << 18;
