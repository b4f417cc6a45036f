use std::sync::Arc;

use crate::sim::account::Account;
use crate::sim::export::Export;
use crate::sim::fault::{Fault, Missing};
use crate::sim::{AccountStatus, RandomWrites, World};

/// What an answer about a repo is made from: the truth, or what a fault makes of it.
pub(super) struct Source {
    fault: Option<Fault>,
}

impl Source {
    pub(super) fn new(fault: Option<Fault>) -> Self {
        Self { fault }
    }

    /// The status that the host pretends, if it does.
    pub(super) fn status(&self) -> Option<AccountStatus> {
        match self.fault {
            Some(Fault::Account(status)) => Some(status),
            _ => None,
        }
    }

    /// Whether the export is read page by page while commits go on.
    pub(super) fn is_torn(&self) -> bool {
        matches!(self.fault, Some(Fault::TornExport(_)))
    }

    /// The export that is served for a true one.
    pub(super) fn alter(&self, world: &World, account: &Account, export: Arc<Export>) -> Arc<Export> {
        match &self.fault {
            Some(Fault::HeaderOnlyCar) => Arc::new(export.retain(|_, _| false)),
            Some(Fault::OtherRepo(did)) => match world.account(did) {
                Some(other) => other.repo().export(),
                None => Arc::new(export.retain(|_, _| false)),
            },
            Some(Fault::StaleReplica) => Arc::clone(&account.repo().remembered),
            Some(Fault::WrongKey) => account.repo().signed_by(&account.foreign_key()),
            Some(Fault::MissingBlock(which)) => without(account, &export, *which),
            Some(Fault::TornExport(commits)) => {
                let mut writes = RandomWrites::new(world.seed());
                for _ in 0..*commits {
                    writes.write_to(world, &account.did);
                }
                export
            }
            _ => export,
        }
    }
}

fn without(account: &Account, export: &Export, which: Missing) -> Arc<Export> {
    let (commit, data, first) = {
        let repo = account.repo();
        (repo.commit, repo.data, repo.leaves.values().next().map(|leaf| leaf.link()))
    };
    let node = export.frames().find(|(link, framed)| *link != data && is_node(framed)).map_or(data, |(link, _)| link);
    let left_out = match which {
        Missing::Commit => commit,
        Missing::Root => data,
        Missing::Node => node,
        Missing::Record => first.unwrap_or(data),
    };
    Arc::new(export.retain(|link, _| *link != left_out))
}

/// Whether a frame holds a tree node: a map of two whose first key is `e`, which no record of the simulator has.
fn is_node(framed: &[u8]) -> bool {
    let block = crate::sim::frame::iter(framed).next().map(|at| &framed[at.block..at.end]);
    block.is_some_and(|block| block.starts_with(&[0xa2, 0x61, b'e']))
}
