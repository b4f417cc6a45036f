//! One life of a program over a store: it follows the network, and does what an application may do besides.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::{Backfiller, Options};
use atproto_backfill::job::{Job, JobState};
use atproto_backfill::store::Store;
use atproto_backfill::syntax::Did;
use serde_json::{Value, json};

use crate::consumer::{self, Lines};
use crate::following::following;
use crate::store::Trapped;
use crate::trap::Trap;

/// The name of the consumer.
pub(crate) const CONSUMER: &str = "lines";
/// Between two things that the application does.
const PAUSE: Duration = Duration::from_millis(15);

/// What a life needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) lines: PathBuf,
    pub(crate) plc: String,
    pub(crate) relay: String,
    pub(crate) dids: Vec<Did>,
    /// Whether the application does nothing but follow.
    pub(crate) last: bool,
}

impl Setup {
    pub(crate) fn to_json(&self) -> Value {
        let dids: Vec<&str> = self.dids.iter().map(Did::as_str).collect();
        json!({"lines": self.lines, "plc": self.plc, "relay": self.relay, "dids": dids, "last": self.last})
    }

    pub(crate) fn from_json(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().expect("text").to_owned();
        let dids = value["dids"].as_array().expect("DIDs").iter();
        Self {
            lines: text("lines").into(),
            plc: text("plc"),
            relay: text("relay"),
            dids: dids.map(|did| Did::new(did.as_str().expect("a DID")).expect("a DID")).collect(),
            last: value["last"].as_bool().expect("whether it is the last"),
        }
    }
}

/// Lives until `over`, which is then told that nothing is left to do; or until it is stopped.
pub(crate) async fn live(setup: Setup, store: Arc<dyn Store>, trap: Trap, over: impl Future<Output = ()>) {
    let lines = Lines::append(&setup.lines, trap.clone());
    let backfiller = backfiller(&setup, Arc::new(Trapped { store, trap }), lines.clone()).await;
    for did in consumer::unpurged(&setup.lines) {
        finish_purge(&backfiller, &lines, &did).await;
    }
    backfiller.start().await.expect("it starts");
    backfiller.enqueue(&setup.dids).await.expect("repos are enqueued");
    if setup.last {
        over.await;
        at_rest(&backfiller).await;
        backfiller.stop().await.expect("it stops in time");
        return;
    }
    tokio::select! {
        () = over => {}
        () = apply(&backfiller, &lines, &setup.dids) => {}
    }
}

async fn finish_purge(backfiller: &Backfiller, lines: &Lines, did: &Did) {
    backfiller.purge(did).await.expect("a repo is purged");
    lines.purge("purged", did);
}

/// What an application does: has repos checked out anew, or forgets them, or has all of them audited.
async fn apply(backfiller: &Backfiller, lines: &Lines, dids: &[Did]) {
    for (turn, did) in dids.iter().cycle().enumerate() {
        tokio::time::sleep(PAUSE).await;
        match turn % 5 {
            0 => {
                // Whoever waits for the end of it is stopped with the rest.
                let (backfiller, did) = (backfiller.clone(), did.clone());
                tokio::spawn(async move { backfiller.backfill_repo(&did).await });
            }
            2 => {
                lines.purge("purging", did);
                finish_purge(backfiller, lines, did).await;
            }
            4 if turn % 15 == 4 => backfiller.audit().await.expect("an audit begins"),
            _ => _ = backfiller.enqueue(dids).await.expect("repos are enqueued"),
        }
    }
}

/// Waits until every repo is complete or unavailable; those that failed are tried again at once.
async fn at_rest(backfiller: &Backfiller) {
    loop {
        backfiller.idle().await.expect("it comes to rest");
        let jobs: Vec<Job> = backfiller.jobs(None, 1_000).await.expect("jobs");
        let failed: Vec<Job> = jobs.into_iter().filter(|job| matches!(job.state, JobState::Failed { .. })).collect();
        if failed.is_empty() {
            return;
        }
        for job in failed {
            backfiller.backfill_repo(&job.did).await.expect("a repo is tried again");
        }
    }
}

async fn backfiller(setup: &Setup, store: Arc<dyn Store>, lines: Lines) -> Backfiller {
    let options = Options { delivery_records: 24.try_into().expect("24"), ..Options::default() };
    let builder = following(CONSUMER, store, lines, &setup.plc, &setup.relay).options(options);
    builder.build().await.expect("a backfiller")
}
