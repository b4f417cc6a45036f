use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::{RandomWrites, World};
use crate::job::OpSet;

/// How a [`Writer`] writes.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Commits a second, above 0. The writer falls behind rather than hurry when the receiver is slow.
    pub per_second: f64,
    /// The seed of the writes.
    pub seed: u64,
    /// Op sets that may wait for the receiver (at least 1); then the writer waits.
    pub capacity: usize,
    /// Ends after this many commits.
    pub limit: u64,
}

impl Default for WriterOptions {
    /// 50 commits a second without end, 256 waiting.
    fn default() -> Self {
        Self { per_second: 50.0, seed: 1, capacity: 256, limit: u64::MAX }
    }
}

/// Writes to a world in the background, as its people would. Dropping it stops it.
#[derive(Debug)]
pub struct Writer {
    stop: watch::Sender<bool>,
    running: JoinHandle<u64>,
}

impl Writer {
    /// Starts it. The receiver gets the op set of every commit that was made, those of one repo in order, each after the host serves it;
    /// it ends when the writer has.
    ///
    /// # Panics
    /// When it is not called within a Tokio runtime.
    pub fn start(world: &Arc<World>, options: WriterOptions) -> (Self, mpsc::Receiver<OpSet>) {
        let (sender, receiver) = mpsc::channel(options.capacity.max(1));
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(write(Arc::clone(world), options, sender, stopped));
        (Self { stop, running }, receiver)
    }

    /// Stops it, and waits for the commit that is being made. Returns how many were made in all; the receiver gets all of them.
    pub async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        self.running.await.unwrap_or(0)
    }

    /// Waits until its limit is reached or the receiver is gone. Returns how many commits were made.
    pub async fn finished(self) -> u64 {
        self.running.await.unwrap_or(0)
    }
}

async fn write(world: Arc<World>, options: WriterOptions, sender: mpsc::Sender<OpSet>, mut stopped: watch::Receiver<bool>) -> u64 {
    let pause = Duration::from_secs_f64((1.0 / options.per_second.max(0.001)).max(0.005));
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut writes = RandomWrites::new(options.seed);
    let (mut made, mut due) = (0, 0.0);
    let mut last = Instant::now() - pause;
    while made < options.limit {
        tokio::select! {
            now = ticks.tick() => {
                due += (now - last).as_secs_f64() * options.per_second;
                last = now;
            }
            _ = stopped.wait_for(|stop| *stop) => return made,
        }
        let batch = (due as u64).min(options.capacity.max(1) as u64).min(options.limit - made);
        if batch == 0 {
            continue;
        }
        due = (due - batch as f64).min(1.0);
        // Room is taken before the write is made, so that no commit is made whose op set cannot be handed over.
        let room = tokio::select! {
            room = sender.reserve_many(batch as usize) => room,
            _ = stopped.wait_for(|stop| *stop) => return made,
        };
        let Ok(room) = room else { return made };
        let (world, mut next) = (Arc::clone(&world), writes);
        let batch = tokio::task::spawn_blocking(move || {
            let op_sets: Vec<OpSet> = (0..batch).map_while(|_| next.write(&world)).collect();
            (op_sets, next)
        });
        let Ok((op_sets, next)) = batch.await else { return made };
        (writes, made) = (next, made + op_sets.len() as u64);
        if op_sets.is_empty() {
            return made;
        }
        for (place, op_set) in room.zip(op_sets) {
            place.send(op_set);
        }
    }
    made
}
