//! Times: what passes on the wall, and what the writing thread works. Where other programs share the processors only the second says much.

use std::time::{Duration, Instant};

/// From a moment on.
pub(crate) struct Clock {
    began: Instant,
    worked: Duration,
}

/// What passed between two moments.
pub(crate) struct Passed {
    pub(crate) wall: Duration,
    /// Of the processor, by the store's writing thread.
    pub(crate) writer: Duration,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), worked: writer_time() }
    }

    pub(crate) fn passed(&self) -> Passed {
        Passed { wall: self.began.elapsed(), writer: writer_time() - self.worked }
    }
}

impl Passed {
    /// Says how many there were in a second, and what one costs the writer.
    pub(crate) fn print(&self, what: &str, number: u64, how: &str) {
        let each = self.writer.as_secs_f64() / number as f64;
        println!(
            "{what}: {:.0} a second, {how}; the writing thread is busy for {:.2} us with each, so at most {:.0} a second",
            number as f64 / self.wall.as_secs_f64(),
            each * 1e6,
            1.0 / each
        );
    }
}

/// The time that threads called "store-writer" have had of a processor so far.
fn writer_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads").filter_map(Result::ok);
    let is_writer = |folder: &std::path::Path| std::fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == "store-writer");
    let time = |folder: &std::path::Path| {
        // Nanoseconds on a processor, then waiting for one.
        let stat = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    threads.map(|thread| thread.path()).filter(|folder| is_writer(folder)).filter_map(|folder| time(&folder)).sum()
}
