//! Databases to be durable in, and short ways to fill them.

use std::sync::Arc;

use atproto_backfill::job::{ConsumerId, Job, Op, OpAction, OpSet, Position, Timestamp};
use atproto_backfill::manifest::{Builder, Chunk};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, Store, StoreCheck, StoreError, StoreStats};
use atproto_backfill::syntax::{Did, RecordPath, Rev};

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);

/// Where a database is, with or without a store that has it open. Goes with this.
pub(crate) trait Ground: Sync {
    /// The end of what an error calls it.
    fn name(&self) -> String;

    fn open(&self) -> Result<Arc<dyn Store>, StoreError>;

    /// Checks it, open or not.
    fn check(&self) -> Result<StoreCheck, StoreError>;

    fn stats(&self) -> Result<StoreStats, StoreError>;

    /// What another program does to the database.
    fn execute(&self, sql: &str);

    /// How many tables and sequences there are, less those of the system and the list of migrations.
    fn tables(&self) -> i64;

    /// Runs the migrations from their files.
    fn up(&self);

    /// Undoes all of them.
    fn down(&self);

    /// Undoes those behind a version.
    fn down_to(&self, version: &str);

    /// A number that a query gives as `n`.
    fn number(&self, sql: &str) -> i64;

    /// The words for one byte, 0.
    fn zero(&self) -> &'static str;
}

#[derive(diesel::QueryableByName)]
pub(crate) struct Count {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    pub(crate) n: i64,
}

pub(crate) fn did(n: u32) -> Did {
    Did::new(&format!("did:web:repo{n}.test")).unwrap()
}

pub(crate) fn rev(n: u64) -> Rev {
    Rev::from_parts(1_700_000_000_000_000 + n, 0)
}

pub(crate) fn at(n: u64) -> Option<Position> {
    Some(Position { rev: rev(n), data: Some(Link::of(&n.to_le_bytes())) })
}

pub(crate) fn path(n: u64) -> RecordPath {
    RecordPath::new(&format!("app.bsky.feed.post/{}", rev(n))).unwrap()
}

pub(crate) fn chunks(range: std::ops::Range<u64>) -> Vec<Chunk> {
    let mut builder = Builder::default();
    let mut chunks: Vec<Chunk> = range.filter_map(|n| builder.push(path(n).as_ref(), Link::of(&n.to_le_bytes())).unwrap()).collect();
    chunks.extend(builder.finish());
    chunks
}

pub(crate) fn op_set(did: &Did, from: u64, to: u64, size: usize) -> OpSet {
    let create = OpAction::Create { cid: Link::of(&to.to_le_bytes()), record: vec![7; size].into() };
    let data = |n| at(n).and_then(|position| position.data);
    OpSet {
        did: did.clone(),
        rev: rev(to),
        since: Some(rev(from)),
        data: data(to),
        prev_data: data(from),
        ops: vec![Op { path: path(to), action: create }],
    }
}

pub(crate) fn advance(job: &Job) -> Advance {
    Advance::new(job.id, job.epoch)
}

pub(crate) async fn claimed(store: &dyn Store, consumer: ConsumerId, did: &Did) -> Job {
    store.enqueue(consumer, std::slice::from_ref(did)).await.unwrap();
    store.claim(did, NOW).await.unwrap().pop().unwrap()
}

/// Everything that the trait gives out about the jobs of a consumer.
pub(crate) async fn everything(store: &dyn Store, consumer: ConsumerId) -> String {
    let mut all = vec![format!("{:?}", store.totals(consumer).await.unwrap())];
    for job in store.jobs(consumer, None, 1000).await.unwrap() {
        let buffer = store.buffered(job.id, u64::MAX).await.unwrap();
        let doubt = store.in_doubt(job.id).await.unwrap();
        let manifest = store.manifest(job.id, None, 1000).await.unwrap();
        all.push(format!("{job:?} {buffer:?} {doubt:?} {manifest:?}"));
    }
    all.join("\n")
}
