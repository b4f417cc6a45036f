//! What enqueuing and claiming cost, and how that grows with the number of jobs that wait.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use atproto_backfill::job::{ConsumerId, FailureKind, JobEvent, Timestamp};
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Store, Where};
use atproto_backfill::syntax::Did;
use futures::StreamExt;

use super::clock::Clock;
use super::database::Database;

/// The sizes of the backlog, as far as they are asked for.
const SIZES: [u64; 3] = [10_000, 1_000_000, 10_000_000];
const HOSTS: u64 = 2_800;
/// How many repos the store enqueues at each size, and by one call.
const ENQUEUED: u64 = 5_000;
const AT_ONCE: u64 = 500;
const STRANGERS: u64 = 1 << 40;
const PLACE_NEW: &str = "UPDATE repo SET host = id % 28 + 1 WHERE host IS NULL; UPDATE job SET host = (SELECT host FROM repo WHERE repo.id = job.repo) WHERE host IS NULL;";
/// What a dispatcher reads ahead of a host.
const PAGE: usize = 64;
/// Claims under way at once.
const WORKERS: usize = 64;
/// Claims between two searches of all hosts.
const BATCH: usize = 500;
const BATCHES: usize = 5;
const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) async fn measure(database: &Database, most: u64, shape: Shape) {
    let store = &*database.store;
    let consumer = store.consumer("backlog@1").await.expect("consumer");
    database.execute(&hosts());
    let (mut there, mut first) = (0, None);
    for size in SIZES.into_iter().filter(|&size| size <= most.max(SIZES[0])) {
        database.execute(&filling(database.is_file(), consumer, there..size - ENQUEUED, shape));
        database.tidy();
        let clock = Clock::start();
        enqueue(store, consumer, there..there + ENQUEUED).await;
        clock.passed().print(&format!("backlog of {size}: repos enqueued"), ENQUEUED, "with the others there");
        there = size;
        if shape == Shape::Placed {
            database.execute(PLACE_NEW);
        }
        let claims = claims(store, shape).await;
        claims.print(size, shape);
        let first = *first.get_or_insert(claims.each());
        println!("backlog of {size}: a claim costs {:.2} of what it costs with {}", claims.each() / first, SIZES[0]);
        if let Some(bytes) = database.file_size() {
            println!("backlog of {size}: {:.0} bytes for each job", bytes as f64 / size as f64);
        }
    }
}

/// Jobs as the store would add them, without the hours that it takes to write each alone: their order has nothing to do with that of their DIDs.
fn filling(is_file: bool, consumer: ConsumerId, range: std::ops::Range<u64>, shape: Shape) -> String {
    // Far from the ids that the store gives.
    let from = STRANGERS + range.start * 2;
    let number = range.end - range.start;
    let host = match shape {
        Shape::Unplaced => "NULL".to_owned(),
        Shape::Placed => format!("CASE WHEN n % 2 = 0 THEN (n / 2) % 28 + 1 ELSE (n / 2) % {HOSTS} + 1 END"),
    };
    let (numbers, did) = if is_file {
        (
            format!("WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {number})"),
            "printf('%024d', n + {from})",
        )
    } else {
        (format!("WITH numbers (n) AS (SELECT generate_series(0::bigint, {number} - 1))"), "lpad((n + {from})::text, 24, '0')")
    };
    let did = did.replace("{from}", &from.to_string());
    // 7,919 has no divisor in common with the numbers of jobs here, so that every repo has its turn.
    format!(
        "BEGIN;
         {numbers} INSERT INTO repo (id, did, host) SELECT {from} + n, 'did:plc:' || {did}, {host} FROM numbers;
         {numbers} INSERT INTO job (id, consumer, repo, host, state, due_at, epoch, failures, failure, records)
         SELECT {from} + n, {}, {from} + n * 7919 % {number}, (SELECT host FROM repo WHERE repo.id = {from} + n * 7919 % {number}), 'enqueued', 0, 0, 0, '', 0
         FROM numbers;
         UPDATE total SET enqueued = enqueued + {number} WHERE consumer = {};
         COMMIT;",
        consumer.0, consumer.0
    )
}

/// DIDs in no order, as they are.
fn did(n: u64) -> Did {
    let digest = *Link::of(&n.to_le_bytes()).digest();
    let letters = b"abcdefghijklmnopqrstuvwxyz234567";
    let text: String = digest[..24].iter().map(|byte| char::from(letters[usize::from(byte % 32)])).collect();
    Did::new(&format!("did:plc:{text}")).expect("a DID")
}

async fn enqueue(store: &dyn Store, consumer: ConsumerId, range: std::ops::Range<u64>) {
    for from in range.clone().step_by(AT_ONCE as usize) {
        let dids: Vec<Did> = (from..(from + AT_ONCE).min(range.end)).map(did).collect();
        let added = store.enqueue(consumer, &dids).await.expect("enqueue");
        assert_eq!(added, dids.len() as u64);
    }
}

fn hosts() -> String {
    (1..=HOSTS).fold(String::new(), |mut text, n| {
        writeln!(text, "INSERT INTO host (id, name) VALUES ({n}, 'host{n}.example.com');").expect("a string");
        text
    })
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    Unplaced,
    Placed,
}

/// Medians of the batches.
struct Claims {
    due_hosts: Duration,
    totals: Duration,
    due: Duration,
    claim: Duration,
}

impl Claims {
    /// Seconds for a claim with its share of the reading ahead.
    fn each(&self) -> f64 {
        (self.due + self.claim).as_secs_f64() / BATCH as f64
    }

    fn print(&self, size: u64, shape: Shape) {
        let shape = match shape {
            Shape::Unplaced => "no host known",
            Shape::Placed => "2,800 hosts, skewed",
        };
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "backlog of {size}, {shape}: {:.0} claims a second ({:.1} us each: {:.1} to find it, {:.1} to claim and settle it); all hosts searched in {:.0} us, totals {:.0} us",
            1.0 / self.each(),
            self.each() * 1e6,
            micros(self.due) / BATCH as f64,
            micros(self.claim) / BATCH as f64,
            micros(self.due_hosts),
            micros(self.totals)
        );
    }
}

/// Finds, claims and settles as the dispatcher and its workers do. What is claimed fails and comes due later.
async fn claims(store: &dyn Store, shape: Shape) -> Claims {
    let consumer = store.consumer("backlog@1").await.expect("consumer");
    let mut batches = Vec::new();
    let mut turn = VecDeque::new();
    for _ in 0..BATCHES {
        let started = Instant::now();
        let due = store.due_hosts(NOW).await.expect("due hosts");
        let due_hosts = started.elapsed();
        if turn.is_empty() {
            turn.extend(due.hosts);
        }
        let started = Instant::now();
        store.totals(consumer).await.expect("totals");
        let totals = started.elapsed();
        let (mut found, mut worked) = (Duration::ZERO, Duration::ZERO);
        let mut claimed = 0;
        while claimed < BATCH {
            let host = turn.pop_front();
            let place = match (&host, shape) {
                (Some(host), Shape::Placed) => Where::Host(host),
                _ => Where::Unplaced,
            };
            let started = Instant::now();
            let dids = store.due(place, NOW, PAGE.min(BATCH - claimed)).await.expect("due");
            found += started.elapsed();
            let started = Instant::now();
            claimed += work(store, dids).await;
            worked += started.elapsed();
        }
        batches.push(Claims { due_hosts, totals, due: found, claim: worked });
    }
    let median = |part: fn(&Claims) -> Duration| {
        let mut times: Vec<Duration> = batches.iter().map(part).collect();
        times.sort();
        times[times.len() / 2]
    };
    Claims {
        due_hosts: median(|batch| batch.due_hosts),
        totals: median(|batch| batch.totals),
        due: median(|batch| batch.due),
        claim: median(|batch| batch.claim),
    }
}

async fn work(store: &dyn Store, dids: Vec<Did>) -> usize {
    let workers = futures::stream::iter(dids).map(|did| async move {
        let job = store.claim(&did, NOW).await.expect("claim").pop().expect("a job");
        let event = JobEvent::Failed { kind: FailureKind::Connect, attempt: 1, retry_at: NOW.plus(Duration::from_secs(3600)) };
        store.settle(job.id, job.epoch, event, "refused", &[]).await.expect("settle");
    });
    workers.buffer_unordered(WORKERS).count().await
}
