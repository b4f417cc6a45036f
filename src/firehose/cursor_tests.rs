use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;
/// The time of the saved event, and ours, long after all others.
const SAVED: i64 = 1_790_000_000_000;
const NOW: Timestamp = Timestamp(SAVED + 30 * DAY);

fn seq(number: u64) -> Seq {
    Seq::new(number).expect("a number of the test")
}

fn saved(number: u64) -> Sequence {
    Sequence::new(CursorRules::default(), Some(SavedCursor { seq: seq(number), time: Timestamp(SAVED) }))
}

/// Hands in an event so many milliseconds after the saved one.
fn event(sequence: &mut Sequence, number: u64, after: i64) -> Continuity {
    sequence.event(seq(number), Timestamp(SAVED + after), NOW)
}

fn gap(continuity: Continuity) -> &'static str {
    match continuity {
        Continuity::Gap(reason) => reason.as_str(),
        Continuity::Continuous => "continuous",
        Continuity::Duplicate => "duplicate",
        Continuity::Doubtful => "doubtful",
    }
}

#[test]
fn a_first_start_takes_whatever_comes() {
    for first in [1, 8_400_000_000] {
        let mut sequence = Sequence::new(CursorRules::default(), None);
        assert_eq!(sequence.resume(), Resume::Live);
        assert_eq!(event(&mut sequence, first, -DAY), Continuity::Continuous);
        assert_eq!(sequence.resume(), Resume::After(seq(first)));
    }
}

#[test]
fn the_next_number_follows_however_long_the_upstream_was_quiet() {
    let mut sequence = saved(100);
    assert_eq!(sequence.resume(), Resume::After(seq(100)));
    assert_eq!(event(&mut sequence, 101, 25 * DAY), Continuity::Continuous);
}

#[test]
fn a_cursor_may_be_inclusive_or_exclusive() {
    let mut inclusive = saved(100);
    assert_eq!(event(&mut inclusive, 100, 0), Continuity::Duplicate);
    assert_eq!(event(&mut inclusive, 101, 5), Continuity::Continuous);
    assert_eq!(event(&mut saved(100), 101, 5), Continuity::Continuous);
}

#[test]
fn what_lies_between_may_have_been_deleted() {
    for (number, after) in [(1_100, 20 * DAY), (9_000_000, MINUTE), (150, 20 * DAY)] {
        assert_eq!(event(&mut saved(100), number, after), Continuity::Continuous, "{number} after {after} ms");
    }
}

#[test]
fn a_jump_in_number_and_time_is_a_gap_and_so_is_a_huge_one_in_number_that_comes_twice() {
    for (number, after, is_huge) in
        [(1_101, MINUTE + 1, false), (2_000_000, 2 * DAY, false), (10_000_101, 0, true), (20_000_000_000, -DAY, true)]
    {
        let mut sequence = saved(100);
        if is_huge {
            assert_eq!(event(&mut sequence, number, after), Continuity::Doubtful);
            assert_eq!(sequence.resume(), Resume::After(seq(100)));
            sequence.connected();
        }
        assert_eq!(gap(event(&mut sequence, number, after)), "far_from_cursor", "{number} after {after} ms");
        // It was the oldest that there is, so the stream goes on behind it.
        assert_eq!(sequence.resume(), Resume::After(seq(number)));
        assert_eq!(event(&mut sequence, number + 1, after), Continuity::Continuous);
    }
}

#[test]
fn a_jump_within_a_connection_is_none() {
    let mut sequence = saved(100);
    assert_eq!(event(&mut sequence, 101, 5), Continuity::Continuous);
    assert_eq!(event(&mut sequence, 5_000_000, DAY), Continuity::Continuous);
    sequence.connected();
    assert_eq!(gap(event(&mut sequence, 9_000_000, 2 * DAY)), "far_from_cursor");
}

#[test]
fn a_single_number_far_beyond_all_others_blinds_nobody() {
    let mut sequence = saved(100);
    for number in [101, 102] {
        assert_eq!(event(&mut sequence, number, 5), Continuity::Continuous);
        assert_eq!(event(&mut sequence, 1 << 50, 5), Continuity::Doubtful);
        sequence.connected();
    }
    assert_eq!(event(&mut sequence, 103, 5), Continuity::Continuous);
    // Within one connection it is never believed, however often it comes.
    for _ in 0..3 {
        assert_eq!(event(&mut sequence, 1 << 50, 5), Continuity::Doubtful);
    }
    assert_eq!(sequence.resume(), Resume::After(seq(103)));
}

#[test]
fn a_gap_shows_itself_behind_events_that_tell_no_time_or_a_wrong_one() {
    let mut sequence = saved(100);
    for (number, time) in [(5_000, None), (5_001, Some(Timestamp(SAVED))), (5_002, Some(Timestamp(SAVED - DAY)))] {
        assert_eq!(sequence.event(seq(number), time, NOW), Continuity::Continuous);
    }
    assert_eq!(gap(event(&mut sequence, 5_003, DAY)), "far_from_cursor");
    // Those who deleted what lay between tell the truth about the time, all of them.
    let mut sequence = saved(100);
    for number in 5_000..5_000 + u64::from(WITNESSES) {
        assert_eq!(event(&mut sequence, number, MINUTE), Continuity::Continuous);
    }
    assert_eq!(event(&mut sequence, 6_000, DAY), Continuity::Continuous);
}

#[test]
fn a_time_ahead_of_ours_hides_no_gap() {
    let mut sequence = saved(100);
    let live = Timestamp(SAVED + 1_000);
    assert_eq!(sequence.event(seq(101), Timestamp(SAVED + DAY), live), Continuity::Continuous);
    assert_eq!(sequence.last(), Some(SavedCursor { seq: seq(101), time: live }));
    sequence.connected();
    assert_eq!(gap(sequence.event(seq(5_000), Timestamp(SAVED + DAY), Timestamp(SAVED + DAY))), "far_from_cursor");
}

#[test]
fn older_events_that_come_again_are_not_processed_on_any_connection() {
    let mut sequence = saved(100);
    for (number, after) in [(90, -50), (91, -40), (99, -1), (100, 0), (97, MINUTE)] {
        assert_eq!(event(&mut sequence, number, after), Continuity::Duplicate, "{number}");
    }
    for number in 101..200 {
        assert_eq!(event(&mut sequence, number, number as i64), Continuity::Continuous);
    }
    sequence.connected();
    for number in 150..200 {
        assert_eq!(event(&mut sequence, number, number as i64), Continuity::Duplicate);
    }
    assert_eq!(event(&mut sequence, 200, 200), Continuity::Continuous);
}

#[test]
fn a_lower_number_with_a_newer_time_is_a_restarted_sequence_and_is_read_from_its_beginning() {
    let mut sequence = saved(100);
    assert_eq!(gap(event(&mut sequence, 7, 5 * MINUTE + 1)), "restarted_sequence");
    assert_eq!(sequence.resume(), Resume::Oldest);
    sequence.connected();
    for number in 1..300 {
        assert_eq!(event(&mut sequence, number, DAY + number as i64), Continuity::Continuous);
    }
}

#[test]
fn another_event_under_a_number_just_taken_is_a_restarted_sequence_however_soon() {
    let mut sequence = Sequence::new(CursorRules::default(), None);
    for number in 1..=12 {
        event(&mut sequence, number, number as i64);
    }
    sequence.connected();
    assert_eq!(gap(event(&mut sequence, 1, 20)), "restarted_sequence");
}

#[test]
fn what_the_upstream_says_of_the_cursor_is_a_gap_once() {
    type Told = fn(&mut Sequence) -> Continuity;
    for (told, name, new_sequence) in
        [(Sequence::outdated as Told, "outdated_cursor", false), (Sequence::future as Told, "future_cursor", true)]
    {
        let mut sequence = saved(100);
        let Continuity::Gap(reason) = told(&mut sequence) else { panic!("no gap") };
        assert_eq!((reason.as_str(), reason.is_new_sequence()), (name, new_sequence));
        assert_eq!(sequence.resume(), Resume::Oldest);
        // An upstream that goes on saying so does not begin one audit after the other.
        sequence.connected();
        assert_eq!(told(&mut sequence), Continuity::Continuous);
        assert_eq!(event(&mut sequence, 5, DAY), Continuity::Continuous);
    }
}

#[test]
fn a_host_that_lies_about_the_time_makes_no_restart_of_a_replay() {
    let mut sequence = saved(100);
    let live = Timestamp(SAVED + 1_000);
    assert_eq!(sequence.event(seq(101), Timestamp(0), live), Continuity::Continuous);
    assert_eq!(sequence.event(seq(102), Timestamp(i64::MAX), live), Continuity::Continuous);
    sequence.connected();
    for (number, time) in [(60, i64::MAX), (101, 0), (102, i64::MAX), (61, i64::MIN)] {
        assert_eq!(sequence.event(seq(number), Timestamp(time), live), Continuity::Duplicate, "{number}");
    }
    // Nor does it hide a restart for ever.
    assert_eq!(gap(sequence.event(seq(2), Timestamp(SAVED + DAY), NOW)), "restarted_sequence");
}

#[test]
fn events_without_a_time_break_nothing_off() {
    let mut sequence = saved(100);
    let mut untimed = |number| sequence.event(seq(number), None, NOW);
    assert_eq!(
        [untimed(101), untimed(101), untimed(100), untimed(90)],
        [Continuity::Continuous, Continuity::Duplicate, Continuity::Duplicate, Continuity::Duplicate]
    );
    assert_eq!(sequence.last(), Some(SavedCursor { seq: seq(101), time: Timestamp(SAVED) }), "as old as the one before");
    // What is known to have had none has become another.
    assert_eq!(gap(event(&mut sequence, 101, 1)), "restarted_sequence");
}

#[test]
fn what_cannot_be_read_is_stepped_over_whether_or_not_the_next_connection_holds() {
    let mut sequence = saved(100);
    sequence.step_over();
    for _ in 0..2 {
        assert_eq!((sequence.resume(), sequence.last()), (Resume::Live, None));
        sequence.connected();
        assert_eq!(sequence.outdated(), Continuity::Continuous);
    }
    assert_eq!(event(&mut sequence, 9_000_000_000, DAY), Continuity::Continuous);
    assert_eq!(sequence.resume(), Resume::After(seq(9_000_000_000)));
}

proptest! {
    #[test]
    fn any_events_at_all_are_processed_in_rising_order_between_gaps(
        events in prop::collection::vec((1u64..2_000, any::<i64>(), 0u8..12), 1..200),
    ) {
        let mut sequence = saved(1_000);
        let mut highest = Some(seq(1_000));
        for (number, time, kind) in events {
            let told = match kind {
                0 => sequence.outdated(),
                1 => sequence.future(),
                2 => { sequence.connected(); continue },
                _ => sequence.event(seq(number), Timestamp(time), NOW),
            };
            match told {
                Continuity::Continuous if kind > 2 => {
                    prop_assert!(highest.is_none_or(|highest| seq(number) > highest));
                    highest = Some(seq(number));
                }
                Continuity::Continuous => prop_assert_eq!(highest, None),
                Continuity::Duplicate => prop_assert!(highest.is_some_and(|highest| seq(number) <= highest)),
                Continuity::Doubtful => {}
                Continuity::Gap(GapReason::Far { .. }) => highest = Some(seq(number)),
                Continuity::Gap(_) => {
                    prop_assert!(highest.is_some());
                    highest = None;
                }
            }
            prop_assert_eq!(sequence.last().map(|last| last.seq), highest);
        }
    }
}
