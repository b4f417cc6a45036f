use std::time::Duration;

use super::SavedCursor;
use crate::job::Timestamp;

/// How often a watermark is saved. Seldom means more events that come again after a crash, often more writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePolicy {
    /// After so long. Default 1 s.
    pub every: Duration,
    /// Or when its number has risen by so much, sooner. Default 1,000.
    pub events: u64,
}

impl Default for SavePolicy {
    fn default() -> Self {
        Self { every: Duration::from_secs(1), events: 1_000 }
    }
}

/// What was saved of one upstream's watermark, and when. Pure: whoever saves asks, saves, and says so.
#[derive(Debug, Clone)]
pub struct Saves {
    policy: SavePolicy,
    last: Option<SavedCursor>,
    at: Option<Timestamp>,
}

impl Saves {
    /// With what is in the store.
    pub fn new(policy: SavePolicy, last: Option<SavedCursor>) -> Self {
        Self { policy, last, at: None }
    }

    /// The watermark, if it is to be saved now. One that did not move is never.
    pub fn due(&self, watermark: Option<SavedCursor>, now: Timestamp) -> Option<SavedCursor> {
        let watermark = self.unsaved(watermark)?;
        let waited = self.at.is_none_or(|at| now < at || at.until(now) >= self.policy.every);
        // A restarted sequence begins lower, which is a distance like any other.
        let far = self.last.is_some_and(|last| last.seq.get().abs_diff(watermark.seq.get()) >= self.policy.events);
        (waited || far).then_some(watermark)
    }

    /// The watermark, if it has moved since it was saved: for the last save before a stop.
    pub fn unsaved(&self, watermark: Option<SavedCursor>) -> Option<SavedCursor> {
        watermark.filter(|watermark| self.last != Some(*watermark))
    }

    /// This one is in the store.
    pub fn saved(&mut self, cursor: SavedCursor, now: Timestamp) {
        self.last = Some(cursor);
        self.at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::Seq;

    fn at(number: u64) -> Option<SavedCursor> {
        Some(SavedCursor { seq: Seq::new(number).expect("a number of the test"), time: Timestamp(0) })
    }

    #[test]
    fn it_is_saved_by_time_and_by_count_and_only_when_it_moved() {
        let mut saves = Saves::new(SavePolicy::default(), at(10));
        assert_eq!(saves.due(None, Timestamp(0)), None);
        assert_eq!(saves.due(at(10), Timestamp(0)), None);
        assert_eq!(saves.due(at(11), Timestamp(0)), at(11), "nothing was saved since the start");
        saves.saved(at(11).expect("given"), Timestamp(0));
        for (number, now, expected) in
            [(11, 5_000, None), (12, 999, None), (12, 1_000, at(12)), (1_010, 1, None), (1_011, 1, at(1_011)), (12, -1, at(12))]
        {
            assert_eq!(saves.due(at(number), Timestamp(now)), expected, "{number} at {now} ms");
        }
        assert_eq!((saves.unsaved(at(12)), saves.unsaved(at(11)), saves.unsaved(None)), (at(12), None, None));
    }

    #[test]
    fn the_watermark_of_a_restarted_sequence_is_saved_though_it_is_lower() {
        let mut saves = Saves::new(SavePolicy::default(), None);
        saves.saved(at(8_400_000_000).expect("given"), Timestamp(0));
        assert_eq!(saves.due(at(3), Timestamp(1)), at(3));
    }
}
