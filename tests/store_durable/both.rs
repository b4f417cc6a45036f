//! What holds over every database.

use std::time::Duration;

use atproto_backfill::job::{JobEvent, Route, Timestamp};
use atproto_backfill::manifest::Edit;
use atproto_backfill::repo::Link;
use atproto_backfill::store::{Advance, ManifestChange, Standing, StoreError};
use atproto_backfill::syntax::Did;

/// Makes one test for each database of each listed function.
macro_rules! over_both {
    ($($name:ident),+ $(,)?) => {
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::sqlite::File::new()).await;
            })+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                if let Some(database) = crate::database::Database::create(concat!(module_path!(), "::", stringify!($name))) {
                    super::$name(database).await;
                }
            })+
        }
    };
}

use crate::support::{Ground, NOW, advance, at, chunks, claimed, did, everything, op_set, path, rev};

async fn a_database_that_is_opened_again_holds_what_it_held(ground: impl Ground) {
    let store = ground.open().unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    for n in 0..4 {
        let job = claimed(&*store, consumer, &did(n)).await;
        store.place(&did(n), "a.test").await.unwrap();
        let append = Advance { manifest: ManifestChange::Append(chunks(0..600)), ..advance(&job) };
        store.advance(append).await.unwrap();
        store.intend(job.id, job.epoch, &[path(900), path(901)]).await.unwrap().unwrap();
        if n > 0 {
            store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
            assert_eq!(store.append(consumer, &op_set(&did(n), 5, 6, 100), 1 << 20).await.unwrap(), Route::Buffered { complete: true });
        }
        if n == 3 {
            let event = JobEvent::Failed { kind: atproto_backfill::job::FailureKind::Handler, attempt: 2, retry_at: Timestamp(NOW.0 + 5) };
            store.settle(job.id, job.epoch, event, "said no", &[path(1000)]).await.unwrap();
        }
    }
    let before = everything(&*store, consumer).await;
    drop(store);
    let store = ground.open().unwrap();
    assert_eq!(store.consumer("posts@1").await.unwrap(), consumer);
    assert_eq!(everything(&*store, consumer).await, before);
    assert_eq!(store.recover(NOW).await.unwrap(), 1);
    assert_eq!(store.unflushed(None, 9).await.unwrap().len(), 2);
    // A retry time outlives the restart, and so does the count of failures.
    assert!(store.claim(&did(3), NOW).await.unwrap().is_empty());
    assert_eq!(store.claim(&did(3), Timestamp(NOW.0 + 5)).await.unwrap()[0].failures, 2);
}

async fn what_was_asked_for_before_a_drop_is_written(ground: impl Ground) {
    let store = ground.open().unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    let dids: Vec<Did> = (0..5000).map(did).collect();
    // Asked for, and then nobody waits for the answer.
    let asked = store.enqueue(consumer, &dids);
    assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err(), "it was done before it could be left alone");
    drop(store);
    let store = ground.open().unwrap();
    assert_eq!(store.totals(consumer).await.unwrap().enqueued, 5000);
}

async fn one_act_that_fails_does_not_undo_the_others_of_its_commit(ground: impl Ground) {
    let store = ground.open().unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    let job = claimed(&*store, consumer, &did(1)).await;
    let edit = |n: u64| Edit { path: path(n), cid: Some(Link::of(b"x")) };
    let acts = (0..200u64).map(|n| {
        // Every second one writes its first chunk and fails at its second, which does not come after it.
        let [behind, before] = [20_000 + n, 10_000].map(|n| chunks(n..n + 1));
        let manifest = if n % 2 == 0 { ManifestChange::Apply(vec![edit(n)]) } else { ManifestChange::Append([behind, before].concat()) };
        let act = Advance { manifest, ..advance(&job) };
        let store = store.clone();
        tokio::spawn(async move { (n, store.advance(act).await) })
    });
    for outcome in futures::future::join_all(acts.collect::<Vec<_>>()).await {
        match outcome.unwrap() {
            (n, Ok(standing)) => assert_eq!((n % 2, standing), (0, Standing::Held)),
            (n, Err(error)) => assert!(n % 2 == 1 && matches!(error, StoreError::OutOfOrder { .. }), "{n}: {error}"),
        }
    }
    assert_eq!(store.totals(consumer).await.unwrap().records, 100);
    let held: u32 = store.manifest(job.id, None, 100).await.unwrap().iter().map(|chunk| chunk.entries).sum();
    assert_eq!(held, 100);
}

async fn text_that_this_program_never_writes_is_corruption_and_is_loud(ground: impl Ground) {
    let zero = format!("UPDATE job SET data = {}", ground.zero());
    let store = ground.open().unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    for (n, damage) in [
        "UPDATE job SET state = 'completed'",
        "UPDATE job SET state = 'failed:tired', due_at = 5",
        "UPDATE job SET state = 'enqueued', due_at = NULL",
        "UPDATE job SET rev = 'zzzzzzzzzzzzz'",
        &zero,
        "UPDATE job SET older = '3k 1 1'",
        "UPDATE job SET records = -1",
    ]
    .into_iter()
    .enumerate()
    {
        let did = did(n as u32);
        let job = claimed(&*store, consumer, &did).await;
        store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
        ground.execute(&format!("{damage} WHERE id = {}", job.id.0));
        for error in [
            store.job(consumer, &did).await.err(),
            store.append(consumer, &op_set(&did, 5, 6, 9), u64::MAX).await.err(),
            store.advance(advance(&job)).await.err(),
        ] {
            let named = format!("job {}", job.id.0);
            assert!(matches!(error, Some(StoreError::Corrupt { ref what }) if what.contains(&named)), "{damage}: {error:?}");
        }
    }
}

async fn migrations_go_up_and_down_and_up_again(ground: impl Ground) {
    ground.up();
    let up = ground.tables();
    assert!(up > 8);
    ground.down();
    assert_eq!(ground.tables(), 0, "something is left after all migrations were undone");
    ground.up();
    assert_eq!(ground.tables(), up);
    ground.open().unwrap();
}

/// The version before what a buffer holds was told by its rows.
fn before_buffers(ground: &impl Ground) -> &'static str {
    if ground.zero().starts_with('x') { "20260101000001" } else { "20260101000002" }
}

async fn buffers_are_told_the_same_before_and_after_a_migration(ground: impl Ground) {
    let store = ground.open().unwrap();
    let consumer = store.consumer("posts@1").await.unwrap();
    for n in 1..4 {
        let job = claimed(&*store, consumer, &did(n)).await;
        store.advance(Advance { position: at(5), finish: true, ..advance(&job) }).await.unwrap();
        for rev in 5..5 + u64::from(n) {
            store.append(consumer, &op_set(&did(n), rev, rev + 1, rev as usize), 1 << 20).await.unwrap();
        }
        // The first goes, so that the last one is all of the first job's buffer, or none of it.
        let (seq, first) = store.buffered(job.id, 1).await.unwrap().remove(0);
        store.advance(Advance { flushed: Some(seq), position: at(6), ..advance(&job) }).await.unwrap();
        assert_eq!(first.rev, rev(6));
    }
    let jobs = store.jobs(consumer, None, 10).await.unwrap();
    assert_eq!(
        jobs.iter().map(|job| (job.buffered_op_sets, job.min_rev)).collect::<Vec<_>>(),
        [(0, Some(rev(6))), (1, Some(rev(7))), (2, Some(rev(8)))]
    );
    drop(store);
    ground.down_to(before_buffers(&ground));
    for job in &jobs {
        let of_job = format!("FROM job WHERE id = {} AND min_rev = '{}'", job.id.0, job.min_rev.unwrap());
        assert_eq!(ground.number(&format!("SELECT buffered_op_sets AS n {of_job}")) as u64, job.buffered_op_sets);
        assert_eq!(ground.number(&format!("SELECT buffered_bytes AS n {of_job}")) as u64, job.buffered_bytes);
    }
    let store = ground.open().unwrap();
    assert_eq!(store.jobs(consumer, None, 10).await.unwrap(), jobs);
    store.append(consumer, &op_set(&did(3), 8, 9, 40), 1 << 20).await.unwrap();
    let job = store.job(consumer, &did(3)).await.unwrap().unwrap();
    assert_eq!((job.buffered_op_sets, store.buffered(job.id, 1 << 20).await.unwrap().len()), (3, 3));
    drop(store);
    assert_eq!(ground.check().unwrap().faults, Vec::<String>::new());
}

async fn a_newer_schema_is_refused_and_left_alone(ground: impl Ground) {
    drop(ground.open().unwrap());
    ground.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('99990101000001')");
    let error = ground.open().unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { ref found, .. } if found == "99990101000001"), "{error:?}");
    assert!(ground.tables() > 8);
}

over_both!(
    a_database_that_is_opened_again_holds_what_it_held,
    what_was_asked_for_before_a_drop_is_written,
    one_act_that_fails_does_not_undo_the_others_of_its_commit,
    text_that_this_program_never_writes_is_corruption_and_is_loud,
    migrations_go_up_and_down_and_up_again,
    buffers_are_told_the_same_before_and_after_a_migration,
    a_newer_schema_is_refused_and_left_alone,
);
