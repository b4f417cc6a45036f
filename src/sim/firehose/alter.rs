//! What faults make of an event.
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{Body, CommitEvent, Event, EventOp};
use crate::repo::export::signed_commit;
use crate::repo::mst::Tree;
use crate::repo::{Link, SigningKey};
use crate::sim::account::Account;
use crate::sim::export::Export;
use crate::sim::fault::{EventFault, Missing};
use crate::sim::frame;
use crate::syntax::Rev;

/// The event that is told in place of a true one. Faults of its place in the sequence leave it as it is.
pub(super) fn alter(event: &Event, fault: &EventFault, account: &Account) -> Event {
    let mut event = event.clone();
    match fault {
        EventFault::OtherAccount(did) => event.did = did.clone(),
        EventFault::WithoutField(name) => event.without = Some(name),
        EventFault::WrongKey => sign(&mut event.body, account, &account.foreign_key(), |_, _| {}),
        EventFault::OtherData => sign(&mut event.body, account, &account.key(), |_, data| *data = nobodys()),
        EventFault::FutureRev(ahead) => sign(&mut event.body, account, &account.key(), |rev, _| *rev = from_now(*ahead)),
        EventFault::Without(which) => change_blocks(&mut event.body, *which, |export, link| export.retain(|other, _| *other != link)),
        EventFault::WrongHash(which) => change_blocks(&mut event.body, *which, flip),
        _ => {}
    }
    if let Body::Commit(commit) = &mut event.body {
        alter_commit(commit, fault);
    }
    if let (EventFault::AsSync, Body::Commit(commit)) = (fault, &event.body) {
        event.body = Body::Sync { rev: commit.rev, data: commit.data, blocks: only(&commit.blocks, &commit.commit) };
    }
    event
}

fn alter_commit(commit: &mut CommitEvent, fault: &EventFault) {
    match fault {
        EventFault::NoBlocks => commit.blocks = Bytes::new(),
        EventFault::TooBig => {
            (commit.too_big, commit.ops) = (true, Vec::new());
            commit.blocks = only(&commit.blocks, &commit.commit);
        }
        EventFault::WrongPrevData => commit.prev_data = Some(nobodys()),
        EventFault::NoPrevData => {
            commit.prev_data = None;
            commit.ops.iter_mut().for_each(|op| op.prev = None);
        }
        EventFault::WrongCid => {
            if let Some(op) = commit.ops.iter_mut().find(|op| op.cid.is_some()) {
                op.cid = Some(nobodys());
            }
        }
        EventFault::WrongSince => commit.since = Some(Rev::ZERO),
        EventFault::MoreOps(more) => commit.ops.extend((0..*more).map(|number| EventOp {
            action: "delete",
            path: format!("com.example.sim.more/{number}"),
            cid: None,
            prev: Some(nobodys()),
        })),
        EventFault::Padded(bytes) => {
            let padding = vec![0; *bytes];
            commit.blocks = [&commit.blocks[..], &frame::of(&Link::of(&padding), &padding)].concat().into();
        }
        _ => {}
    }
}

/// Signs another commit, of what `change` makes of the rev and the tree, and puts it in place of the one there is.
fn sign(body: &mut Body, account: &Account, key: &SigningKey, change: impl FnOnce(&mut Rev, &mut Link)) {
    match body {
        Body::Commit(CommitEvent { rev, data, commit, blocks, .. }) => {
            change(rev, data);
            let (signed, block) = signed_commit(&account.did, *rev, *data, key);
            *blocks = export(blocks).with_commit(commit, signed, &block).to_bytes();
            *commit = signed;
        }
        Body::Sync { rev, data, blocks } => {
            change(rev, data);
            let (signed, block) = signed_commit(&account.did, *rev, *data, key);
            *blocks = Export::new(signed, vec![frame::of(&signed, &block)]).to_bytes();
        }
        Body::Identity { .. } | Body::Account { .. } | Body::Unknown => {}
    }
}

/// Changes one block, of those of a `#commit`.
fn change_blocks(body: &mut Body, which: Missing, change: impl FnOnce(&Export, Link) -> Export) {
    if let Body::Commit(commit) = body
        && !commit.blocks.is_empty()
    {
        commit.blocks = change(&export(&commit.blocks), block(commit, which)).to_bytes();
    }
}

/// The block that a fault is about.
fn block(commit: &CommitEvent, which: Missing) -> Link {
    match which {
        Missing::Commit => commit.commit,
        Missing::Root => commit.data,
        Missing::Node => node(commit).unwrap_or(commit.data),
        Missing::Record => commit.ops.iter().find_map(|op| op.cid).unwrap_or(commit.data),
    }
}

/// A node below the root without which it cannot be told what is at the path of the first op.
fn node(commit: &CommitEvent) -> Option<Link> {
    let key = commit.ops.first()?.path.as_bytes();
    let blocks: Vec<(Link, Bytes)> = export(&commit.blocks).frames().collect();
    let block = |link: &Link, without: &Link| {
        let (_, framed) = blocks.iter().find(|(other, _)| other == link && other != without)?;
        frame::iter(framed).next().map(|at| &framed[at.block..at.end])
    };
    let needed = |link: &Link| Tree::load(commit.data, |other| block(other, link)).is_ok_and(|tree| tree.get(key).is_err());
    blocks.iter().map(|(link, _)| *link).filter(needed).last()
}

fn flip(export: &Export, link: Link) -> Export {
    let mut frames = Vec::new();
    for (other, framed) in export.frames() {
        let mut framed = framed.to_vec();
        if other == link
            && let Some(last) = framed.last_mut()
        {
            *last ^= 1;
        }
        frames.push(framed.into());
    }
    Export { pieces: std::iter::once(export.pieces[0].clone()).chain(frames).collect() }
}

/// A CAR as an export: its header, which holds one root and so has one length, then the rest.
fn export(car: &Bytes) -> Export {
    let header = frame::header(&nobodys()).len().min(car.len());
    Export { pieces: vec![car.slice(..header), car.slice(header..)] }
}

fn only(car: &Bytes, link: &Link) -> Bytes {
    export(car).retain(|other, _| other == link).to_bytes()
}

/// A link to nothing.
fn nobodys() -> Link {
    Link::of(b"nobody has this")
}

fn from_now(ahead: Duration) -> Rev {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Rev::from_parts((now + ahead).as_micros() as u64, 0)
}
