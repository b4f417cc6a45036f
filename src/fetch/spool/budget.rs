use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes all spools together may hold in memory. Cloning shares it.
///
/// Nobody waits for it: a spool that is granted no more goes on in a temporary file, so that no checkout can wait for another.
#[derive(Debug, Clone)]
pub struct SpoolBudget {
    left: Arc<AtomicU64>,
}

impl SpoolBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)) }
    }

    /// How many bytes are left.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
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
