//! Makes a schedule that fails smaller, as long as it fails: it leaves out halves, then smaller parts, then single steps.

use std::time::{Duration, Instant};

use crate::step::Step;

/// The smallest schedule that was found, within a time. `fails` tells whether a schedule does.
pub(crate) fn shrink(schedule: &[Step], within: Duration, fails: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let began = Instant::now();
    let mut smallest = schedule.to_vec();
    let mut part = smallest.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        let mut smaller = false;
        while from < smallest.len() {
            if began.elapsed() > within {
                return smallest;
            }
            let without: Vec<Step> =
                smallest.iter().enumerate().filter(|(at, _)| !(from..from + part).contains(at)).map(|(_, step)| step.clone()).collect();
            if fails(&without) {
                smallest = without;
                smaller = true;
            } else {
                from += part;
            }
        }
        if part == 1 && !smaller {
            break;
        }
        part = if part == 1 { 1 } else { part / 2 };
    }
    smallest
}
