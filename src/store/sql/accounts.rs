//! Verbs about accounts and upstreams, and how a job's row keeps what is known of its account.

use diesel::prelude::*;

use super::fault::{Act, Fault};
use super::rows::signed;
use super::schema::{intent, manifest_chunk, op_set, upstream};
use super::writer::Tx;
use crate::firehose::SavedCursor;
use crate::job::{Account, ConsumerId, JobId, Route, Timestamp};
use crate::store::account_rules::Known;
use crate::store::rules::BufferAct;
use crate::store::{AccountRoute, UpstreamId};
use crate::syntax::{Did, Seq};

/// Id, and both parts of the cursor.
type UpstreamRow = (i64, Option<i64>, Option<i64>);

impl Tx<'_> {
    pub(super) fn account(&mut self, of: ConsumerId, did: &Did, upstream: UpstreamId, seq: Seq, account: Account) -> Act<AccountRoute> {
        let Some((id, before, _)) = self.find(of, did)? else { return Ok(AccountRoute::Unknown) };
        let mut after = before.clone();
        let (route, buffer) = after.account(upstream, seq, account)?;
        self.keep(id, of, &before, &after, buffer)?;
        Ok(route)
    }

    pub(super) fn told(&mut self, id: JobId, account: Account) -> Act<()> {
        let Some((of, before, _)) = self.body(id)? else { return Ok(()) };
        let mut after = before.clone();
        after.known.told(account);
        self.keep(id, of, &before, &after, BufferAct::Keep)
    }

    pub(super) fn gap(&mut self, of: ConsumerId, did: &Did) -> Act<Route> {
        let Some((id, before, _)) = self.find(of, did)? else { return Ok(Route::Unknown) };
        let mut after = before.clone();
        let (route, buffer) = after.gap()?;
        self.keep(id, of, &before, &after, buffer)?;
        Ok(route)
    }

    /// Deletes all that is kept of a job's records; returns how many op sets that were.
    pub(super) fn erase(&mut self, id: JobId) -> Act<i64> {
        let dropped = diesel::delete(op_set::table.filter(op_set::job.eq(id.0))).execute(self.connection)?;
        diesel::delete(intent::table.filter(intent::job.eq(id.0))).execute(self.connection)?;
        diesel::delete(manifest_chunk::table.filter(manifest_chunk::job.eq(id.0))).execute(self.connection)?;
        Ok(signed(dropped as u64))
    }

    pub(super) fn upstream(&mut self, name: &str) -> Act<(UpstreamId, Option<SavedCursor>)> {
        let (id, seq, time) = match self.known_upstream(name)? {
            Some(found) => found,
            None => self.new_upstream(name)?,
        };
        Ok((UpstreamId(id), cursor(id, seq, time)?))
    }

    fn known_upstream(&mut self, name: &str) -> Act<Option<UpstreamRow>> {
        let columns = (upstream::id, upstream::seq, upstream::time);
        Ok(upstream::table.filter(upstream::name.eq(name)).select(columns).get_result(self.connection).optional()?)
    }

    /// Adds an upstream, unless another process has added it meanwhile.
    fn new_upstream(&mut self, name: &str) -> Act<UpstreamRow> {
        let row = diesel::insert_into(upstream::table).values(upstream::name.eq(name));
        row.on_conflict(upstream::name).do_nothing().execute(self.connection)?;
        Ok(self.known_upstream(name)?.ok_or(diesel::result::Error::NotFound)?)
    }

    pub(super) fn save_cursor(&mut self, of: UpstreamId, cursor: SavedCursor) -> Act<()> {
        let columns = (upstream::seq.eq(signed(cursor.seq.get())), upstream::time.eq(cursor.time.0));
        diesel::update(upstream::table.find(of.0)).set(columns).execute(self.connection)?;
        Ok(())
    }

    pub(super) fn restart_upstream(&mut self, name: &str) -> Act<UpstreamId> {
        diesel::delete(upstream::table.filter(upstream::name.eq(name))).execute(self.connection)?;
        self.new_upstream(name).map(|(id, ..)| UpstreamId(id))
    }
}

/// The saved cursor of an upstream, from the columns of its row.
pub(super) fn cursor(id: i64, seq: Option<i64>, time: Option<i64>) -> Act<Option<SavedCursor>> {
    match (seq, time) {
        (None, None) => Ok(None),
        (Some(seq), Some(time)) => {
            let number = u64::try_from(seq).ok().and_then(Seq::new);
            let seq = number.ok_or_else(|| Fault::corrupt(format!("upstream {id}"), format!("the sequence number {seq}")))?;
            Ok(Some(SavedCursor { seq, time: Timestamp(time) }))
        }
        _ => Err(Fault::corrupt(format!("upstream {id}"), "half a cursor")),
    }
}

/// `active 1:42 7:3`: the status, then upstream and seq of the last event of each. None for an account of which nothing was heard.
pub(super) fn account_text(known: &Known) -> Option<String> {
    if known.account.is_active() && known.seqs.is_empty() {
        return None;
    }
    let seqs = known.seqs.iter().map(|(upstream, seq)| format!(" {}:{seq}", upstream.0));
    Some(std::iter::once(known.account.to_string()).chain(seqs).collect())
}

/// `deleted active`, in the order in which it is to be told. None for nothing.
pub(super) fn untold_text(known: &Known) -> Option<String> {
    let words: Vec<&str> = known.untold.iter().map(|account| account.as_str()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Reads [`account_text`] and [`untold_text`], strictly.
pub(super) fn known(row: impl FnOnce() -> String, account: Option<&str>, untold: Option<&str>) -> Act<Known> {
    let read = || {
        let mut known = Known::new();
        if let Some(text) = account {
            let mut words = text.split(' ');
            known.account = words.next()?.parse().ok()?;
            for word in words {
                let (upstream, seq) = word.split_once(':')?;
                known.seqs.push((UpstreamId(upstream.parse().ok()?), Seq::new(seq.parse().ok()?)?));
            }
        }
        if let Some(text) = untold {
            known.untold = text.split(' ').map(str::parse::<Account>).collect::<Result<_, _>>().ok()?;
        }
        (account_text(&known).as_deref() == account && untold_text(&known).as_deref() == untold).then_some(known)
    };
    read().ok_or_else(|| Fault::corrupt(row(), format!("not an account: {account:?} {untold:?}")))
}
