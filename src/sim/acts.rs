//! What can be done to a world: each act is told by the hosts it concerns ([`super::Network::relay_firehose_url`]), in the order of the acts.
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::account::Account;
use super::firehose::{Body, commit_event, first_commit, identity, standing_at, status};
use super::repo::{Change, Repo, WriteError};
use super::world::Snapshot;
use super::{AccountStatus, World, names, write};
use crate::job::{Op, OpAction, OpSet};
use crate::syntax::{Did, Rev};

impl World {
    /// Makes one commit of `changes` (none: a commit that only proves a key) at the next rev of the clock.
    ///
    /// When it returns, the host serves the new commit. The op set is what a firehose tells: hand it to the library, or let it come from there.
    ///
    /// # Errors
    /// When the changes do not fit the repo; nothing is written then.
    pub fn write(&self, did: &Did, changes: Vec<Change>) -> Result<OpSet, WriteError> {
        self.write_with(did, |_| (self.clock().tick(), changes))
    }

    /// The same at a rev of the caller's choice, which must be higher than the repo's.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_at(&self, did: &Did, rev: Rev, changes: Vec<Change>) -> Result<OpSet, WriteError> {
        self.write_with(did, |_| (rev, changes))
    }

    pub(super) fn write_with(&self, did: &Did, decide: impl FnOnce(&Repo) -> (Rev, Vec<Change>)) -> Result<OpSet, WriteError> {
        let account = self.account(did).ok_or_else(|| WriteError::UnknownRepo(did.clone()))?;
        let mut repo = account.repo();
        let (rev, changes) = decide(&repo);
        self.write_held(&account, &mut repo, rev, changes, Vec::new())
    }

    /// Writes to a repo that is held. What was done before it is told first.
    fn write_held(
        &self,
        account: &Arc<Account>,
        repo: &mut Repo,
        rev: Rev,
        changes: Vec<Change>,
        mut before: Vec<Body>,
    ) -> Result<OpSet, WriteError> {
        let written = repo.write(rev, changes, &account.key())?;
        self.count(&written.op_set.ops);
        let logs = self.logs();
        if !logs.is_empty() {
            before.push(Body::Commit(commit_event(repo, &written)));
            self.tell(&logs, account, account.standing().host, &before);
        }
        Ok(written.op_set)
    }

    fn count(&self, ops: &[Op]) {
        for op in ops {
            match op.action {
                OpAction::Create { .. } => _ = self.records.fetch_add(1, Ordering::Relaxed),
                OpAction::Delete => _ = self.records.fetch_sub(1, Ordering::Relaxed),
                OpAction::Update { .. } => {}
            }
        }
    }

    /// Adds an account with a repo of no records at a host (modulo their number), while the network runs.
    pub fn add_account(&self, host: usize) -> Did {
        let mut accounts = write(&self.accounts);
        let index = accounts.all.len() as u64;
        let did = names::plc(self.seed, index);
        let account = Account::new(self.seed, index, did.clone(), host % self.hosts(), 0, Arc::clone(&self.collections));
        let account = accounts.add(account);
        let logs = self.logs();
        if !logs.is_empty() {
            // Held before any writer can see the account, so that its first commit is told first.
            let mut repo = account.repo();
            drop(accounts);
            let mut bodies = vec![identity(&account)];
            bodies.extend(status(AccountStatus::Active));
            bodies.push(Body::Commit(first_commit(&mut repo)));
            bodies.push(standing_at(&repo));
            self.tell(&logs, &account, host % self.hosts(), &bodies);
        }
        did
    }

    /// Sets what the host says of an account. Unknown accounts are left alone, here and below.
    ///
    /// It is told as `#account`; of an account that was deactivated, deleted or not found and is active now also `#identity` and `#sync`. Nobody tells
    /// that a host does not have an account any more ([`AccountStatus::NotFound`]).
    pub fn set_status(&self, did: &Did, now: AccountStatus) {
        let Some(account) = self.account(did) else { return };
        let logs = self.logs();
        if logs.is_empty() {
            account.set_status(now);
            return;
        }
        let repo = account.repo();
        let standing = account.standing();
        account.set_status(now);
        let mut bodies: Vec<Body> = status(now).into_iter().collect();
        let was_away = matches!(standing.status, AccountStatus::Deactivated | AccountStatus::Deleted | AccountStatus::NotFound);
        if was_away && now == AccountStatus::Active {
            bodies.extend([identity(&account), standing_at(&repo)]);
        }
        self.tell(&logs, &account, standing.host, &bodies);
    }

    /// Gives an account another handle. It is told as `#identity`.
    pub fn set_handle(&self, did: &Did, handle: &str) {
        let Some(account) = self.account(did) else { return };
        let _repo = account.repo();
        account.set_handle(handle);
        self.tell(&self.logs(), &account, account.standing().host, &[identity(&account)]);
    }

    /// Moves an account to another host: its document names the new one, the old one says that it is deactivated. Its key stays.
    ///
    /// The new host tells `#identity`, `#account` and `#sync`; the old one `#account`, which no relay carries.
    pub fn move_account(&self, did: &Did, host: usize) {
        let Some(account) = self.account(did) else { return };
        let repo = account.repo();
        let host = host % self.hosts();
        let former = account.standing().host;
        account.move_to(host);
        self.tell_move(&account, former, |bodies| bodies.push(standing_at(&repo)));
    }

    /// Moves an account as people do: the new host has a key of its own, which it proves with an empty commit. The op set of that is returned.
    ///
    /// It is told as [`Self::move_account`] is, the `#sync` being that of the new commit.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn migrate(&self, did: &Did, host: usize) -> Result<OpSet, WriteError> {
        let account = self.account(did).ok_or_else(|| WriteError::UnknownRepo(did.clone()))?;
        let mut repo = account.repo();
        let former = account.standing().host;
        account.move_to(host % self.hosts());
        account.rotate_key();
        let written = repo.write(self.clock().tick(), Vec::new(), &account.key())?;
        self.tell_move(&account, former, |bodies| bodies.push(standing_at(&repo)));
        Ok(written.op_set)
    }

    /// Tells that an account moved: identity, status, then what `more` adds; and what the former host says.
    fn tell_move(&self, account: &Arc<Account>, former: usize, more: impl FnOnce(&mut Vec<Body>)) {
        let logs = self.logs();
        if logs.is_empty() {
            return;
        }
        let standing = account.standing();
        let mut bodies = vec![identity(account)];
        bodies.extend(status(standing.status));
        more(&mut bodies);
        self.tell(&logs, account, standing.host, &bodies);
        if former != standing.host {
            self.tell(&logs, account, former, &status(AccountStatus::Deactivated).into_iter().collect::<Vec<_>>());
        }
    }

    /// Gives an account another key and proves it with an empty commit, whose op set is returned. It is told as `#identity` and `#commit`.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn rotate_key(&self, did: &Did) -> Result<OpSet, WriteError> {
        let account = self.account(did).ok_or_else(|| WriteError::UnknownRepo(did.clone()))?;
        let mut repo = account.repo();
        account.rotate_key();
        let before = vec![identity(&account)];
        self.write_held(&account, &mut repo, self.clock().tick(), Vec::new(), before)
    }

    /// Keeps the export of now as what a stale replica serves ([`super::Fault::StaleReplica`]).
    pub fn remember(&self, did: &Did) {
        if let Some(account) = self.account(did) {
            let mut repo = account.repo();
            repo.remembered = repo.export();
        }
    }

    /// The repo as it is now, to be restored later.
    pub fn snapshot(&self, did: &Did) -> Option<Snapshot> {
        Some(Snapshot(self.account(did)?.repo().clone()))
    }

    /// Puts a repo back to a snapshot of it, as a host does that was restored from a backup. Its rev goes back. Nobody tells it: [`Self::announce`] does.
    pub fn restore(&self, did: &Did, snapshot: &Snapshot) {
        let Some(account) = self.account(did) else { return };
        let mut repo = account.repo();
        self.records.fetch_add(snapshot.0.leaves.len() as u64, Ordering::Relaxed);
        self.records.fetch_sub(repo.leaves.len() as u64, Ordering::Relaxed);
        *repo = snapshot.0.clone();
    }

    /// Has the account's host tell where the repo stands (`#sync`), as hosts do after a repair.
    pub fn announce(&self, did: &Did) {
        let (Some(account), logs) = (self.account(did), self.logs()) else { return };
        let repo = account.repo();
        self.tell(&logs, &account, account.standing().host, &[standing_at(&repo)]);
    }
}
