use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Gate, lock};
use crate::consumer::{Delivery, Handler, HandlerError, Record};
use crate::job::Account;
use crate::syntax::{Did, RecordPathRef, Rev};

/// One way in which a consumer fails. It strikes a delivery, or what is told of an account.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum HandlerFault {
    /// An error, before the handler sees anything: a database that is not to be reached. It comes again.
    Refuse,
    /// The handler takes it, and an error is returned all the same: the acknowledgement is lost, as when the process dies before it is recorded.
    /// All of it comes again, so that a handler shows whether it bears that.
    Lose,
    /// A panic, before the handler sees anything. It comes again.
    Panic,
    /// The handler takes it, and the acknowledgement is held back until the gate is open. A backfiller that is stopped meanwhile has the delivery
    /// in doubt, and the next one brings it again.
    Hold(Gate),
}

/// A handler that fails when a test wants it to, around one that does not.
///
/// Without faults it is the handler within.
pub struct FaultyHandler<H> {
    handler: H,
    faults: Mutex<Vec<(HandlerFault, u64)>>,
    fired: AtomicU64,
    taken: AtomicU64,
}

impl<H: Handler> FaultyHandler<H> {
    /// Around a handler; a shared one is given as an [`Arc`](std::sync::Arc).
    pub fn new(handler: H) -> Self {
        Self { handler, faults: Mutex::default(), fired: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// The handler within.
    pub fn inner(&self) -> &H {
        &self.handler
    }

    /// Has a fault strike the next deliveries, so many times, once the faults before it are used up.
    pub fn inject(&self, fault: HandlerFault, times: u64) {
        lock(&self.faults).push((fault, times));
    }

    /// Ends all faults; what is held back at a gate waits on.
    pub fn heal(&self) {
        lock(&self.faults).clear();
    }

    /// How often a fault struck.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Acquire)
    }

    /// How many deliveries the handler within took, whatever was answered then.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// The fault whose turn it is; counts it.
    fn pick(&self) -> Option<HandlerFault> {
        let mut faults = lock(&self.faults);
        faults.retain(|(_, left)| *left > 0);
        let (fault, left) = faults.first_mut()?;
        *left -= 1;
        self.fired.fetch_add(1, Ordering::AcqRel);
        Some(fault.clone())
    }

    /// Has the handler within act, as far as the fault whose turn it is lets it; `lose` undoes what the handler may have noted as acknowledged.
    async fn through(&self, act: impl Future<Output = Result<(), HandlerError>>, lose: impl FnOnce()) -> Result<(), HandlerError> {
        let fault = self.pick();
        match &fault {
            Some(HandlerFault::Refuse) => return Err("the handler was told to fail".into()),
            Some(HandlerFault::Panic) => panic!("the handler was told to panic"),
            Some(HandlerFault::Lose | HandlerFault::Hold(_)) | None => {}
        }
        act.await?;
        self.taken.fetch_add(1, Ordering::AcqRel);
        match fault {
            Some(HandlerFault::Lose) => {
                lose();
                Err("the acknowledgement was told to be lost".into())
            }
            Some(HandlerFault::Hold(gate)) => {
                gate.pass().await;
                Ok(())
            }
            Some(HandlerFault::Refuse | HandlerFault::Panic) | None => Ok(()),
        }
    }
}

impl<H: Handler> Handler for FaultyHandler<H> {
    async fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.through(self.handler.create(did, rev, record), || ()).await
    }

    async fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.through(self.handler.update(did, rev, record), || ()).await
    }

    async fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        self.through(self.handler.delete(did, rev, path), || ()).await
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        self.through(self.handler.account(did, account), || ()).await
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        // A handler without a batch of its own would be spared the changes that it has taken.
        self.through(self.handler.batch(delivery), || delivery.forget_acknowledged()).await
    }
}

impl<H> fmt::Debug for FaultyHandler<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyHandler").field("faults", &*lock(&self.faults)).field("fired", &self.fired).finish_non_exhaustive()
    }
}
