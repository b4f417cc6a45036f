//! A process that stops in the middle of making a database, after each of the statements that do it.

use std::os::unix::process::ExitStatusExt;

use crate::child::{self, Place};
use crate::ground::{self, Ground};

/// Statements that make a database, at least; at most so many are expected.
const STATEMENTS: std::ops::Range<u64> = 5..200;
const SIGABRT: i32 = 6;

/// Stops after the first statement of a new database, after the second of another, and so on to the last; each is opened again, and is sound.
/// With a step above 1 it leaves out some of them.
pub(crate) fn walk(make: fn(&str) -> Option<Ground>, step: usize) {
    for times in (1..STATEMENTS.end).step_by(step) {
        let Some(ground) = make("opening") else { return };
        let place = Place { name: "opening", times, file: ground.file("stopped") };
        let status = child::start(&ground.db(), &place, None, &ground.file("log")).wait().expect("it ends");
        let stopped = place.file.exists();
        if !stopped {
            assert!(status.success(), "it ended in another way: {status}");
            assert!(times > STATEMENTS.start, "only {times} statements make a database");
            return;
        }
        assert_eq!(status.signal(), Some(SIGABRT));
        drop(ground::open(&ground.db()).unwrap_or_else(|error| panic!("stopped after {times} statements it does not open: {error:?}")));
        let check = ground.check().expect("it has its schema");
        assert!(check.is_sound(), "stopped after {times} statements: {:?}", check.faults);
    }
    panic!("there is no end of statements");
}
