use std::sync::Arc;

use tokio::sync::watch;

/// Holds bodies back until a test lets them go ([`super::Fault::Hold`]), and tells the test that they have come so far: what happens
/// "during a checkout" can so be made to happen then, without a look at any clock. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    open: watch::Sender<bool>,
    reached: watch::Sender<u64>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate that is shut.
    pub fn new() -> Self {
        Self(Arc::new(Inner { open: watch::Sender::new(false), reached: watch::Sender::new(0) }))
    }

    /// Lets through those that wait, and those that come later.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Shuts it for those that come later.
    pub fn shut(&self) {
        self.0.open.send_replace(false);
    }

    /// Waits until this many bodies in all have come to the gate.
    pub async fn reached(&self, bodies: u64) {
        // The sender is kept by this gate, so that this cannot fail.
        _ = self.0.reached.subscribe().wait_for(|reached| *reached >= bodies).await;
    }

    /// Comes to the gate and waits until it is open.
    pub(in crate::sim) async fn pass(&self) {
        self.0.reached.send_modify(|reached| *reached += 1);
        _ = self.0.open.subscribe().wait_for(|open| *open).await;
    }
}
