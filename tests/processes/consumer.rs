//! The one consumer of all processes, which notes whether two of them ever bring it the same repo at once, or out of order.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use atproto_backfill::consumer::{Change, Delivery, Handler, HandlerError, Record};
use atproto_backfill::job::Account;
use atproto_backfill::repo::Link;
use atproto_backfill::sim::World;
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How long the consumer has something in hand, so that two who bring it would meet.
const IN_HAND: Duration = Duration::from_millis(3);

/// The side of a process: hands on what it is given, and waits for the answer.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) number: u64,
    pub(crate) at: String,
}

impl Told {
    async fn tell(&self, what: &Value) -> Result<(), HandlerError> {
        let mut connection = BufReader::new(TcpStream::connect(&self.at).await?);
        connection.write_all(format!("{what}\n").as_bytes()).await?;
        let mut answer = String::new();
        connection.read_line(&mut answer).await?;
        if answer == "ok\n" { Ok(()) } else { Err("the consumer has gone".into()) }
    }
}

impl Handler for Told {
    async fn create(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }
    async fn update(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }
    async fn delete(&self, _: &Did, _: Rev, _: RecordPathRef<'_>) -> Result<(), HandlerError> {
        unreachable!("it takes batches")
    }

    async fn account(&self, did: &Did, _: Account) -> Result<(), HandlerError> {
        self.tell(&json!({"process": self.number, "did": did.as_str(), "changes": []})).await
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        let change = |change: Change<'_>| match change {
            Change::Create(Record { path, cid, .. }) | Change::Update(Record { path, cid, .. }) => json!([path.as_str(), cid.to_string()]),
            Change::Delete(path) => json!([path.as_str(), null]),
        };
        let changes: Vec<Value> = delivery.changes().map(change).collect();
        self.tell(&json!({"process": self.number, "did": delivery.did().as_str(), "rev": delivery.rev().as_str(), "changes": changes}))
            .await
    }
}

/// What the consumer holds and has noted.
#[derive(Debug, Default)]
pub(crate) struct State {
    repos: HashMap<String, Repo>,
    pub(crate) faults: Vec<String>,
    /// Deliveries by process.
    pub(crate) deliveries: BTreeMap<u64, u64>,
    /// Changes of the process that brings a repo.
    pub(crate) passed_on: u64,
}

#[derive(Debug, Default)]
struct Repo {
    records: BTreeMap<String, String>,
    /// Who is bringing something at this moment.
    bringing: BTreeMap<u64, usize>,
    /// Who brought something last.
    last: Option<u64>,
    /// The last rev that was brought, and the one before that.
    revs: (String, String),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Consumer(Arc<Mutex<State>>);

impl Consumer {
    /// Listens; answers where.
    pub(crate) async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address").to_string();
        let consumer = self.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(consumer.clone().serve(connection));
            }
        });
        at
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under it")
    }

    async fn serve(self, connection: TcpStream) {
        let mut connection = BufReader::new(connection);
        let mut line = String::new();
        // A process that was killed may have sent half of it.
        if connection.read_line(&mut line).await.is_err() || !line.ends_with('\n') {
            return;
        }
        let told: Value = serde_json::from_str(&line).expect("a line of JSON");
        let (process, did) = (told["process"].as_u64().expect("a number"), told["did"].as_str().expect("a DID").to_owned());
        self.state().begin(process, &did, &told);
        tokio::time::sleep(IN_HAND).await;
        let _ = connection.write_all(b"ok\n").await;
        let mut state = self.state();
        let repo = state.repos.entry(did).or_default();
        match repo.bringing.get_mut(&process) {
            Some(1) | None => _ = repo.bringing.remove(&process),
            Some(times) => *times -= 1,
        }
    }

    /// How a repo is held, beside how it is.
    pub(crate) fn describe(&self, world: &World, did: &Did) -> String {
        let (state, head) = (self.state(), world.head(did));
        let held = state.repos.get(did.as_str()).map(|repo| (repo.records.len(), &repo.revs, repo.last));
        format!("{did} is at {head:?}; held, brought last, and by whom: {held:?}")
    }

    /// Repos that are not held as the world has them.
    pub(crate) fn differing(&self, world: &World) -> Vec<Did> {
        let state = self.state();
        let differs = |did: &Did| {
            let truth = world.truth(did).expect("an account of the world").records;
            let cids = |(path, (cid, _)): (&_, &(Link, _))| (str_of(path), cid.to_string());
            let truth: BTreeMap<String, String> = truth.iter().map(cids).collect();
            // Of a repo without records nothing is ever brought.
            state.repos.get(did.as_str()).map_or(!truth.is_empty(), |repo| repo.records != truth)
        };
        world.dids().into_iter().filter(differs).collect()
    }
}

fn str_of(path: &atproto_backfill::syntax::RecordPath) -> String {
    path.as_str().to_owned()
}

impl State {
    fn begin(&mut self, process: u64, did: &str, told: &Value) {
        *self.deliveries.entry(process).or_default() += 1;
        let repo = self.repos.entry(did.to_owned()).or_default();
        if let Some(other) = repo.bringing.keys().find(|other| **other != process) {
            self.faults.push(format!("{did} is brought by {process} and {other} at once"));
        }
        *repo.bringing.entry(process).or_default() += 1;
        let is_passed_on = repo.last.is_some_and(|last| last != process);
        self.passed_on += u64::from(is_passed_on);
        repo.last = Some(process);
        if let Some(rev) = told["rev"].as_str() {
            // What was brought last may not have been recorded when its process died.
            let least = if is_passed_on { &repo.revs.1 } else { &repo.revs.0 };
            if rev < least.as_str() {
                self.faults.push(format!("{did} goes back from {least} to {rev}, passed on: {is_passed_on}"));
            }
            if rev != repo.revs.0 {
                let before = std::mem::replace(&mut repo.revs.0, rev.to_owned());
                repo.revs.1 = before;
            }
        }
        for change in told["changes"].as_array().expect("changes") {
            let path = change[0].as_str().expect("a path").to_owned();
            match change[1].as_str() {
                Some(cid) => _ = repo.records.insert(path, cid.to_owned()),
                None => _ = repo.records.remove(&path),
            }
        }
    }
}
