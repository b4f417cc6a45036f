//! The spool: takes the bytes of one repo as they arrive, hashing every block, and keeps them until the checkout is done.

mod budget;
mod second;
mod shelf;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;

pub use budget::SpoolBudget;
use second::{Hashed, SecondThread, WORTH_IT};
use shelf::Shelf;

use crate::repo::{Checkout, CheckoutError, Intake, Limits, Segment};

/// What a [`Spool`] may use and accept.
#[derive(Debug, Clone)]
pub struct SpoolOptions {
    /// Bytes of one repo kept in memory, beside what the budget of all spools allows. 32 MiB: all but some per mille of repos fit.
    /// Above it a repo lies in a temporary file.
    pub memory_limit: u64,
    /// The largest repo accepted, in bytes. 4 GiB: ten million records, more than repos are meant to have.
    pub max_bytes: u64,
    /// The most blocks accepted. Each takes about 25 bytes of memory beside the spool. 16 million: enough for `max_bytes` of usual records.
    pub max_blocks: u64,
    /// Bytes in the file that do not belong to the repo, beyond as many again as belong to it. 64 MiB.
    pub max_unrelated: u64,
    /// Whether a repo of more than 4 MiB is hashed by a second thread, too. True: it hardly costs where the processors are busy with other repos.
    pub second_thread: bool,
    /// The directory for temporary files; none for the system's.
    pub directory: Option<PathBuf>,
}

impl Default for SpoolOptions {
    fn default() -> Self {
        Self {
            memory_limit: 32 << 20,
            max_bytes: 4 << 30,
            max_blocks: 16 << 20,
            max_unrelated: 64 << 20,
            second_thread: true,
            directory: None,
        }
    }
}

/// The bytes of one repo, arriving.
///
/// ```
/// # use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
/// let budget = SpoolBudget::new(256 << 20);
/// let mut spool = Spool::new(SpoolOptions::default(), &budget);
/// let refused = spool.push(b"<!DOCTYPE html>").unwrap_err();
/// assert_eq!(refused.to_string(), "the body is not a CAR file of version 1: it begins as text does");
/// ```
#[derive(Debug)]
pub struct Spool {
    intake: Intake,
    max_bytes: u64,
    /// Bytes pushed.
    bytes: u64,
    /// The beginning of the file, until the header is whole; none afterwards.
    head: Option<Vec<u8>>,
    segment: Segment,
    /// Segments on their way to the shelf, in order.
    passing: VecDeque<Passing>,
    second: Second,
    shelf: Shelf,
}

/// A full segment.
#[derive(Debug)]
enum Passing {
    /// With the second thread.
    Away,
    /// Hashed by this one, behind one that is away.
    Hashed(Hashed),
}

/// Segments that may be on their way, beside those that the budget counts. Enough that neither thread waits for the other.
const MOST_PASSING: usize = 6;

#[derive(Debug)]
enum Second {
    /// Not yet worth it.
    Idle,
    Running(SecondThread),
    /// Not wanted, or not to be had.
    Never,
}

impl Spool {
    /// An empty spool.
    pub fn new(options: SpoolOptions, budget: &SpoolBudget) -> Self {
        let limits = Limits { blocks: options.max_blocks, unrelated: options.max_unrelated };
        Self {
            intake: Intake::new(limits),
            // Addresses end at 2^40, and the segments have gaps.
            max_bytes: options.max_bytes.min(1 << 39),
            bytes: 0,
            head: Some(Vec::new()),
            segment: Segment::new(0, 0, Vec::new()),
            passing: VecDeque::new(),
            second: if options.second_thread { Second::Idle } else { Second::Never },
            shelf: Shelf::new(budget.share(), options.memory_limit, options.directory),
        }
    }

    /// How many bytes were pushed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the repo outgrew its memory and lies in a file.
    pub fn is_on_disk(&self) -> bool {
        self.shelf.is_on_disk()
    }

    /// Takes the next bytes of the file, however they were cut. Hashes what has become whole, about 1 ms of work for each MB, and may write to a file.
    ///
    /// # Errors
    /// On the first thing that is wrong; the spool is of no use then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CheckoutError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.max_bytes {
            return Err(CheckoutError::TooLarge { limit: self.max_bytes });
        }
        match self.head.take() {
            None => self.fill(bytes),
            Some(mut head) => {
                head.extend_from_slice(bytes);
                match self.intake.header(&head)? {
                    Some(len) => {
                        self.segment = Segment::new(0, len as u64, self.shelf.buffer());
                        self.fill(&head[len..])
                    }
                    None => {
                        self.head = Some(head);
                        Ok(())
                    }
                }
            }
        }
    }

    /// The file is whole: what it holds.
    ///
    /// # Errors
    /// When it ends too early, or has no valid commit.
    pub fn finish(mut self) -> Result<Checkout, CheckoutError> {
        if let Some(head) = &self.head {
            return Err(if head.is_empty() { CheckoutError::Empty } else { CheckoutError::Cut { offset: 0 } });
        }
        if let (offset, 1..) = self.segment.rest() {
            return Err(CheckoutError::Cut { offset });
        }
        let last = self.segment.split(Vec::new());
        let last = std::mem::replace(&mut self.segment, last);
        self.keep(last)?;
        self.settle(0)?;
        self.intake.finish(Box::new(self.shelf))
    }

    fn fill(&mut self, mut bytes: &[u8]) -> Result<(), CheckoutError> {
        while !bytes.is_empty() {
            let taken = self.segment.fill(bytes);
            bytes = &bytes[taken..];
            self.intake.scan(&mut self.segment, &self.shelf)?;
            if self.segment.is_full() {
                let next = self.segment.split(self.shelf.buffer());
                let full = std::mem::replace(&mut self.segment, next);
                self.keep(full)?;
                self.intake.scan(&mut self.segment, &self.shelf)?;
            }
        }
        Ok(())
    }

    /// Takes a full segment: has it hashed, here or on the second thread, and puts those that are ready onto the shelf.
    fn keep(&mut self, segment: Segment) -> Result<(), CheckoutError> {
        if segment.is_empty() {
            return Ok(());
        }
        if matches!(self.second, Second::Idle) && self.bytes > WORTH_IT {
            self.second = SecondThread::start(self.intake.verifier()).map_or(Second::Never, Second::Running);
        }
        let segment = match &self.second {
            Second::Running(second) => second.offer(segment),
            Second::Idle | Second::Never => Err(segment),
        };
        match segment {
            Ok(()) => self.passing.push_back(Passing::Away),
            Err(segment) => {
                let verified = self.intake.verifier().verify(&segment);
                self.passing.push_back(Passing::Hashed((segment, verified)));
            }
        }
        self.settle(MOST_PASSING)
    }

    /// Puts segments onto the shelf, in order, until no more than so many are on their way, waiting for those that are away.
    fn settle(&mut self, most: usize) -> Result<(), CheckoutError> {
        while self.passing.len() > most || matches!(self.passing.front(), Some(Passing::Hashed(_))) {
            let Some(passing) = self.passing.pop_front() else { return Ok(()) };
            let hashed = match (passing, &self.second) {
                (Passing::Hashed(hashed), _) => Some(hashed),
                (Passing::Away, Second::Running(second)) => second.take(),
                (Passing::Away, Second::Idle | Second::Never) => None,
            };
            let gone = || CheckoutError::local("hash on a second thread")(io::ErrorKind::BrokenPipe.into());
            let (segment, verified) = hashed.ok_or_else(gone)?;
            self.intake.absorb(&verified?);
            self.shelf.put(segment.address(), segment.into_bytes())?;
        }
        Ok(())
    }
}
