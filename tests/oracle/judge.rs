//! What the consumer and the store have to hold in the end.

use atproto_backfill::engine::{Counts, Progress};
use atproto_backfill::job::{Account, Job, JobState, UnavailableStatus};
use atproto_backfill::sim::{AccountStatus, World};
use atproto_backfill::syntax::Did;

use crate::consumer::Consumer;

/// In what they differ from the world, in words. `at_rest`: the jobs stand where the world does, too; one that has stopped may have had another look to take.
pub(crate) fn differences(world: &World, consumer: &Consumer, jobs: &[Job], at_rest: bool) -> Vec<String> {
    let of = |did: &Did| {
        let Some(job) = jobs.iter().find(|job| job.did == *did) else { return Some(format!("{did} has no job")) };
        let wrong = if world.status(did) == Some(AccountStatus::Active) {
            active(world, consumer, job, at_rest)
        } else {
            inactive(consumer, job, at_rest)
        };
        let undone = at_rest && (job.buffered_op_sets > 0 || !job.untold.is_empty());
        wrong.or_else(|| undone.then(|| "something is left to do".to_owned())).map(|wrong| format!("{did}: {wrong}: {job:?}"))
    };
    world.dids().iter().filter_map(of).collect()
}

fn active(world: &World, consumer: &Consumer, job: &Job, at_rest: bool) -> Option<String> {
    let (truth, held) = (world.truth(&job.did)?, consumer.repo(&job.did));
    if held.account.is_some_and(|account| account != Account::Active) {
        return Some(format!("it is active, told: {:?}", held.account));
    }
    let missing: Vec<&str> = truth
        .records
        .iter()
        .filter(|(path, (cid, _))| held.records.get(path.as_str()) != Some(cid))
        .map(|(path, _)| path.as_str())
        .collect();
    let extra: Vec<&String> =
        held.records.keys().filter(|path| path.parse().is_ok_and(|path| !truth.records.contains_key(&path))).collect();
    if !missing.is_empty() || !extra.is_empty() {
        let (first, second) = (missing.first(), extra.first());
        return Some(format!(
            "{} records are missing or old ({first:?}), {} are more than there are ({second:?})",
            missing.len(),
            extra.len()
        ));
    }
    let stands = job.state == JobState::Complete && (job.rev, job.records) == (Some(truth.rev), truth.records.len() as u64);
    (at_rest && !stands).then(|| format!("it does not stand at {} with {} records", truth.rev, truth.records.len()))
}

fn inactive(consumer: &Consumer, job: &Job, at_rest: bool) -> Option<String> {
    let held = consumer.repo(&job.did);
    match held.account {
        None | Some(Account::Active) => Some(format!("it is not active, told: {:?}", held.account)),
        Some(Account::Unavailable(UnavailableStatus::Deleted)) if !held.records.is_empty() => {
            Some("it is deleted, and records are held".to_owned())
        }
        // Records are to be kept as they were.
        Some(Account::Unavailable(_)) => {
            (at_rest && !matches!(job.state, JobState::Unavailable { .. })).then(|| "its job is not unavailable".to_owned())
        }
    }
}

/// I9: what came in and did not come out. `began_empty`: the store did, with this process.
pub(crate) fn unaccounted(progress: &Progress, began_empty: bool) -> Vec<String> {
    let Progress { counts, totals, follow, .. } = progress;
    let named = |names: &[&str]| counts.named().filter(|(name, _)| names.contains(name)).map(|(_, count)| count).sum::<u64>();
    let in_flight: usize = follow.iter().flat_map(|follow| &follow.upstreams).map(|upstream| upstream.in_flight).sum();
    let Counts { op_sets_received, events_received, events_taken, op_sets_buffered, .. } = *counts;
    let routed = ["buffered", "stale", "discarded", "gap", "unavailable", "rearming", "unknown"].map(|of| format!("op_sets_{of}"));
    let heard = ["taken", "untracked", "repeated", "unknown", "malformed", "unreadable", "passed"].map(|of| format!("events_{of}"));
    let settled = ["op_sets_received", "events_known", "events_dropped", "events_lost", "accounts_received", "identities_received"];
    let left = counts.op_sets_flushed + counts.op_sets_overtaken + totals.buffered_op_sets + totals.dropped_op_sets;
    let sums = [
        ("op sets received", op_sets_received, named(&routed.each_ref().map(String::as_str))),
        ("events received", events_received, named(&heard.each_ref().map(String::as_str))),
        ("events taken", events_taken, named(&settled) + in_flight as u64),
        ("op sets buffered", op_sets_buffered, if began_empty { left } else { op_sets_buffered }),
    ];
    sums.into_iter()
        .filter(|(_, whole, parts)| whole != parts)
        .map(|(name, whole, parts)| format!("{name}: {whole}, of which {parts}"))
        .collect()
}
