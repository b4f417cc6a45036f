//! What account events do to one job: pure, and the same for every store.

use super::rules::{Body, BufferAct};
use super::{AccountRoute, UpstreamId};
use crate::job::{Account, IllegalMove, JobEvent, JobState, Route, UnavailableStatus};
use crate::syntax::Seq;

/// Upstreams whose account events one job tells apart. Past it the one heard longest ago is forgotten: its replays would count again.
const UPSTREAMS: usize = 16;

const DELETED: Account = Account::Unavailable(UnavailableStatus::Deleted);

/// The account of a job's repo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    /// What was heard last.
    pub(super) account: Account,
    /// What the consumer has not acknowledged yet, in order; at most two.
    pub(super) untold: Vec<Account>,
    /// The last account event of each upstream, the one heard longest ago first.
    pub(super) seqs: Vec<(UpstreamId, Seq)>,
}

impl Known {
    /// Of a job that was just added.
    pub(super) fn new() -> Self {
        Self { account: Account::Active, untold: Vec::new(), seqs: Vec::new() }
    }

    /// Remembers what is to be told. A deletion is told whatever comes after it, because the consumer has to drop what it holds;
    /// of all else only the last counts.
    pub(super) fn learn(&mut self, account: Account) {
        if self.account == account {
            return;
        }
        self.account = account;
        if self.untold.last().is_some_and(|&last| last != DELETED) {
            self.untold.pop();
        }
        if self.untold.last() != Some(&account) {
            self.untold.push(account);
        }
    }

    /// The consumer has acknowledged the first thing it had to be told, if that is still this one.
    pub(super) fn told(&mut self, account: Account) {
        if self.untold.first() == Some(&account) {
            self.untold.remove(0);
        }
    }

    /// Whether an event is newer than the last one of its upstream; notes it if so.
    fn is_news(&mut self, upstream: UpstreamId, seq: Seq) -> bool {
        match self.seqs.iter().position(|(of, _)| *of == upstream) {
            Some(at) if self.seqs[at].1 >= seq => return false,
            Some(at) => _ = self.seqs.remove(at),
            None if self.seqs.len() == UPSTREAMS => _ = self.seqs.remove(0),
            None => {}
        }
        self.seqs.push((upstream, seq));
        true
    }
}

impl Body {
    /// [`super::Store::account`].
    pub(super) fn account(&mut self, upstream: UpstreamId, seq: Seq, account: Account) -> Result<(AccountRoute, BufferAct), IllegalMove> {
        if !self.known.is_news(upstream, seq) {
            return Ok((AccountRoute::Stale, BufferAct::Keep));
        }
        let before = (self.state.clone(), self.known.account);
        let buffer = match (account, &self.state) {
            (Account::Unavailable(status), _) => self.on(&JobEvent::Unavailable { status })?,
            (Account::Active, JobState::Unavailable { .. }) => {
                self.known.learn(account);
                self.on(&JobEvent::Wanted)?
            }
            (Account::Active, _) => {
                self.known.learn(account);
                BufferAct::Keep
            }
        };
        let route = if before == (self.state.clone(), self.known.account) { AccountRoute::Unchanged } else { AccountRoute::Changed };
        Ok((route, buffer))
    }

    /// [`super::Store::gap`].
    pub(super) fn gap(&mut self) -> Result<(Route, BufferAct), IllegalMove> {
        match self.state {
            JobState::Enqueued | JobState::Failed { .. } => Ok((Route::Discarded, BufferAct::Keep)),
            JobState::Unavailable { .. } => Ok((Route::Unavailable, BufferAct::Keep)),
            JobState::InProgress | JobState::Complete => Ok((Route::Gap, self.on(&JobEvent::Gap)?)),
        }
    }

    /// Drops what is known of the records, once their account is deleted. The rev stays as the least that a later checkout must have.
    pub(super) fn erase(&mut self) -> BufferAct {
        self.min_rev = self.min_rev.max(self.rev);
        (self.rev, self.data, self.older) = (None, None, None);
        (self.records, self.buffered_op_sets, self.buffered_bytes) = (0, 0, 0);
        BufferAct::Erase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEACTIVATED: Account = Account::Unavailable(UnavailableStatus::Deactivated);

    fn untold(heard: &[Account]) -> Vec<Account> {
        let mut known = Known::new();
        heard.iter().for_each(|&account| known.learn(account));
        known.untold
    }

    #[test]
    fn only_the_last_account_change_is_told_and_every_deletion() {
        assert_eq!(untold(&[Account::Active]), []);
        assert_eq!(untold(&[DEACTIVATED]), [DEACTIVATED]);
        assert_eq!(untold(&[DEACTIVATED, Account::Active]), [Account::Active]);
        assert_eq!(untold(&[DELETED, Account::Active]), [DELETED, Account::Active]);
        assert_eq!(untold(&[DEACTIVATED, DELETED, Account::Active, DEACTIVATED]), [DELETED, DEACTIVATED]);
        assert_eq!(untold(&[DELETED, Account::Active, DELETED]), [DELETED]);
    }

    #[test]
    fn the_events_of_each_upstream_count_by_themselves() {
        let (seq, mut known) = (|number| Seq::new(number).unwrap(), Known::new());
        let (one, other) = (UpstreamId(1), UpstreamId(2));
        assert!(known.is_news(one, seq(5)));
        assert!(!known.is_news(one, seq(5)) && !known.is_news(one, seq(4)));
        assert!(known.is_news(other, seq(2)));
        assert!(known.is_news(one, seq(6)) && !known.is_news(other, seq(2)));
    }

    #[test]
    fn the_upstream_heard_longest_ago_is_forgotten() {
        let (seq, mut known) = (|number| Seq::new(number).unwrap(), Known::new());
        for upstream in 0..=UPSTREAMS as i64 {
            assert!(known.is_news(UpstreamId(upstream), seq(9)));
        }
        assert_eq!(known.seqs.len(), UPSTREAMS);
        assert!(!known.is_news(UpstreamId(1), seq(9)) && known.is_news(UpstreamId(0), seq(9)));
    }
}
