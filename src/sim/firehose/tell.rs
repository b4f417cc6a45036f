//! What becomes of an act in the world: the events that a host tells of it.
use std::sync::{Arc, Weak};

use super::{Body, Log};
use crate::sim::account::Account;
use crate::sim::repo::Repo;
use crate::sim::{AccountStatus, World, read, write};

impl World {
    /// Tells a log of everything from now on, for as long as somebody keeps it.
    pub(in crate::sim) fn tell_to(&self, log: &Arc<Log>) {
        let mut logs = write(&self.logs);
        logs.retain(|log| log.strong_count() > 0);
        logs.push(Arc::downgrade(log));
    }

    pub(in crate::sim) fn logs(&self) -> Vec<Arc<Log>> {
        read(&self.logs).iter().filter_map(Weak::upgrade).collect()
    }

    /// Says at a host what an act made, in this order.
    pub(in crate::sim) fn tell(&self, logs: &[Arc<Log>], account: &Arc<Account>, host: usize, bodies: &[Body]) {
        let micros = self.clock().micros();
        for log in logs {
            bodies.iter().for_each(|body| log.tell(account, host, micros, body));
        }
    }
}

/// What a host says of an account's identity.
pub(in crate::sim) fn identity(account: &Account) -> Body {
    Body::Identity { handle: account.handle() }
}

/// What a host says of an account's status; nothing of one that it does not know.
pub(in crate::sim) fn status(status: AccountStatus) -> Option<Body> {
    (status != AccountStatus::NotFound).then(|| Body::Account { active: status == AccountStatus::Active, status: status.word() })
}

/// The `#sync` of a repo as it is.
pub(in crate::sim) fn standing_at(repo: &Repo) -> Body {
    Body::Sync { rev: repo.rev, data: repo.data, blocks: super::slice::commit_only(repo) }
}
