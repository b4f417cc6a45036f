//! Faults under the store, while the engine works on it: real ones, each of which must have shown itself before it is taken away again.
#![cfg(feature = "sqlite")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::engine::Options;
use atproto_backfill::job::JobState;
use atproto_backfill::sim::{Fault, Gate, Position, RandomWrites, Rule, Sizes, World};
use atproto_backfill::store::{MemoryStore, SqliteStore, Store, StoreError};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use crate::rig::{Following, LIMIT, Rig};
use crate::words::words;

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

/// A file that may be read and not written, whoever has it open, for as long as this is there.
struct ReadOnly<'a>(Vec<&'a Path>);

impl<'a> ReadOnly<'a> {
    /// None, with a line on stderr, where that cannot be had.
    fn make(test: &str, files: Vec<&'a Path>) -> Option<Self> {
        use std::io::Write;
        let files = Self(files);
        if files.set("+i") {
            return Some(files);
        }
        std::io::stderr()
            .write_all(format!("SKIPPED {test}: only root can make a file immutable, and not on every file system\n").as_bytes())
            .unwrap();
        None
    }

    fn set(&self, attribute: &str) -> bool {
        Command::new("chattr").arg(attribute).args(&self.0).output().is_ok_and(|output| output.status.success())
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        self.set("-i");
    }
}

#[tokio::test]
async fn a_database_that_turns_read_only_in_the_midst_of_a_backfill_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Arc::new(SqliteStore::open(&path).unwrap());
    let world = World::builder().seed(158).hosts(2).repos(12).sizes(Sizes::Each(400));
    let rig = Rig::with(world, Default::default(), Options::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    // It goes on from a third of the way.
    let gate = Gate::new();
    rig.network.faults().inject(Rule::new(Fault::Hold(Position::Byte(0), gate.clone())).after(4).times(4));
    rig.backfiller.start().await.unwrap();
    tokio::time::timeout(LIMIT, gate.reached(4)).await.expect("nothing is fetched");
    let wal = folder.path().join("store.db-wal");
    let test = "a_database_that_turns_read_only_in_the_midst_of_a_backfill_loses_nothing";
    let Some(read_only) = ReadOnly::make(test, vec![&path, &wal]) else { return };
    gate.open();
    met(&rig, 3).await;
    let error = rig.store.upstream("relay.test").await.unwrap_err();
    assert!(error.is_retryable() && !rig.backfiller.is_broken(), "it was taken for corruption: {}", words(&error));
    assert!(rig.backfiller.progress().await.unwrap().totals.complete < 12, "it was never needed");
    drop(read_only);
    finish(&rig).await;
    rig.assert_truth().await;
    rig.backfiller.stop().await.unwrap();
    assert_eq!(SqliteStore::check(&path).unwrap().faults, Vec::<String>::new());
}

/// A complete copy that followed its relay, closed, with a buffer that is not empty.
async fn closed(store: Arc<dyn Store>) -> Rig {
    let world = World::builder().seed(156).hosts(1).repos(3).sizes(Sizes::Each(300));
    let mut rig = Rig::following(world, Default::default(), Following::default(), store).await;
    rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
    rig.backfiller.start().await.unwrap();
    rig.idle().await;
    let mut writes = RandomWrites::new(156);
    writes.write(&rig.world).unwrap();
    rig.caught_up().await;
    rig.backfiller.stop().await.unwrap();
    for _ in 0..6 {
        rig.backfiller.buffer(&writes.write(&rig.world).unwrap()).await.unwrap();
    }
    rig.store = Arc::new(MemoryStore::new());
    rig.restart(Options::default()).await;
    rig
}

/// Damages that a start-up, or what comes after it, meets, and what the check says of them. `BYTES` is how the database writes these bytes.
const DAMAGES: [(&str, &str); 9] = [
    ("UPDATE op_set SET body = BYTES(00)", "op set"),
    ("UPDATE op_set SET rev = 'yesterday'", "yesterday"),
    ("UPDATE op_set SET rev = '2222222222222'", "2222222222222"),
    ("UPDATE job SET state = 'resting'", "resting"),
    ("UPDATE job SET data = BYTES(0102)", "2 bytes"),
    ("UPDATE job SET account = 'dancing'", "dancing"),
    ("UPDATE manifest_chunk SET bytes = BYTES(01) || substr(bytes, 2, 40)", "chunk"),
    ("UPDATE upstream SET seq = -3", "-3"),
    ("UPDATE upstream SET seq = NULL", "half a cursor"),
];

/// An engine over a store that was damaged while it was closed stops, and says nothing untrue before that.
async fn damaged(mut rig: Rig, store: Arc<dyn Store>, damage: &str) {
    let mut writes = RandomWrites::new(157);
    rig.store = store;
    rig.restart_following(Following::default()).await;
    let broken = async {
        if let Err(error) = rig.backfiller.start().await {
            assert!(error.to_string().contains("corrupt"), "{damage}: {error}");
            return;
        }
        while !rig.backfiller.is_broken() {
            // What it does not read by itself it reads for this.
            let _ = rig.backfiller.buffer(&writes.write(&rig.world).unwrap()).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, broken).await.is_ok(), "{damage}: the engine goes on: {:?}", rig.backfiller.progress().await);
    assert_eq!(rig.copy.violations(), Vec::<String>::new(), "{damage}");
    let _ = rig.backfiller.stop().await;
}

#[tokio::test]
async fn a_row_that_is_damaged_stops_the_engine_and_the_check_names_it_on_sqlite() {
    for (damage, named) in DAMAGES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let rig = closed(Arc::new(SqliteStore::open(&path).unwrap())).await;
        stranger(&path).batch_execute(&damage.replace("BYTES(", "x'").replace(')', "'").replace("40'", "40)")).unwrap();
        damaged(rig, Arc::new(SqliteStore::open(&path).unwrap()), damage).await;
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
    use crate::database::{Database, cluster};
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
    async fn a_row_that_is_damaged_stops_the_engine_and_the_check_names_it_on_postgres() {
        for (damage, named) in DAMAGES {
            let Some(database) = Database::create("a_row_that_is_damaged_stops_the_engine_and_the_check_names_it_on_postgres") else {
                return;
            };
            let rig = closed(Arc::new(PostgresStore::open(&database.url).unwrap())).await;
            let mut stranger = PgConnection::establish(&database.url).unwrap();
            stranger.batch_execute(&damage.replace("BYTES(", "'\\x").replace(')', "'::bytea").replace("40'::bytea", "40)")).unwrap();
            damaged(rig, Arc::new(PostgresStore::open(&database.url).unwrap()), damage).await;
            let faults = PostgresStore::check(&database.url).unwrap().faults;
            assert!(faults.iter().any(|fault| fault.contains(named)), "{damage}: {faults:?}");
        }
    }

    #[tokio::test]
    async fn rows_that_another_session_keeps_locked_hold_up_their_repo_alone() {
        let Some(database) = Database::create("rows_that_another_session_keeps_locked_hold_up_their_repo_alone") else { return };
        let store = Arc::new(PostgresStore::open(&database.url).unwrap());
        let world = World::builder().seed(159).hosts(2).repos(8).sizes(Sizes::Each(200));
        let rig = Rig::following(world, Default::default(), Following::default(), store).await;
        rig.backfiller.enqueue(&rig.world.dids()).await.unwrap();
        rig.backfiller.start().await.unwrap();
        rig.idle().await;
        let (dids, mut writes) = (rig.world.dids(), RandomWrites::new(159));
        writes.write_to(&rig.world, &dids[0]).unwrap();
        rig.caught_up().await;
        let (locked, failures) =
            (rig.backfiller.job(&dids[0]).await.unwrap().unwrap(), rig.backfiller.progress().await.unwrap().counts.store_failures);
        let mut stranger = PgConnection::establish(&database.url).unwrap();
        let lock = format!("BEGIN; SELECT FROM job WHERE id = {} FOR UPDATE; SELECT FROM upstream FOR UPDATE", locked.id.0);
        stranger.batch_execute(&lock).unwrap();
        for _ in 0..10 {
            dids.iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
        }
        rig.up_to_date(&dids[1..]).await;
        met(&rig, failures + 1).await;
        assert_eq!(rig.backfiller.job(&dids[0]).await.unwrap().unwrap().rev, locked.rev, "the lock was not felt");
        // The others are followed all the while.
        dids[1..].iter().for_each(|did| _ = writes.write_to(&rig.world, did).unwrap());
        rig.up_to_date(&dids[1..]).await;
        stranger.batch_execute("ROLLBACK").unwrap();
        rig.caught_up().await;
        rig.assert_truth().await;
        rig.backfiller.stop().await.unwrap();
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
