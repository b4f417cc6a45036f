use super::SavedCursor;
use crate::job::Timestamp;
use crate::syntax::Seq;

/// No slot.
const NONE: u32 = u32::MAX;

/// The low watermark of one upstream (I5): the highest event up to which everything has ended, in whatever order it ends.
///
/// Only what is in flight is kept, each with the event before it: when the oldest ends, all up to the event before the next oldest has ended.
/// So an event that hangs for hours costs nothing but its own slot, while millions begin and end behind it. All acts are O(1); 32 bytes for each of the most
/// that were ever in flight at once.
#[derive(Debug, Clone)]
pub struct Watermark {
    slots: Vec<Slot>,
    /// The oldest and the newest slot in flight, and the first of the free ones.
    oldest: u32,
    newest: u32,
    free: u32,
    in_flight: usize,
    /// The highest event that has begun, or that was saved.
    last: Option<SavedCursor>,
    /// Counts the restarts of the sequence.
    sequence: u32,
}

/// One event in flight, in a list by age; or a free slot, in a list by `newer`.
#[derive(Debug, Clone)]
struct Slot {
    before: Option<SavedCursor>,
    older: u32,
    newer: u32,
}

/// An event in flight. Dropped without [`Watermark::end`] it holds the watermark where it is, and the event comes again after a restart.
#[derive(Debug)]
#[must_use = "the watermark stands still until the ticket has ended"]
pub struct Ticket {
    slot: u32,
    sequence: u32,
}

impl Watermark {
    /// Nothing in flight, and all ended up to what was saved.
    pub fn new(saved: Option<SavedCursor>) -> Self {
        Self { slots: Vec::new(), oldest: NONE, newest: NONE, free: NONE, in_flight: 0, last: saved, sequence: 0 }
    }

    /// An event was taken; events are taken in rising order.
    pub fn begin(&mut self, seq: Seq, time: Timestamp) -> Ticket {
        let slot = Slot { before: self.last, older: self.newest, newer: NONE };
        if self.last.is_none_or(|last| seq > last.seq) {
            self.last = Some(SavedCursor { seq, time });
        }
        let at = self.place(slot);
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        self.in_flight += 1;
        Ticket { slot: at, sequence: self.sequence }
    }

    /// An event has ended: it is acknowledged, durably buffered, or dropped for good.
    pub fn end(&mut self, ticket: Ticket) {
        if ticket.sequence != self.sequence {
            return;
        }
        let Some(slot) = self.slots.get_mut(ticket.slot as usize) else { return };
        let (older, newer) = (slot.older, slot.newer);
        *slot = Slot { before: None, older: NONE, newer: self.free };
        self.free = ticket.slot;
        match self.slots.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        self.in_flight -= 1;
    }

    /// The highest event up to which everything has ended; none when there is none yet. It never goes back but by [`Watermark::restart`].
    pub fn watermark(&self) -> Option<SavedCursor> {
        self.slots.get(self.oldest as usize).map_or(self.last, |oldest| oldest.before)
    }

    /// How many events are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The sequence was restarted: what is in flight counts no more, and the watermark begins anew, perhaps lower.
    pub fn restart(&mut self) {
        *self = Self { sequence: self.sequence.wrapping_add(1), ..Self::new(None) };
    }

    fn place(&mut self, slot: Slot) -> u32 {
        let at = self.free;
        match self.slots.get_mut(at as usize) {
            Some(free) => {
                self.free = free.newer;
                *free = slot;
                at
            }
            None => {
                // Four thousand million in flight do not fit into the memory of any machine that runs this.
                let at = u32::try_from(self.slots.len()).unwrap_or(NONE);
                self.slots.push(slot);
                at
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(number: u64) -> SavedCursor {
        SavedCursor { seq: Seq::new(number).expect("a number of the test"), time: Timestamp(number as i64 * 7) }
    }

    fn begin(watermark: &mut Watermark, number: u64) -> Ticket {
        watermark.begin(at(number).seq, at(number).time)
    }

    #[test]
    fn an_event_that_hangs_holds_the_watermark_below_it_and_costs_one_slot() {
        let mut watermark = Watermark::new(Some(at(99)));
        let hanging = begin(&mut watermark, 100);
        for number in 101..1_000_000 {
            let ticket = begin(&mut watermark, number);
            watermark.end(ticket);
        }
        assert_eq!((watermark.watermark(), watermark.in_flight(), watermark.slots.len()), (Some(at(99)), 1, 2));
        watermark.end(hanging);
        assert_eq!((watermark.watermark(), watermark.in_flight()), (Some(at(999_999)), 0));
    }

    #[test]
    fn nothing_has_ended_at_a_first_start() {
        let mut watermark = Watermark::new(None);
        assert_eq!(watermark.watermark(), None);
        let (first, second) = (begin(&mut watermark, 5), begin(&mut watermark, 9));
        watermark.end(second);
        assert_eq!(watermark.watermark(), None);
        watermark.end(first);
        assert_eq!(watermark.watermark(), Some(at(9)));
    }

    #[test]
    fn what_was_in_flight_before_a_restart_counts_no_more() {
        let mut watermark = Watermark::new(Some(at(1_000)));
        let old = begin(&mut watermark, 1_001);
        watermark.restart();
        assert_eq!(watermark.watermark(), None);
        let new = begin(&mut watermark, 1);
        watermark.end(old);
        assert_eq!((watermark.watermark(), watermark.in_flight()), (None, 1));
        watermark.end(new);
        assert_eq!(watermark.watermark(), Some(at(1)));
    }

    #[test]
    fn a_slot_is_as_large_as_documented() {
        assert!(size_of::<Slot>() <= 32, "{}", size_of::<Slot>());
    }

    proptest! {
        #[test]
        fn it_is_the_event_before_the_lowest_in_flight(saved in prop::option::of(1u64..50), steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 1u64..5), 1..300)) {
            let mut watermark = Watermark::new(saved.map(at));
            let mut tickets: Vec<(u64, Ticket)> = Vec::new();
            let (mut begun, mut open) = (BTreeSet::from_iter(saved), BTreeSet::new());
            let mut most = 0;
            for (begins, which, step) in steps {
                if begins || tickets.is_empty() {
                    let number = begun.last().copied().unwrap_or(0) + step;
                    tickets.push((number, begin(&mut watermark, number)));
                    begun.insert(number);
                    open.insert(number);
                } else {
                    let (number, ticket) = tickets.swap_remove(which.index(tickets.len()));
                    watermark.end(ticket);
                    open.remove(&number);
                }
                let truth = match open.first() {
                    Some(lowest) => begun.range(..lowest).next_back(),
                    None => begun.last(),
                };
                prop_assert_eq!(watermark.watermark(), truth.copied().map(at));
                prop_assert_eq!(watermark.in_flight(), open.len());
                most = most.max(open.len());
                prop_assert!(watermark.slots.len() <= most);
            }
        }
    }
}
