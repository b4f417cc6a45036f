//! The status of `backfill run`: one line on a terminal, a log line each minute elsewhere.

use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::cli::report::count;
use crate::engine::{Backfiller, Progress};

/// Shows the status for as long as it is polled.
pub(super) async fn show(backfiller: Backfiller) -> Infallible {
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar
    });
    let mut ticks = tokio::time::interval(if bar.is_some() { Duration::from_millis(500) } else { Duration::from_secs(60) });
    let (mut at, mut received) = (Instant::now(), 0);
    loop {
        ticks.tick().await;
        let Ok(progress) = backfiller.progress().await else { continue };
        let seconds = at.elapsed().as_secs_f64().max(0.001);
        let rate = (progress.counts.events_received - received) as f64 / seconds;
        (at, received) = (Instant::now(), progress.counts.events_received);
        let line = line(&progress, rate, crate::cli::run::now());
        match &bar {
            Some(bar) => bar.set_message(line),
            None => tracing::info!("{line}"),
        }
    }
}

/// Events a second and lag of the firehoses, jobs by state, and what waits.
fn line(progress: &Progress, rate: f64, now: i64) -> String {
    let (totals, counts) = (&progress.totals, &progress.counts);
    let mut parts = vec![format!("{rate:.0} events/s")];
    if let Some(follow) = &progress.follow {
        let connected = follow.upstreams.iter().filter(|upstream| upstream.connected).count();
        if connected < follow.upstreams.len() {
            parts.push(format!("{connected}/{} connected", follow.upstreams.len()));
        }
        let lag = follow.upstreams.iter().filter_map(|upstream| upstream.last).map(|last| now - last.time.0).max();
        parts.push(lag.map_or("lag unknown".to_owned(), |lag| format!("lag {:.1} s", (lag.max(0) as f64) / 1000.0)));
        let lost: u64 = follow.gaps.values().sum();
        if lost > 0 {
            parts.push(format!("{} gaps", count(lost)));
        }
    }
    parts.push(format!(
        "{} complete, {} in progress, {} waiting, {} failed, {} unavailable",
        count(totals.complete),
        totals.in_progress,
        count(totals.enqueued),
        count(totals.failed),
        count(totals.unavailable)
    ));
    parts.push(format!("{} records", count(totals.records)));
    parts.push(format!("{} buffered", count(totals.buffered_op_sets)));
    parts.push(format!("{} refused", count(counts.refused)));
    if let Some(audit) = &progress.audit {
        parts.push(format!("audit at {}", count(audit.passed)));
    }
    parts.join("  ")
}
