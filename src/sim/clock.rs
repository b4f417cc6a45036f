use std::sync::Mutex;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::seed;
use crate::syntax::Rev;

/// When the history of every world ends and its live writes begin: 2025-06-01T00:00:00Z, in microseconds since the Unix epoch.
pub(super) const EPOCH: u64 = 1_748_736_000_000_000;

/// The clock by which a world dates its commits. It shows no real time: each look moves it on by up to a tenth of a second, by the seed,
/// so that the revs of a world are the same in each run and only ever rise.
#[derive(Debug)]
pub struct SimClock {
    state: Mutex<(u64, ChaCha8Rng)>,
}

impl SimClock {
    pub(super) fn new(world: u64) -> Self {
        Self { state: Mutex::new((EPOCH, seed::stream(world, "clock", 0))) }
    }

    /// The rev of the next commit, higher than any before (unless the clock was set back).
    pub fn tick(&self) -> Rev {
        let mut state = super::lock(&self.state);
        let step = state.1.random_range(1..100_000);
        state.0 += step;
        Rev::from_parts(state.0, (step & 0x3ff) as u16)
    }

    /// Sets the clock, in microseconds since the Unix epoch: forwards for revs from the future, back for hosts whose clock went wrong.
    /// A repo refuses a rev that does not rise, so a clock that was set back only serves repos that are older still.
    pub fn set(&self, micros: u64) {
        super::lock(&self.state).0 = micros;
    }

    /// What the clock shows, in microseconds since the Unix epoch.
    pub fn micros(&self) -> u64 {
        super::lock(&self.state).0
    }
}
