//! Tells the consumer what became of an account, before anything else of its repo is delivered.

use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::deliver::{self, Undelivered};
use crate::job::Job;
use crate::store::StoreError;

/// Why not everything was told. It is still to be told.
#[derive(Debug)]
pub(super) enum Untold {
    /// The handler did not acknowledge, or the program stops.
    Undelivered(Undelivered),
    /// The store failed.
    Store(StoreError),
}

/// Tells everything of [`Job::untold`], in order, and returns the job as it then is; none when it is gone. Whoever calls this has the repo open.
pub(super) async fn tell_account(core: &Core, mut job: Job, stop: &CancellationToken) -> Result<Option<Job>, Untold> {
    while let Some(&account) = job.untold.first() {
        deliver::tell(core, &job.did, account, stop).await.map_err(Untold::Undelivered)?;
        core.store.told(job.id, account).await.map_err(Untold::Store)?;
        match core.store.job(core.consumer, &job.did).await.map_err(Untold::Store)? {
            Some(now) => job = now,
            None => return Ok(None),
        }
    }
    Ok(Some(job))
}
