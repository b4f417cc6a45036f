//! Delivers a checkout: several deliveries are with the handler at once, and the manifest follows in their order.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use super::checkout_plan::{CheckoutBatch, CheckoutPlan, PlanError, PlanRules};
use super::core::Core;
use super::deliver::{Undelivered, deliver};
use super::flush::Claim;
use super::progress::add;
use crate::repo::Checkout;
use crate::store::{Advance, IntentId, ManifestChange, Standing, StoreError};
use crate::syntax::RecordPath;

/// Chunks of the manifest that are read at once: about 200 KB.
const PAGE: usize = 16;

/// Why a checkout was not delivered to its end. What was acknowledged is recorded, or is an intent.
#[derive(Debug)]
pub(super) enum Interrupted {
    /// The repo turned out not to be what it must be.
    Plan(PlanError),
    /// The handler did not acknowledge.
    Handler(String),
    /// The program stops.
    Stopped,
    /// The job is gone or another claim acts on it.
    Superseded,
    /// The store failed.
    Store(StoreError),
    /// A thread of this program died.
    Local(JoinError),
}

/// What a delivery leaves to be recorded once all before it are.
#[derive(Debug)]
struct Acknowledged {
    manifest: ManifestChange,
    intent: IntentId,
}

type Window = FuturesOrdered<JoinHandle<Result<Acknowledged, Interrupted>>>;

/// Returns once the handler has acknowledged all that the consumer lacks and the manifest says so.
pub(super) async fn deliver_checkout(core: &Arc<Core>, claim: &Arc<Claim>, checkout: Arc<Checkout>) -> Result<(), Interrupted> {
    let in_doubt = core.store.in_doubt(claim.job).await.map_err(Interrupted::Store)?;
    let (planned_tx, planned_rx) = mpsc::channel(core.options.parallel_deliveries.get());
    let planner = spawn_planner(core, claim, checkout, in_doubt, planned_tx);
    let delivered = deliver_planned(core, claim, planned_rx).await;
    // The receiver is gone, so a planner that was not at its end ends now.
    let planned = planner.await.map_err(Interrupted::Local)?;
    delivered?;
    planned.map_err(|error| match error {
        PlanError::Store(error) => Interrupted::Store(error),
        error => Interrupted::Plan(error),
    })
}

fn spawn_planner(
    core: &Arc<Core>,
    claim: &Arc<Claim>,
    checkout: Arc<Checkout>,
    in_doubt: Vec<RecordPath>,
    planned: mpsc::Sender<CheckoutBatch>,
) -> JoinHandle<Result<(), PlanError>> {
    let (store, job) = (Arc::clone(&core.store), claim.job);
    let options = &core.options;
    let rules = PlanRules {
        filter: options.collections.clone(),
        max_changes: options.delivery_records.get(),
        parallel: options.parallel_record_creates.get().div_ceil(options.parallel_deliveries.get()),
    };
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut page = |after: Option<RecordPath>| runtime.block_on(store.manifest(job, after.as_ref(), PAGE));
        let mut plan = CheckoutPlan::new(rules, &checkout, in_doubt);
        while let Some(batch) = plan.next(&mut page)? {
            if planned.blocking_send(batch).is_err() {
                break;
            }
        }
        Ok(())
    })
}

/// Keeps the window of deliveries full, and records in their order those that are acknowledged. On any failure it starts nothing more, and
/// waits for what is with the handler.
async fn deliver_planned(core: &Arc<Core>, claim: &Arc<Claim>, mut planned: mpsc::Receiver<CheckoutBatch>) -> Result<(), Interrupted> {
    let mut window = Window::new();
    let mut open = true;
    let mut interrupted = None;
    while open || !window.is_empty() {
        tokio::select! {
            () = claim.stop.cancelled(), if open => {
                open = false;
                interrupted = Some(Interrupted::Stopped);
            }
            batch = planned.recv(), if open && window.len() < core.options.parallel_deliveries.get() => match batch {
                Some(batch) => window.push_back(spawn_delivery(core, claim, batch)),
                None => open = false,
            },
            Some(ended) = window.next() => {
                let outcome = match ended {
                    // Behind one that failed, too: the manifest is what was acknowledged, and the next checkout fills the hole.
                    Ok(Ok(acknowledged)) => record(core, claim, acknowledged).await,
                    Ok(Err(reason)) => Err(reason),
                    Err(died) => Err(Interrupted::Local(died)),
                };
                if let Err(reason) = outcome {
                    open = false;
                    interrupted = Some(reason);
                }
            }
        }
    }
    interrupted.map_or(Ok(()), Err)
}

fn spawn_delivery(core: &Arc<Core>, claim: &Arc<Claim>, batch: CheckoutBatch) -> JoinHandle<Result<Acknowledged, Interrupted>> {
    let (core, claim) = (Arc::clone(core), Arc::clone(claim));
    core.tracker.clone().spawn(async move {
        add(&core.counters.records_bad, batch.bad);
        // Sorted by the plan, no path twice.
        let paths: Vec<RecordPath> = batch.delivery.changes().map(|change| change.path().to_owned()).collect();
        let intended = core.store.intend(claim.job, claim.epoch, &paths).await.map_err(Interrupted::Store)?;
        let Some(intent) = intended else { return Err(Interrupted::Superseded) };
        drop(paths);
        match deliver(&core, &batch.delivery, &claim.stop).await {
            Ok(()) => Ok(Acknowledged { manifest: batch.manifest, intent }),
            Err(Undelivered::Handler(failure)) => Err(Interrupted::Handler(failure)),
            Err(Undelivered::Stopped) => Err(Interrupted::Stopped),
        }
    })
}

async fn record(core: &Core, claim: &Claim, acknowledged: Acknowledged) -> Result<(), Interrupted> {
    let advance = Advance { manifest: acknowledged.manifest, intent: Some(acknowledged.intent), ..claim.advance() };
    match core.store.advance(advance).await.map_err(Interrupted::Store)? {
        Standing::Ended | Standing::Superseded => Err(Interrupted::Superseded),
        Standing::Held | Standing::Complete | Standing::Behind => Ok(()),
    }
}
