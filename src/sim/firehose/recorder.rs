use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::{Log, Next, Position};
use crate::sim::{NetworkOptions, World};

/// A relay without a network: records what happens in a world as the frames that a relay would send. For tests and benchmarks of what comes after
/// the connection.
pub struct Recorder {
    log: Arc<Log>,
}

impl Recorder {
    /// Records from now on, as a relay of these options does; more than its window holds is forgotten.
    pub fn start(world: &World, options: &NetworkOptions) -> Self {
        let log = Arc::new(Log::new(world.hosts(), options, Arc::default()));
        world.tell_to(&log);
        Self { log }
    }

    /// The frames that are retained, the oldest first.
    pub fn frames(&self) -> Vec<Bytes> {
        let Some(relay) = self.log.relays.first() else { return Vec::new() };
        let oldest = relay.before(Position { era: 0, seq: relay.head() }, usize::MAX);
        match relay.after(oldest, usize::MAX) {
            Next::Events(events) => events.iter().map(|(seq, event)| event.frame(*seq)).collect(),
            Next::Nothing | Next::Overtaken | Next::Restarted => Vec::new(),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.log.relays.first().map(|relay| relay.head());
        f.debug_struct("Recorder").field("head", &head).finish_non_exhaustive()
    }
}
