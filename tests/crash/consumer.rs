//! A consumer that writes the lines which `backfill run` writes, without the records, and may be stopped with half a delivery taken.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use atproto_backfill::consumer::{Change, Delivery, Handler, HandlerError, Origin, Record};
use atproto_backfill::job::Account;
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};

use crate::trap::Trap;

/// Appends to a file what it takes, with nothing between it and the system.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    file: Arc<File>,
    trap: Trap,
}

impl Lines {
    pub(crate) fn append(path: &Path, trap: Trap) -> Self {
        let file = File::options().append(true).create(true).open(path).expect("the lines");
        Self { file: Arc::new(file), trap }
    }

    /// All of it in one write, so that lines are whole.
    pub(crate) fn write(&self, text: &str) {
        (&*self.file).write_all(text.as_bytes()).expect("the lines are written");
    }

    /// Says that a repo is to be purged, or was, and that what is held of it is forgotten.
    pub(crate) fn purge(&self, step: &str, did: &Did) {
        self.write(&format!("{{\"type\":\"{step}\",\"did\":\"{did}\"}}\n"));
    }
}

/// The repos of which it is written that they are to be purged, and not that they were.
pub(crate) fn unpurged(path: &Path) -> Vec<Did> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut open: Vec<Did> = Vec::new();
    for line in text.lines() {
        let named = |step: &str| line.strip_prefix(&format!("{{\"type\":\"{step}\",\"did\":\""))?.strip_suffix("\"}");
        if let Some(did) = named("purging") {
            open.push(Did::new(did).expect("a DID"));
        } else if let Some(did) = named("purged") {
            open.retain(|other| other.as_str() != did);
        }
    }
    open
}

fn line(out: &mut String, delivery: &Delivery, change: &Change<'_>) {
    let (action, cid) = match change {
        Change::Create(record) => ("create", Some(record.cid)),
        Change::Update(record) => ("update", Some(record.cid)),
        Change::Delete(_) => ("delete", None),
    };
    let (live, did, rev) = (delivery.origin() == Origin::Live, delivery.did(), delivery.rev());
    let cid = cid.map_or_else(String::new, |cid| format!(r#","cid":"{cid}""#));
    let path = change.path();
    writeln!(out, r#"{{"type":"record","action":"{action}","live":{live},"did":"{did}","rev":"{rev}","path":"{path}"{cid}}}"#)
        .expect("a string takes everything");
}

impl Handler for Lines {
    async fn create(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }
    async fn update(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }
    async fn delete(&self, _: &Did, _: Rev, _: RecordPathRef<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        let active = account.is_active();
        self.write(&format!("{{\"type\":\"account\",\"did\":\"{did}\",\"active\":{active},\"status\":\"{account}\"}}\n"));
        self.trap.reach("handler:account").await;
        Ok(())
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        self.trap.reach("handler:nothing").await;
        let mut text = String::new();
        for (at, change) in delivery.changes().enumerate() {
            if at == delivery.len() / 2 && at > 0 {
                self.write(&std::mem::take(&mut text));
                self.trap.reach("handler:half").await;
            }
            line(&mut text, delivery, &change);
        }
        self.write(&text);
        self.trap.reach("handler:all").await;
        Ok(())
    }
}
