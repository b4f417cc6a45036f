//! A store with one consumer, and short ways to do the usual things to it.

use std::any::Any;
use std::sync::Arc;

use atproto_backfill::job::{
    BufferSeq, ConsumerId, Epoch, FailureKind, Job, JobEvent, JobId, JobState, Op, OpAction, OpSet, Position, Route, Timestamp,
};
use atproto_backfill::manifest::{Builder, Chunk, Edit};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, MemoryStore, Standing, Store};
use atproto_backfill::syntax::{Did, RecordPath, Rev};

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);
pub(crate) const ROOMY: u64 = 1 << 30;

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) consumer: ConsumerId,
    /// What goes after the store: its folder, or its database.
    _place: Option<Box<dyn Any>>,
}

impl World {
    pub(crate) async fn memory() -> Self {
        Self::over(Arc::new(MemoryStore::new()), None).await
    }

    #[cfg(feature = "sqlite")]
    pub(crate) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = atproto_backfill::store::SqliteStore::open(directory.path().join("store.db")).unwrap();
        Self::over(Arc::new(store), Some(Box::new(directory))).await
    }

    /// `None` where there is no cluster.
    #[cfg(feature = "postgres")]
    pub(crate) async fn postgres(test: &str) -> Option<Self> {
        let database = crate::postgres::Database::create(test)?;
        let store = atproto_backfill::store::PostgresStore::open(&database.url).unwrap();
        Some(Self::over(Arc::new(store), Some(Box::new(database))).await)
    }

    async fn over(store: Arc<dyn Store>, place: Option<Box<dyn Any>>) -> Self {
        let consumer = store.consumer("posts@1").await.unwrap();
        Self { store, consumer, _place: place }
    }

    pub(crate) async fn enqueue(&self, did: &Did) {
        self.store.enqueue(self.consumer, std::slice::from_ref(did)).await.unwrap();
    }

    pub(crate) async fn job(&self, did: &Did) -> Job {
        self.store.job(self.consumer, did).await.unwrap().expect("the job is there")
    }

    /// Adds a job and claims it.
    pub(crate) async fn claimed(&self, did: &Did) -> Job {
        self.enqueue(did).await;
        self.claim(did).await
    }

    pub(crate) async fn claim(&self, did: &Did) -> Job {
        let mut jobs = self.store.claim(did, NOW).await.unwrap();
        assert_eq!(jobs.len(), 1, "claimed {jobs:?}");
        jobs.pop().unwrap()
    }

    /// Adds a job and completes it at rev `n` with root `n`.
    pub(crate) async fn complete(&self, did: &Did, n: u8) -> Job {
        let job = self.claimed(did).await;
        assert_eq!(self.finish_at(&job, n).await, Standing::Complete);
        self.job(did).await
    }

    pub(crate) async fn finish_at(&self, job: &Job, n: u8) -> Standing {
        self.store.advance(Advance { position: at(n), finish: true, ..advance(job) }).await.unwrap()
    }

    pub(crate) async fn append(&self, op_set: &OpSet) -> Route {
        self.store.append(self.consumer, op_set, ROOMY).await.unwrap()
    }

    pub(crate) async fn buffered_revs(&self, job: JobId) -> Vec<Rev> {
        self.store.buffered(job, u64::MAX).await.unwrap().into_iter().map(|(_, op_set)| op_set.rev).collect()
    }

    pub(crate) async fn last_buffered(&self, job: JobId) -> BufferSeq {
        self.store.buffered(job, u64::MAX).await.unwrap().last().expect("the buffer is not empty").0
    }

    pub(crate) async fn settle(&self, job: &Job, event: JobEvent) -> Standing {
        self.store.settle(job.id, job.epoch, event, "because", &[]).await.unwrap()
    }

    pub(crate) async fn held_paths(&self, job: JobId) -> Vec<String> {
        let chunks = self.store.manifest(job, None, 10_000).await.unwrap();
        entries(&chunks).into_iter().map(|(path, _)| path.as_str().to_owned()).collect()
    }

    pub(crate) async fn doubted(&self, job: JobId) -> Vec<String> {
        self.store.in_doubt(job).await.unwrap().into_iter().map(|path| path.to_string()).collect()
    }
}

/// An advance that changes nothing.
pub(crate) fn advance(job: &Job) -> Advance {
    Advance::new(job.id, job.epoch)
}

pub(crate) fn did(n: u32) -> Did {
    Did::new(&format!("did:web:repo{n}.test")).unwrap()
}

pub(crate) fn rev(n: u8) -> Rev {
    Rev::from_parts(1_700_000_000_000_000 + u64::from(n), 0)
}

pub(crate) fn root(n: u8) -> Link {
    Link::of(&[n])
}

pub(crate) fn at(n: u8) -> Option<Position> {
    Some(Position { rev: rev(n), data: Some(root(n)) })
}

pub(crate) fn path(text: &str) -> RecordPath {
    RecordPath::new(&format!("app.bsky.feed.post/{text}")).unwrap()
}

/// From rev and root `from` to rev and root `to`, with one created record named after it.
pub(crate) fn op_set(did: &Did, from: u8, to: u8) -> OpSet {
    let action = OpAction::Create { cid: root(to), record: vec![to; 40].into() };
    let ops = vec![Op { path: path(&format!("r{to:03}")), action }];
    OpSet { did: did.clone(), rev: rev(to), since: Some(rev(from)), data: Some(root(to)), prev_data: Some(root(from)), ops }
}

pub(crate) fn created(n: u8) -> Edit {
    Edit { path: path(&format!("r{n:03}")), cid: Some(root(n)) }
}

pub(crate) fn chunks_of(paths: &[RecordPath], limit: u32) -> Vec<Chunk> {
    let mut builder = Builder::with_limit(limit);
    let mut chunks: Vec<Chunk> = paths.iter().filter_map(|path| builder.push(path.as_ref(), root(1)).unwrap()).collect();
    chunks.extend(builder.finish());
    chunks
}

pub(crate) fn entries(chunks: &[Chunk]) -> Vec<(RecordPath, Link)> {
    let mut all = Vec::new();
    for chunk in chunks {
        let mut entries = chunk.read();
        while let Some((path, cid)) = entries.entry().unwrap() {
            all.push((path.to_owned(), cid));
        }
    }
    assert!(all.is_sorted_by(|a, b| a.0 < b.0), "a manifest is not in order");
    all
}

pub(crate) fn failed(attempt: u32, retry_at: Timestamp) -> JobEvent {
    JobEvent::Failed { kind: FailureKind::Connect, attempt, retry_at }
}

pub(crate) fn failed_state(attempt: u32, retry_at: Timestamp) -> JobState {
    JobState::Failed { kind: FailureKind::Connect, attempt, retry_at }
}

pub(crate) fn epoch_after(job: &Job, steps: i64) -> Epoch {
    Epoch(job.epoch.0 + steps)
}
