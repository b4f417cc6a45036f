use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::repo::SEGMENT;

/// How many bytes all spools together may hold in memory. Cloning shares it.
///
/// Nobody waits for it: a spool that is granted no more goes on in a temporary file, so that no checkout can wait for another.
#[derive(Debug, Clone)]
pub struct SpoolBudget {
    left: Arc<AtomicU64>,
    buffers: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Buffers of segments that are kept for the next spool: fresh memory costs the kernel as much time as a third of its hashing. 16 MiB.
const KEPT_BUFFERS: usize = 64;

impl SpoolBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)), buffers: Arc::default() }
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// An empty buffer for a segment, one used before if there is any.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes buffers back, those of whole segments, as long as there is room for them.
    pub(super) fn recycle(&self, buffers: impl Iterator<Item = Vec<u8>>) {
        let mut kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT_BUFFERS.saturating_sub(kept.len());
        kept.extend(buffers.filter(|buffer| buffer.capacity() == SEGMENT).take(room).map(|mut buffer| {
            buffer.clear();
            buffer
        }));
    }

    /// A share of nothing yet, to be grown.
    pub(super) fn share(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

/// The part of a budget that one spool holds; it goes back when the share is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: SpoolBudget,
    bytes: u64,
}

impl Share {
    /// The budget that it is a share of.
    pub(super) fn budget(&self) -> &SpoolBudget {
        &self.budget
    }

    /// How many bytes it is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it larger; `false`, and nothing is changed, when the budget has not so much left.
    pub(super) fn grow(&mut self, by: u64) -> bool {
        let granted = self.budget.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(by)).is_ok();
        if granted {
            self.bytes += by;
        }
        granted
    }

    /// Gives all of it back.
    pub(super) fn release(&mut self) {
        self.budget.left.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}
