use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use crate::repo::{CheckoutError, Segment, Verified, Verifier};

/// Bytes of a repo after which a second thread is worth its start: some milliseconds of hashing.
pub(super) const WORTH_IT: u64 = 4 << 20;

/// Segments that wait for the second thread. Two keep it busy; more would only take memory.
const WAITING: usize = 2;

/// A segment and what hashing its blocks has shown.
pub(super) type Hashed = (Segment, Result<Vec<Verified>, CheckoutError>);

/// A thread that hashes segments beside the one that receives them. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct SecondThread {
    to: SyncSender<Segment>,
    from: Receiver<Hashed>,
}

impl SecondThread {
    /// Starts the thread; none where there is but one processor, or none can be started.
    pub(super) fn start(verifier: Verifier) -> Option<Self> {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            return None;
        }
        let (to, segments) = sync_channel::<Segment>(WAITING);
        let (hashed, from) = sync_channel(WAITING + 1);
        let run = move || {
            for segment in segments {
                let verified = verifier.verify(&segment);
                if hashed.send((segment, verified)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("spool-hash".into()).spawn(run).ok()?;
        Some(Self { to, from })
    }

    /// Hands a segment over; gives it back when enough are waiting.
    pub(super) fn offer(&self, segment: Segment) -> Result<(), Segment> {
        self.to.try_send(segment).map_err(|error| match error {
            TrySendError::Full(segment) | TrySendError::Disconnected(segment) => segment,
        })
    }

    /// The next segment that was handed over, hashed: waits for it. None when the thread is gone.
    pub(super) fn take(&self) -> Option<Hashed> {
        self.from.recv().ok()
    }
}
