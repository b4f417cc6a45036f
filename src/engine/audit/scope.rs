//! Which jobs an audit of this process looks at: all, or, where several share a store, those of the hosts that it has and that no other has audited.

use std::collections::HashMap;

use super::super::core::Core;
use crate::store::{AuditId, Share, StoreError};

/// The hosts of an audit. None: all.
pub(super) struct Scope(Option<HashMap<Share, u64>>);

impl Scope {
    pub(super) async fn of(core: &Core, audit: AuditId) -> Result<Self, StoreError> {
        let Some(fleet) = core.store.fleet() else { return Ok(Self(None)) };
        let shares = fleet.unaudited(core.consumer, audit).await?;
        Ok(Self(Some(shares.into_iter().filter_map(|share| core.shares.tenure(&share).map(|tenure| (share, tenure))).collect())))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(HashMap::is_empty)
    }

    /// Whether the jobs of a host, or those without one, are looked at.
    pub(super) fn holds(&self, host: Option<&str>) -> bool {
        self.0.as_ref().is_none_or(|shares| shares.contains_key(&host.map_or(Share::Unplaced, |name| Share::Host(name.to_owned()))))
    }

    /// Whether all jobs are looked at.
    pub(super) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Those that this process has had without a break.
    pub(super) fn kept(&self, core: &Core) -> Vec<Share> {
        let shares = self.0.iter().flatten();
        shares.filter(|(share, tenure)| core.shares.tenure(share) == Some(**tenure)).map(|(share, _)| share.clone()).collect()
    }
}
