use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cli::report::{count, say};
use crate::engine::{Backfiller, Progress};

/// Shows how far a backfiller is, until it is finished: bars on a terminal, a line every two seconds elsewhere.
pub(super) struct Show {
    over: CancellationToken,
    showing: JoinHandle<()>,
}

impl Show {
    pub(super) fn start(backfiller: &Backfiller, repos: u64) -> Self {
        let over = CancellationToken::new();
        let showing = tokio::spawn(show(backfiller.clone(), repos, over.clone()));
        Self { over, showing }
    }

    pub(super) async fn finish(self) {
        self.over.cancel();
        // It only shows: how it ended does not matter.
        let _ = self.showing.await;
    }
}

async fn show(backfiller: Backfiller, repos: u64, over: CancellationToken) {
    let bars = std::io::stderr().is_terminal().then(|| Bars::new(repos));
    let mut ticks = tokio::time::interval(Duration::from_millis(if bars.is_some() { 100 } else { 2000 }));
    let began = Instant::now();
    loop {
        let last = tokio::select! {
            () = over.cancelled() => true,
            _ = ticks.tick() => false,
        };
        let Ok(progress) = backfiller.progress().await else { return };
        match &bars {
            Some(bars) => bars.update(&progress, last),
            None => say(line(&progress, repos, began.elapsed())),
        }
        if last {
            return;
        }
    }
}

fn line(progress: &Progress, repos: u64, elapsed: Duration) -> String {
    let (totals, counts) = (&progress.totals, &progress.counts);
    let percent = totals.complete * 100 / repos.max(1);
    format!(
        "{percent}% ({}/{} repos, {} records)  {}s  buffered {} ops, flushed {}  refused {}  failed {}",
        count(totals.complete),
        count(repos),
        count(totals.records),
        elapsed.as_secs(),
        count(counts.ops_buffered),
        count(counts.ops_flushed),
        counts.refused,
        totals.failed
    )
}

struct Bars {
    repos: ProgressBar,
    records: ProgressBar,
    ops: ProgressBar,
    // Draws the others as long as it lives.
    _all: MultiProgress,
}

impl Bars {
    fn new(repos: u64) -> Self {
        let all = MultiProgress::new();
        let style = |template| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let repos = all.add(ProgressBar::new(repos));
        repos.set_style(style("repos    {wide_bar} {pos}/{len}  {percent}%  {elapsed}"));
        let records = all.add(ProgressBar::no_length());
        records.set_style(style("records  {human_pos}  ({per_sec})"));
        let ops = all.add(ProgressBar::no_length());
        ops.set_style(style("ops      {msg}"));
        Self { repos, records, ops, _all: all }
    }

    fn update(&self, progress: &Progress, last: bool) {
        let (totals, counts) = (&progress.totals, &progress.counts);
        self.repos.set_position(totals.complete);
        self.records.set_position(totals.records);
        let message = format!(
            "{} buffered, {} flushed, {} in buffers now;  {} in progress, {} failed, {} refused",
            count(counts.ops_buffered),
            count(counts.ops_flushed),
            totals.buffered_op_sets,
            totals.in_progress,
            totals.failed,
            counts.refused
        );
        self.ops.set_message(message);
        if last {
            self.repos.abandon();
            self.records.abandon();
            self.ops.abandon();
        }
    }
}
