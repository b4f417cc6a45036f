use std::sync::atomic::{AtomicU64, Ordering};

use super::core::Core;
use super::follow::FollowProgress;
use crate::store::{AuditState, StoreError, Totals};

/// How far a backfiller is: what its store holds, and what this process has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Jobs by state, records in the manifests, op sets in the buffers: read from the store.
    pub totals: Totals,
    /// The audit that is due or under way. Of all jobs, which the sum of the states is, it is done with [`AuditState::passed`].
    pub audit: Option<AuditState>,
    /// Since the start of this process.
    pub counts: Counts,
    /// The firehoses; none when op sets are only handed in.
    pub follow: Option<FollowProgress>,
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened since the start of this process. Each number only rises.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, counting.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            pub(super) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Counts {
            /// Every count with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    /// Checkouts that ended with a complete job.
    checkouts_completed,
    /// Checkouts that failed and will be tried again.
    checkouts_failed,
    /// Checkouts after which the repo had to be enqueued again: a gap, or more op sets than the buffer may hold.
    checkouts_repeated,
    /// Bytes of repos received from hosts, before they were unpacked by HTTP.
    checkout_bytes,
    /// Requests that a host turned down for load. Not an attempt of the job.
    refused,
    /// Repos whose account is not to be had.
    unavailable,
    /// Creates that the handler acknowledged.
    records_created,
    /// Updates that the handler acknowledged.
    records_updated,
    /// Deletes that the handler acknowledged.
    records_deleted,
    /// Changes that the handler rejected.
    records_rejected,
    /// Account changes that the handler acknowledged.
    accounts_told,
    /// Account changes that the handler rejected.
    accounts_rejected,
    /// Records dropped alone: not well-formed, too large, or at an impossible path.
    records_bad,
    /// Frames that came over firehoses. Each is counted in exactly one of the seven that follow.
    events_received,
    /// Of those, events that were taken in because their repo is followed.
    events_taken,
    /// Of repos that are not followed.
    events_untracked,
    /// That came before on the same upstream.
    events_repeated,
    /// Of a kind that this program does not know.
    events_unknown,
    /// With a field that is missing or not valid.
    events_malformed,
    /// That are no frames at all; each ends its connection.
    events_unreadable,
    /// Messages of an upstream about itself.
    events_passed,
    /// Of those taken, commits that another upstream told first, or that came again. Every event that was taken is one of these, of the next four, or an op
    /// set handed in.
    events_known,
    /// Not true: dropped alone. [`FollowProgress::dropped`](super::FollowProgress) tells why.
    events_dropped,
    /// Could not be told true from false: their repos are checked out again. [`FollowProgress::gaps`](super::FollowProgress) tells why.
    events_lost,
    /// Of accounts.
    accounts_received,
    /// Of identities.
    identities_received,
    /// Account events that changed something.
    accounts_changed,
    /// Repos added because a firehose told of them.
    repos_seen,
    /// Op sets handed in. Each is counted in exactly one of the seven that follow.
    op_sets_received,
    /// Put into a buffer.
    op_sets_buffered,
    /// Not kept: the job or its buffer had it already.
    op_sets_stale,
    /// Not kept: the job waits for a checkout, which will contain it.
    op_sets_discarded,
    /// Not kept: it did not start where the job stood, or the buffer was full; the repo is checked out again.
    op_sets_gap,
    /// Not kept: the account is unavailable.
    op_sets_unavailable,
    /// Not kept: the account was unavailable; the repo is checked out again, if its host has it.
    op_sets_rearming,
    /// Not kept: the repo has no job.
    op_sets_unknown,
    /// Of those buffered, delivered and acknowledged.
    op_sets_flushed,
    /// Of those buffered, found in the checkout when flushing.
    op_sets_overtaken,
    /// Ops of the op sets that were buffered.
    ops_buffered,
    /// Ops of the op sets that were flushed and acknowledged.
    ops_flushed,
    /// Ops of the op sets flushed that the consumer does not take.
    ops_filtered,
    /// Ops of the op sets flushed whose record is not well-formed.
    ops_bad,
    /// Acts upon the store that failed. Each is tried again, unless the store is unusable.
    store_failures,
    /// Older revs accepted because the account's own host confirmed them (I8).
    restored,
    /// Jobs that audits are done with: of complete and unavailable repos, those that follow included.
    audited,
    /// Of those audited, checked out again because the repo or its account has moved.
    audit_moved,
    /// Of those audited, checked out again because no host had a word on them that makes sense.
    audit_failed,
}

/// Adds to a counter.
pub(super) fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

pub(super) async fn progress(core: &Core) -> Result<Progress, StoreError> {
    let (store, consumer) = (&core.store, core.consumer);
    // The audit first: what it has enqueued by its end is in the totals.
    let audit = store.audit(consumer).await?;
    let follow = core.follow.as_ref().map(|follow| follow.progress());
    Ok(Progress { totals: store.totals(consumer).await?, audit, counts: core.counters.read(), follow })
}
