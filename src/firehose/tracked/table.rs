use std::num::NonZeroU64;

/// A table is at most so full, in quarters: beyond, looking for what is not there takes many steps.
const FULL: (usize, usize) = (3, 4);

/// A set of random numbers: open addressing with linear steps, from the place that the high bits of a number name. It grows by a half and never shrinks, so it
/// holds 10.7 to 16 bytes for each number; the standard set's doubling would make that 10.3 to 20.6.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: Box<[Option<NonZeroU64>]>,
    len: usize,
}

/// Where the search for a number ended.
enum Found {
    /// There it is.
    Here,
    /// Here it belongs.
    Free(usize),
}

impl Table {
    /// Whether a number is in it.
    pub(super) fn contains(&self, number: NonZeroU64) -> bool {
        matches!(find(&self.places, number), Some(Found::Here))
    }

    /// Adds a number; whether it was not there.
    pub(super) fn insert(&mut self, number: NonZeroU64) -> bool {
        if (self.len + 1) * FULL.1 > self.places.len() * FULL.0 {
            self.grow();
        }
        let new = put(&mut self.places, number);
        self.len += usize::from(new);
        new
    }

    /// How many numbers are in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many bytes of memory its places take.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    fn grow(&mut self) {
        let mut larger = vec![None; (self.places.len() + self.places.len() / 2).max(16)].into_boxed_slice();
        for number in self.places.iter().copied().flatten() {
            put(&mut larger, number);
        }
        self.places = larger;
    }
}

/// Puts a number in its place; whether it was not there.
fn put(places: &mut [Option<NonZeroU64>], number: NonZeroU64) -> bool {
    let Some(Found::Free(at)) = find(places, number) else { return false };
    let Some(place) = places.get_mut(at) else { return false };
    *place = Some(number);
    true
}

/// None in a table without a free place.
fn find(places: &[Option<NonZeroU64>], number: NonZeroU64) -> Option<Found> {
    // The high bits, scaled to the number of places.
    let mut at = ((u128::from(number.get()) * places.len() as u128) >> 64) as usize;
    for _ in 0..places.len() {
        match places.get(at)? {
            Some(other) if *other == number => return Some(Found::Here),
            Some(_) => at = if at + 1 == places.len() { 0 } else { at + 1 },
            None => return Some(Found::Free(at)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_set_holds_even_where_all_belong_in_one_place(
            numbers in prop::collection::vec(prop_oneof![1u64..40, u64::MAX - 40..=u64::MAX, 1u64..], 0..400),
        ) {
            let (mut table, mut set) = (Table::default(), HashSet::new());
            for number in numbers.iter().filter_map(|number| NonZeroU64::new(*number)) {
                prop_assert_eq!(table.contains(number), set.contains(&number));
                prop_assert_eq!(table.insert(number), set.insert(number));
                prop_assert_eq!(table.len(), set.len());
                prop_assert!(table.contains(number));
            }
            prop_assert!(table.len() * 4 <= table.places.len() * 3);
        }
    }
}
