//! How to test a handler of your own: an index of posts, held against a simulated network that is written to while it is read, and where much goes wrong.
//!
//! ```text
//! cargo run --example handler_test --features sim -- [SEED]
//! ```
//!
//! In a package of your own, the body of `main` is a `#[tokio::test]`, and this package is a dev-dependency with the feature `sim`.
#![allow(clippy::print_stdout, reason = "the lines are what the program is for")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atproto_backfill::consumer::{CollectionFilter, Handler, HandlerError, Record};
use atproto_backfill::engine::{Backfiller, Options};
use atproto_backfill::job::{Account, UnavailableStatus};
use atproto_backfill::repo::json;
use atproto_backfill::sim::{
    AccountStatus, Ending, Endpoint, EventFault, Fault, FaultyHandler, Gate, HandlerFault, Network, NetworkOptions, Position, RetryHint,
    Rule, RuleId, Sizes, StreamFault, World, Writer, WriterOptions,
};
use atproto_backfill::store::{MemoryStore, Store};
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};

type AnyError = Box<dyn Error + Send + Sync>;

const POSTS: &str = "app.bsky.feed.post";
/// What takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The handler under test: the texts of all posts of accounts that are not deleted, by `did/path`.
#[derive(Debug, Default)]
struct PostIndex(Mutex<BTreeMap<String, String>>);

impl PostIndex {
    fn posts(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self, did: &Did, record: &Record<'_>) -> Result<(), HandlerError> {
        // It will be no better when it comes again.
        let text = text_of(record.bytes).map_err(HandlerError::Reject)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{did}/{}", record.path), text);
        Ok(())
    }
}

fn text_of(record: &[u8]) -> Result<String, AnyError> {
    let json = json::to_value(record)?;
    Ok(json["text"].as_str().ok_or("a post without a text")?.to_owned())
}

impl Handler for PostIndex {
    async fn create(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.store(did, &record)
    }

    async fn update(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.store(did, &record)
    }

    async fn delete(&self, did: &Did, _: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        // A delete of what never came is no error: after a crash it may come.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&format!("{did}/{path}"));
        Ok(())
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        if account == Account::Unavailable(UnavailableStatus::Deleted) {
            let of_account = format!("{did}/");
            self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|path, _| !path.starts_with(&of_account));
        }
        Ok(())
    }
}

/// What the index is to hold: every post of every account that is there, read from the world itself.
fn truth(world: &World) -> Result<BTreeMap<String, String>, AnyError> {
    let mut posts = BTreeMap::new();
    for did in world.dids() {
        if world.status(&did) == Some(AccountStatus::Deleted) {
            continue;
        }
        for (path, (_, record)) in world.truth(&did).into_iter().flat_map(|truth| truth.records) {
            if path.collection() == POSTS {
                posts.insert(format!("{did}/{path}"), text_of(&record)?);
            }
        }
    }
    Ok(posts)
}

/// A process: everything about it but the store and the handler is new.
async fn process(network: &Network, store: &Arc<dyn Store>, handler: &Arc<FaultyHandler<PostIndex>>) -> Result<Backfiller, AnyError> {
    let options = Options {
        collections: CollectionFilter::new([POSTS])?,
        // A stop waits so long for a handler that hangs, and lets it go then.
        stop_grace: Duration::from_millis(200),
        ..Options::default()
    };
    let backfiller = network.backfiller("posts", Arc::clone(store), Arc::clone(handler))?.options(options);
    Ok(backfiller.upstream(network.relay_upstream()).build().await?)
}

/// What goes wrong, once or twice each.
fn inject(network: &Network) -> Vec<RuleId> {
    let once = |rule: Rule| network.faults().inject(rule.times(1));
    let mut rules = vec![
        once(Rule::new(Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(1)))).host(0)),
        once(Rule::new(Fault::Cut(Position::Block(5), Ending::Clean)).host(0).after(2)),
        once(Rule::new(Fault::Cut(Position::Byte(700), Ending::Reset)).host(1)),
        once(Rule::new(Fault::FlipByte(900)).host(1).after(2)),
        once(Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::DidDocument)),
    ];
    rules.push(once(Rule::new(EventFault::Drop).after(20)));
    rules.push(once(Rule::new(EventFault::WrongKey).after(30)));
    rules.push(once(Rule::new(StreamFault::Reset).after(5)));
    rules
}

/// Returns once the relay has taken more connections than `before`. What nobody listens to, no fault of a connection can strike.
async fn connected(network: &Network, before: usize) {
    while network.relay().cursors().len() <= before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let seed = std::env::args().nth(1).map_or(Ok(7), |seed| seed.parse())?;
    println!("seed {seed}");
    let world = World::builder().seed(seed).hosts(2).repos(12).sizes(Sizes::Each(300)).build()?;
    let network = Network::start(&world, NetworkOptions::default()).await?;
    let rules = inject(&network);

    // The index is lent to the processes: it is the database, which outlives them, as the store does.
    let handler = Arc::new(FaultyHandler::new(PostIndex::default()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    handler.inject(HandlerFault::Refuse, 2);
    handler.inject(HandlerFault::Lose, 3);

    let first = process(&network, &store, &handler).await?;
    first.enqueue(&world.dids()).await?;
    first.start().await?;
    tokio::time::timeout(LIMIT, connected(&network, 0)).await?;
    let (writer, mut op_sets) = Writer::start(&world, WriterOptions { per_second: 400.0, limit: 800, seed, ..WriterOptions::default() });
    // They come by the firehose: whoever hands them in instead has them from here.
    let told = tokio::spawn(async move { while op_sets.recv().await.is_some() {} });

    // A restart in the midst: the handler has taken a delivery, and the process ends before that is recorded.
    let gate = Gate::new();
    handler.inject(HandlerFault::Hold(gate.clone()), 1);
    tokio::time::timeout(LIMIT, gate.reached(1)).await?;
    let cut_off = first.stop().await.is_err();
    gate.open();
    let before = network.relay().cursors().len();
    let second = process(&network, &store, &handler).await?;
    second.start().await?;
    tokio::time::timeout(LIMIT, connected(&network, before)).await?;

    // An account goes for good while the others are written to.
    let gone = world.dids()[3].clone();
    world.set_status(&gone, AccountStatus::Deleted);
    let commits = writer.finished().await;
    told.await?;
    // One more commit of each shows what was dropped on the way.
    for did in world.dids().iter().filter(|did| **did != gone) {
        world.write(did, Vec::new())?;
    }
    let progress = tokio::time::timeout(LIMIT, network.caught_up(&second)).await??;

    let (held, truth) = (handler.inner().posts(), truth(&world)?);
    let wrong = truth.iter().filter(|(path, text)| held.get(*path) != Some(text)).count();
    println!("{commits} commits, {} posts held, {} are true, {wrong} missing or old; {:?}", held.len(), truth.len(), progress.totals);
    assert_eq!(held, truth, "seed {seed}: the index is not what the network holds");
    assert!(cut_off && !held.is_empty(), "seed {seed}: nothing was put to the test");
    assert_eq!(handler.fired(), 6);
    for rule in rules {
        assert_eq!(network.faults().fired(rule), 1, "seed {seed}: {:?} never struck", network.faults().unfired());
    }
    second.stop().await?;
    network.shutdown().await;
    Ok(())
}
