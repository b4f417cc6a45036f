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

/// Events a second and lag of the firehoses, what waits, and how far the repos are; what is most often looked at first, since a terminal may be narrow.
fn line(progress: &Progress, rate: f64, now: i64) -> String {
    let (totals, counts) = (&progress.totals, &progress.counts);
    let mut parts = vec![format!("{rate:.0} events/s")];
    let upstreams = progress.follow.as_ref().map(|follow| follow.upstreams.as_slice()).unwrap_or_default();
    let connected = upstreams.iter().filter(|upstream| upstream.connected).count();
    if connected < upstreams.len() {
        parts.push(format!("{connected}/{} connected", upstreams.len()));
    }
    let lag = upstreams.iter().filter_map(|upstream| upstream.last).map(|last| now - last.time.0).max();
    parts.push(lag.map_or("lag unknown".to_owned(), |lag| format!("lag {:.1} s", (lag.max(0) as f64) / 1000.0)));
    parts.push(format!("{} buffered", count(totals.buffered_op_sets)));
    parts.push(format!("{} refused", count(counts.refused)));
    let repos = totals.complete + totals.in_progress + totals.enqueued + totals.failed + totals.unavailable;
    parts.push(format!("{}/{} complete", count(totals.complete), count(repos)));
    let gaps: u64 = progress.follow.iter().flat_map(|follow| follow.gaps.values()).sum();
    let others = [
        (totals.in_progress, "in progress"),
        (totals.enqueued, "waiting"),
        (totals.failed, "failed"),
        (totals.unavailable, "unavailable"),
        (gaps, "gaps"),
        (totals.records, "records"),
    ];
    parts.extend(others.into_iter().filter(|(number, _)| *number > 0).map(|(number, of)| format!("{} {of}", count(number))));
    if let Some(audit) = &progress.audit {
        parts.push(format!("audit at {}", count(audit.passed)));
    }
    parts.join("  ")
}
