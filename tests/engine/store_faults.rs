//! Faults under the store, while the engine works on it: real ones, each of which must have shown itself before it is taken away again.
#![cfg(feature = "sqlite")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::Options;
use atproto_backfill::job::JobState;
use atproto_backfill::sim::{RandomWrites, Sizes, World};
use atproto_backfill::store::{MemoryStore, SqliteStore, Store, StoreError};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use crate::rig::{LIMIT, Rig};

/// A file system in memory of a size of its own; only root can make one.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// None, with a line on stderr, where this user may not.
    fn mount(test: &str, options: &str) -> Option<Self> {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { folder });
        }
        std::io::stderr().write_all(format!("SKIPPED {test}: only root can mount a file system\n").as_bytes()).unwrap();
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves this much room, in KiB, beside what is there.
    fn leave(&self, room: u64) {
        let output = Command::new("df").args(["--output=used", "-k"]).arg(self.path()).output().unwrap();
        let used: u64 = String::from_utf8(output.stdout).unwrap().lines().last().unwrap().trim().parse().unwrap();
        self.remount(&format!("size={}k", used + room));
    }

    fn remount(&self, options: &str) {
        let status = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status().unwrap();
        assert!(status.success(), "{options}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, since a test that fails may still have files open.
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

fn words(error: &StoreError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

/// Waits until the engine has met failures of its store.
async fn met(rig: &Rig, failures: u64) {
    rig.until(|progress| progress.counts.store_failures >= failures).await;
}

/// All repos to the end, those that failed meanwhile, or are about to, without their pause.
async fn finish(rig: &Rig) {
    let finished = async {
        for did in rig.world.dids() {
            while rig.backfiller.backfill_repo(&did).await.unwrap().state != JobState::Complete {}
        }
    };
    tokio::time::timeout(LIMIT, finished).await.expect("not in time");
}

/// A disk that is full, under whatever store; room is made while the engine runs.
async fn fills_up(disk: &SmallDisk, store: Arc<dyn Store>) {
    let world = World::builder().seed(154).hosts(2).repos(6).sizes(Sizes::Each(20_000));
    let rig = Rig::with(world, Default::default(), Options::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    disk.leave(1024);
    rig.backfiller.start().await.unwrap();
    met(&rig, 3).await;
    // Longer than any room that is left; nobody asks for it later.
    let error = rig.store.upstream(&"u".repeat(4 << 20)).await.unwrap_err();
    let said = words(&error).to_lowercase();
    assert!(error.is_retryable() && (said.contains("full") || said.contains("no space left")), "the error does not name the cause: {said}");
    assert!(!rig.backfiller.is_broken(), "a full disk was taken for corruption");
    disk.remount("size=256m");
    finish(&rig).await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
}

#[tokio::test]
async fn a_disk_that_is_full_until_room_is_made_loses_nothing_on_sqlite() {
    let Some(disk) = SmallDisk::mount("a_disk_that_is_full_until_room_is_made_loses_nothing_on_sqlite", "size=64m") else { return };
    let store = Arc::new(SqliteStore::open(disk.path().join("store.db")).unwrap());
    fills_up(&disk, store).await;
    let check = SqliteStore::check(disk.path().join("store.db")).unwrap();
    assert_eq!(check.faults, Vec::<String>::new());
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_refused_when_the_database_is_opened() {
    let Some(disk) = SmallDisk::mount("a_disk_that_cannot_be_written_is_refused_when_the_database_is_opened", "size=8m") else { return };
    let path = disk.path().join("store.db");
    drop(SqliteStore::open(&path).unwrap());
    disk.remount("ro");
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }) && words(&error).to_lowercase().contains("read-only"), "{}", words(&error));
    disk.remount("rw");
    drop(SqliteStore::open(&path).unwrap());
}

/// Another program's connection to the same file, which waits for the store's transaction under way.
fn stranger(path: &Path) -> SqliteConnection {
    let mut stranger = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    stranger.batch_execute("PRAGMA busy_timeout = 30000").unwrap();
    stranger
}

#[tokio::test]
async fn a_database_that_another_program_locks_again_and_again_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let options = atproto_backfill::store::SqliteOptions { busy_timeout: Duration::from_millis(30), ..Default::default() };
    let store = Arc::new(SqliteStore::open_with(&path, options).unwrap());
    let world = World::builder().seed(155).hosts(2).repos(12).sizes(Sizes::Each(300));
    let rig = Rig::with(world, Default::default(), Options::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    let mut stranger = stranger(&path);
    let mut writes = RandomWrites::new(155);
    rig.backfiller.start().await.unwrap();
    stranger.batch_execute("BEGIN IMMEDIATE").unwrap();
    for round in 1..=3 {
        met(&rig, round * 2).await;
        stranger.batch_execute("ROLLBACK").unwrap();
        for _ in 0..40 {
            let op_set = writes.write(&rig.world).unwrap();
            while let Err(error) = rig.backfiller.buffer(&op_set).await {
                println!("again: {error}");
            }
        }
        if round < 3 {
            stranger.batch_execute("BEGIN IMMEDIATE").unwrap();
            // Something to write for, whatever is left to do.
            let failed = rig.backfiller.buffer(&writes.write(&rig.world).unwrap()).await;
            assert!(failed.is_err(), "the lock was not felt");
            stranger.batch_execute("ROLLBACK").unwrap();
            stranger.batch_execute("BEGIN IMMEDIATE").unwrap();
        }
    }
    finish(&rig).await;
    rig.assert_truth_after_restart().await;
    rig.backfiller.stop().await.unwrap();
}

/// A complete copy on SQLite, closed, with a buffer that is not empty.
async fn closed(path: &Path) -> Rig {
    let world = World::builder().seed(156).hosts(1).repos(3).sizes(Sizes::Each(300));
    let mut rig = Rig::with(world, Default::default(), Options::default(), Arc::new(SqliteStore::open(path).unwrap())).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    rig.backfiller.stop().await.unwrap();
    let mut writes = RandomWrites::new(156);
    for _ in 0..6 {
        rig.backfiller.buffer(&writes.write(&rig.world).unwrap()).await.unwrap();
    }
    rig.store = Arc::new(MemoryStore::new());
    rig.restart(Options::default()).await;
    rig
}

#[tokio::test]
async fn a_row_that_is_damaged_stops_the_engine_and_the_check_names_it() {
    for (damage, named) in [
        ("UPDATE op_set SET body = x'00'", "op set"),
        ("UPDATE op_set SET rev = 'yesterday'", "yesterday"),
        ("UPDATE job SET state = 'resting'", "resting"),
        ("UPDATE job SET data = x'0102'", "2 bytes"),
        ("UPDATE manifest_chunk SET bytes = x'01' || substr(bytes, 2, 40)", "chunk"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut rig = closed(&path).await;
        let mut writes = RandomWrites::new(157);
        stranger(&path).batch_execute(damage).unwrap();
        rig.store = Arc::new(SqliteStore::open(&path).unwrap());
        rig.restart(Options::default()).await;
        rig.backfiller.start().await.unwrap();
        let broken = async {
            while !rig.backfiller.is_broken() {
                // What it does not read by itself it reads for this.
                let _ = rig.backfiller.buffer(&writes.write(&rig.world).unwrap()).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(LIMIT, broken).await.is_ok(), "{damage}: the engine goes on: {:?}", rig.backfiller.progress().await);
        assert_eq!(rig.copy.violations(), Vec::<String>::new(), "{damage}");
        let _ = rig.backfiller.stop().await;
        let faults = SqliteStore::check(&path).unwrap().faults;
        assert!(faults.iter().any(|fault| fault.contains(named)), "{damage}: {faults:?}");
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use atproto_backfill::store::PostgresStore;
    use diesel::pg::PgConnection;

    use super::*;
    use crate::database::cluster;
    use crate::own_cluster::OwnCluster;

    /// Its tables on a small disk; the log of the server is not.
    #[tokio::test]
    async fn a_disk_that_is_full_until_room_is_made_loses_nothing_on_postgres() {
        let test = "a_disk_that_is_full_until_room_is_made_loses_nothing_on_postgres";
        if cluster(test).is_none() {
            return;
        }
        let own = OwnCluster::start();
        let server = std::fs::metadata(own.folder().join("data")).unwrap();
        let options = format!("size=64m,uid={},gid={},mode=700", server.uid(), server.gid());
        let Some(disk) = SmallDisk::mount(test, &options) else { return };
        // The server comes through this folder to its own.
        let mut connection = PgConnection::establish(&own.url).unwrap();
        connection.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.path().display())).unwrap();
        connection.batch_execute("CREATE DATABASE small TABLESPACE small").unwrap();
        let url = crate::database::url_of(&own.url, "small");
        fills_up(&disk, Arc::new(PostgresStore::open(&url).unwrap())).await;
        assert_eq!(PostgresStore::check(&url).unwrap().faults, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_server_that_crashes_three_times_during_a_backfill_costs_nothing() {
        if cluster("a_server_that_crashes_three_times_during_a_backfill_costs_nothing").is_none() {
            return;
        }
        let own = OwnCluster::start();
        let store = Arc::new(PostgresStore::open(&own.url).unwrap());
        let world = World::builder().seed(157).hosts(2).repos(30).sizes(Sizes::Each(400));
        let rig = Rig::with(world, Default::default(), Options::default(), store).await;
        rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
        rig.backfiller.start().await.unwrap();
        let mut writes = RandomWrites::new(157);
        let ended = Arc::new(AtomicBool::new(false));
        let crashes = tokio::task::spawn_blocking({
            let (folder, ended) = (own.folder(), Arc::clone(&ended));
            move || {
                (0..3).for_each(|_| _ = OwnCluster::run("restart", &folder));
                ended.store(true, Ordering::SeqCst);
            }
        });
        while !ended.load(Ordering::SeqCst) {
            let op_set = writes.write(&rig.world).unwrap();
            while let Err(error) = rig.backfiller.buffer(&op_set).await {
                println!("again: {error}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        crashes.await.unwrap();
        // Each reading thread finds out by itself that its connection is gone.
        let mut answers = 0;
        let progress = loop {
            match rig.backfiller.progress().await {
                Ok(progress) if answers == 20 => break progress,
                Ok(_) => answers += 1,
                Err(_) => answers = 0,
            }
        };
        assert!(progress.counts.store_failures > 0, "no crash was felt");
        finish(&rig).await;
        rig.assert_truth_after_restart().await;
        rig.backfiller.stop().await.unwrap();
    }
}
