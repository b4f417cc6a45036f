//! What a check finds: nothing in a store that was only ever worked with, and every kind of damage by the row that has it.

use atproto_backfill::job::{FailureKind, JobEvent, Timestamp};
use atproto_backfill::store::{Advance, ManifestChange, StoreError};

use crate::support::{Ground, NOW, advance, at, chunks, claimed, did, op_set, path};

/// A store with jobs in every state, all that a job can have, and an upstream.
async fn fill(ground: &impl Ground) {
    let store = ground.open().unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    for n in 0..5 {
        let job = claimed(&*store, consumer, &did(n)).await;
        store.place(&did(n), "a.test").await.unwrap();
        let many = if n == 1 { 70 * 256 } else { 600 };
        store.advance(Advance { manifest: ManifestChange::Append(chunks(0..many)), ..advance(&job) }).await.unwrap();
        store.intend(job.id, job.epoch, &[path(90_000), path(90_001)]).await.unwrap().unwrap();
        match n {
            // In progress, with a buffer.
            0 => _ = store.append(consumer, &op_set(&did(n), 4, 5, 100), 1 << 20).await.unwrap(),
            3 => {
                let event = JobEvent::Failed { kind: FailureKind::Handler, attempt: 2, retry_at: Timestamp(NOW.0 + 5) };
                _ = store.settle(job.id, job.epoch, event, "said no", &[path(1000)]).await.unwrap();
            }
            _ => {
                store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
                // More than are read at once.
                for rev in 5..25 {
                    store.append(consumer, &op_set(&did(n), rev, rev + 1, 100), 1 << 20).await.unwrap();
                }
            }
        }
    }
    store.enqueue(consumer, &[did(9)]).await.unwrap();
    store.upstream("relay.test").await.unwrap();
}

async fn a_store_that_was_only_worked_with_is_sound_whether_or_not_it_is_open(ground: impl Ground) {
    fill(&ground).await;
    let store = ground.open().unwrap();
    for check in [ground.check().unwrap(), {
        drop(store);
        ground.check().unwrap()
    }] {
        assert_eq!(check.faults, Vec::<String>::new());
        assert!(check.is_sound());
        assert_eq!((check.jobs, check.records, check.op_sets), (6, 4 * 600 + 70 * 256, 1 + 3 * 20));
    }
    let stats = ground.stats().unwrap();
    assert_eq!((stats.repos, stats.hosts, stats.upstreams.as_slice()), (6, 1, [("relay.test".to_owned(), None)].as_slice()));
    let (name, totals) = &stats.consumers[0];
    assert_eq!((name.as_str(), totals.complete, totals.in_progress, totals.failed, totals.enqueued), ("posts@1", 3, 1, 1, 1));
    assert!(stats.bytes > 100_000, "{stats:?}");
}

async fn every_damage_is_found(ground: impl Ground) {
    fill(&ground).await;
    let complete = "(SELECT min(id) FROM job WHERE state = 'complete')";
    let damages = [
        ("UPDATE job SET state = 'resting' WHERE id = ?", "unknown job state"),
        ("UPDATE job SET rev = 'yesterday' WHERE id = ?", "yesterday"),
        ("UPDATE job SET rev = NULL WHERE id = ?", "complete at"),
        ("UPDATE job SET records = records + 1 WHERE id = ?", "records in its manifest"),
        ("UPDATE op_set SET bytes = bytes + 1 WHERE seq = (SELECT max(seq) FROM op_set WHERE job = ?)", "in its buffer"),
        ("UPDATE job SET min_rev = '7zzzzzzzzzzzz' WHERE id = ?", "complete at"),
        ("UPDATE job SET host = host + 1 WHERE id = ?", "its host is not its repo's"),
        ("UPDATE job SET repo = 9999 WHERE id = ?", "it is of no repo"),
        ("UPDATE job SET state = 'enqueued', due_at = 0 WHERE id = ?", "with op sets in its buffer"),
        (
            "UPDATE manifest_chunk SET entries = entries - 1 WHERE job = ? AND first = (SELECT min(first) FROM manifest_chunk WHERE job = ?)",
            "behind the last entry",
        ),
        (
            "DELETE FROM manifest_chunk WHERE job = ? AND first = (SELECT max(first) FROM manifest_chunk WHERE job = ?)",
            "records in its manifest",
        ),
        (
            "UPDATE manifest_chunk SET first = 'a.b.c/2' WHERE job = ? AND first = (SELECT max(first) FROM manifest_chunk WHERE job = ?)",
            "broken path",
        ),
        (
            "UPDATE manifest_chunk SET bytes = ZERO WHERE job = ? AND first = (SELECT max(first) FROM manifest_chunk WHERE job = ?)",
            "manifest chunk",
        ),
        ("UPDATE op_set SET body = ZERO WHERE job = ? AND seq = (SELECT min(seq) FROM op_set WHERE job = ?)", "op set"),
        (
            "UPDATE op_set SET rev = '3zzzzzzzzzzzz' WHERE job = ? AND seq = (SELECT min(seq) FROM op_set WHERE job = ?)",
            "not above the one before",
        ),
        (
            "UPDATE op_set SET data = NULL WHERE job = ? AND seq = (SELECT max(seq) FROM op_set WHERE job = ?)",
            "not the one that its row names",
        ),
        ("DELETE FROM op_set WHERE job = ?", "its sums are"),
        ("DELETE FROM op_set WHERE job = ? AND seq = (SELECT max(seq) FROM op_set WHERE job = ?)", "its sums are"),
        (
            "DELETE FROM op_set WHERE job = ? AND seq = (SELECT min(seq) FROM op_set WHERE job = ? AND seq > (SELECT min(seq) FROM op_set WHERE job = ?))",
            "count on from the one before",
        ),
        ("UPDATE intent SET paths = ZERO WHERE job = (SELECT min(job) FROM intent)", "intent"),
        ("UPDATE intent SET epoch = 99 WHERE job = (SELECT min(job) FROM intent)", "still to come"),
        ("UPDATE op_set SET job = 9999 WHERE job = ?", "belong to no job"),
        ("UPDATE total SET complete = complete + 1", "its sums are"),
        ("UPDATE total SET failed = -1", "below zero"),
        ("UPDATE job SET consumer = 77 WHERE id = ?", "which is not there"),
        ("UPDATE upstream SET seq = 5", "half a cursor"),
        ("UPDATE upstream SET seq = -5, time = 1", "sequence number -5"),
    ];
    for (damage, found) in damages {
        let kept = ["job", "manifest_chunk", "op_set", "intent", "total", "upstream"];
        kept.iter().for_each(|table| ground.execute(&format!("CREATE TABLE kept_{table} AS SELECT * FROM {table}")));
        ground.execute(&damage.replace('?', complete).replace("ZERO", ground.zero()));
        let check = ground.check().unwrap();
        assert!(!check.is_sound(), "{damage}: nothing is found");
        assert!(check.faults.iter().any(|fault| fault.contains(found)), "{damage}: {:?}", check.faults);
        for table in kept {
            ground.execute(&format!("DELETE FROM {table}"));
            ground.execute(&format!("INSERT INTO {table} SELECT * FROM kept_{table}"));
            ground.execute(&format!("DROP TABLE kept_{table}"));
        }
        assert_eq!(ground.check().unwrap().faults, Vec::<String>::new(), "after {damage}");
    }
}

async fn a_schema_that_is_not_this_programs_is_not_read(ground: impl Ground) {
    fill(&ground).await;
    ground.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('99990101000000')");
    assert!(matches!(ground.check(), Err(StoreError::NewerSchema { .. })));
    ground.execute("DELETE FROM __diesel_schema_migrations");
    let error = ground.check().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(matches!(ground.stats(), Err(StoreError::Unavailable { .. })));
}

over_both!(
    a_store_that_was_only_worked_with_is_sound_whether_or_not_it_is_open,
    every_damage_is_found,
    a_schema_that_is_not_this_programs_is_not_read,
);
