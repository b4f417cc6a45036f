use rand::Rng;

use super::seed;
use crate::syntax::Did;

const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The record keys that a client of a normal app never makes, and that are legal all the same.
const UNUSUAL_KEYS: [&str; 8] = ["-", "_", "~", ":", "...", "a:b:c", "UPPER.lower-0_9~", "~.-:_"];

/// The `did:plc` of the repo of this number: 24 characters of base 32, as the directory makes them.
pub(super) fn plc(world: u64, index: u64) -> Did {
    let hash = seed::bytes(world, "did", index);
    let id: String = hash.iter().take(24).map(|byte| char::from(BASE32[usize::from(byte & 31)])).collect();
    Did::new(&format!("did:plc:{id}")).expect("base 32 is within the syntax")
}

/// A `did:plc` as the directory makes them, of nobody.
pub(super) fn any_plc(rng: &mut impl Rng) -> String {
    let random: [u8; 24] = rng.random();
    let mut did = String::with_capacity(32);
    did.push_str("did:plc:");
    did.extend(random.iter().map(|byte| char::from(BASE32[usize::from(byte & 31)])));
    did
}

/// The handle of the repo of this number.
pub(super) fn handle(index: u64) -> String {
    format!("account{index}.sim.test")
}

/// A record key that is no TID, unlike any other of the repo as long as `ordinal` is: single characters of punctuation, every legal
/// character, the longest key there may be.
pub(super) fn unusual_key(rng: &mut impl Rng, ordinal: usize) -> String {
    if let Some(key) = UNUSUAL_KEYS.get(ordinal) {
        return (*key).to_owned();
    }
    match rng.random_range(0..4) {
        0 => format!("{:~<512}", format!("long-{ordinal}.")),
        1 => format!("{ordinal}"),
        2 => format!("at:did:web:sim.test:{ordinal}"),
        _ => format!("Mixed_{ordinal}~.-"),
    }
}
