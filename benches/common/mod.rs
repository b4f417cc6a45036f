//! What benchmarks of the whole program share: a handler that counts, and what the system says of a process.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use atproto_backfill::consumer::{Delivery, Handler, HandlerError, Record};
use atproto_backfill::job::Account;
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// A handler that counts changes.
#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU64);

impl Counting {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Handler for Counting {
    async fn create(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
    async fn update(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
    async fn delete(&self, _: &Did, _: Rev, _: RecordPathRef<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
    async fn account(&self, _: &Did, _: Account) -> Result<(), HandlerError> {
        Ok(())
    }
    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        self.0.fetch_add(delivery.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// User and system time of a process so far.
pub(crate) fn cpu_seconds(process: &str) -> Result<f64, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let behind_name = stat.rsplit_once(')').ok_or("no name in stat")?.1;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // The kernel counts for user space in hundredths of a second.
    Ok(ticks as f64 / 100.0)
}

/// Memory of this process that is resident: now ("VmRSS"), or when it was most ("VmHWM").
pub(crate) fn memory_bytes(which: &str) -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':')).ok_or("not in status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
