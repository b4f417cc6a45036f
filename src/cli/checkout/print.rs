//! The records of one repo as JSON lines.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::report::say;
use crate::consumer::CollectionFilter;
use crate::repo::{Checkout, CheckoutError, Leaves, Records, json, record};

/// What became of the records of a repo.
#[derive(Debug, Default)]
pub(super) struct Printed {
    pub(super) records: u64,
    pub(super) dropped: u64,
}

/// Why a repo was not printed, or not all of it.
#[derive(Debug)]
pub(super) enum PrintError {
    Repo(CheckoutError),
    Out(io::Error),
    /// The program ends.
    Stopped,
}

impl From<CheckoutError> for PrintError {
    fn from(error: CheckoutError) -> Self {
        Self::Repo(error)
    }
}

/// Prints all records, once the whole tree has been walked without finding anything wrong. Looks at `stop` between any two of them.
pub(super) fn print(
    checkout: &Arc<Checkout>,
    filter: &CollectionFilter,
    out: &mut (dyn Write + Send),
    stop: &AtomicBool,
) -> Result<Printed, PrintError> {
    let going_on = || if stop.load(Ordering::Relaxed) { Err(PrintError::Stopped) } else { Ok(()) };
    let mut leaves = Leaves::new();
    let mut rehearsal = checkout.walk();
    while rehearsal.next(&mut leaves, 4096)? {
        going_on()?;
    }

    let (did, rev) = (checkout.commit().did(), checkout.commit().rev());
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let mut printed = Printed::default();
    let (mut walk, mut wanted, mut records, mut line) = (checkout.walk(), Vec::new(), Records::new(), Vec::new());
    while walk.next(&mut leaves, 512)? {
        for dropped in leaves.dropped() {
            say(format_args!("{did}: record {:?} dropped: {}", dropped.key, dropped.fault));
            printed.dropped += 1;
        }
        wanted.clear();
        wanted.extend((0u32..).zip(leaves.iter()).filter(|(_, leaf)| filter.takes(leaf.path.collection())).map(|(at, _)| at));
        walk.read(&leaves, &wanted, &mut records)?;
        for (leaf, bytes) in wanted.iter().filter_map(|at| leaves.get(*at as usize)).zip(records.iter()) {
            going_on()?;
            line.clear();
            // DIDs, revs, paths and CIDs hold no character that JSON would have to escape.
            let head = write!(line, r#"{{"did":"{did}","rev":"{rev}","path":"{}","cid":"{}","record":"#, leaf.path, leaf.link);
            head.map_err(PrintError::Out)?;
            match record::check(bytes).and_then(|()| json::write(bytes, &mut line)) {
                Ok(()) => {
                    line.extend_from_slice(b"}\n");
                    out.write_all(&line).map_err(PrintError::Out)?;
                    printed.records += 1;
                }
                Err(fault) => {
                    say(format_args!("{did}: record {} dropped: {fault}", leaf.path));
                    printed.dropped += 1;
                }
            }
        }
    }
    out.flush().map_err(PrintError::Out)?;
    Ok(printed)
}
