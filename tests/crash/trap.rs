//! Stops the process at a place, by going on no more.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// What it means to stop.
#[derive(Debug, Clone)]
pub(crate) enum Stop {
    /// The process aborts. That it came to the place, this file says.
    Process(PathBuf),
    /// Whoever comes to any place from now on waits there for ever; this is told.
    Here(Arc<Notify>),
}

/// A place, and how often it is to be come to before the process stops there. Clones are the same trap.
#[derive(Debug, Clone)]
pub(crate) struct Trap {
    place: Arc<Mutex<String>>,
    left: Arc<AtomicI64>,
    sprung: Arc<AtomicBool>,
    stop: Stop,
}

impl Trap {
    pub(crate) fn new(place: &str, times: u64, stop: Stop) -> Self {
        let left = Arc::new(AtomicI64::new(i64::try_from(times).expect("few")));
        Self { place: Arc::new(Mutex::new(place.to_owned())), left, sprung: Arc::default(), stop }
    }

    /// Sets it at another place.
    #[allow(dead_code, reason = "the oracle does")]
    pub(crate) fn set(&self, place: &str, times: u64) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place.to_owned();
        self.left.store(i64::try_from(times).expect("few"), Ordering::SeqCst);
    }

    /// Stops the process wherever it is.
    #[allow(dead_code, reason = "the oracle does")]
    pub(crate) fn spring(&self) {
        self.sprung.store(true, Ordering::SeqCst);
    }

    /// The process is at this place.
    pub(crate) async fn reach(&self, place: &str) {
        self.reach_now(place);
        if self.sprung.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// The same for places where nobody can wait: only a process stops there.
    pub(crate) fn reach_now(&self, place: &str) {
        if place != *self.place.lock().unwrap_or_else(PoisonError::into_inner) || self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        match &self.stop {
            Stop::Process(file) => {
                // Should it not be written, the parent finds a process that aborted without having come here.
                let _ = std::fs::write(file, place);
                std::process::abort();
            }
            Stop::Here(told) => {
                self.sprung.store(true, Ordering::SeqCst);
                told.notify_one();
            }
        }
    }
}
