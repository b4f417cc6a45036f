use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// 32 bytes that depend on the seed of the world, what they are for, and a number: nothing else, so that each part of a world can be made
/// alone, in any order, and comes out the same.
pub(super) fn bytes(seed: u64, purpose: &str, index: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(index.to_be_bytes());
    hash.update(purpose.as_bytes());
    hash.finalize().into()
}

/// A stream of random numbers of its own for each purpose and number.
pub(super) fn stream(seed: u64, purpose: &str, index: u64) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(bytes(seed, purpose, index))
}
