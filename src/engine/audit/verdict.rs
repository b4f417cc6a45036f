use crate::job::{Job, JobState, UnavailableStatus};
use crate::syntax::Rev;

/// What a host says of a repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It stands there.
    At(Rev),
    /// The account is not to be had, for that reason, if it named one that is known.
    Inactive(Option<UnavailableStatus>),
    /// Nothing, or nothing that makes sense.
    Nothing,
}

/// What becomes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is left alone.
    Fine,
    /// It is checked out again: its repo or account has moved.
    Moved,
    /// It is checked out again to be sure.
    Unsure,
}

/// Whether an audit asks hosts about a job in this state.
pub(super) fn is_asked_about(state: &JobState) -> bool {
    match state {
        JobState::Complete | JobState::Unavailable { .. } => true,
        JobState::Enqueued | JobState::InProgress | JobState::Failed { .. } => false,
    }
}

/// Judges a job by what its host says; `job` is read after the host has answered, so that what came over the firehose meanwhile counts.
pub(super) fn verdict(job: &Job, said: Said) -> Verdict {
    match (&job.state, said) {
        // Claimed since, or about to be: its checkout is newer than the audit.
        (JobState::Enqueued | JobState::InProgress | JobState::Failed { .. }, _) => Verdict::Fine,
        (JobState::Complete | JobState::Unavailable { .. }, Said::Nothing) => Verdict::Unsure,
        (JobState::Complete, Said::At(rev)) if job.known_rev().is_some_and(|known| rev <= known) => Verdict::Fine,
        (JobState::Complete, Said::At(_) | Said::Inactive(_)) => Verdict::Moved,
        (JobState::Unavailable { .. }, Said::At(_)) => Verdict::Moved,
        (&JobState::Unavailable { status: known }, Said::Inactive(status)) => match status {
            Some(status) if !is_as_good_as(known, status) => Verdict::Moved,
            Some(_) | None => Verdict::Fine,
        },
    }
}

/// Whether two reasons may be one: implementations do not tell all of them apart (protocol, getRepo and getLatestCommit).
fn is_as_good_as(known: UnavailableStatus, said: UnavailableStatus) -> bool {
    let kind = |status| match status {
        UnavailableStatus::Deactivated => 0,
        UnavailableStatus::Takendown | UnavailableStatus::Suspended => 1,
        UnavailableStatus::Deleted | UnavailableStatus::NotFound => 2,
    };
    kind(known) == kind(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Account, Epoch, FailureKind, JobId, Timestamp, UnavailableStatus};
    use crate::syntax::Did;

    fn rev(n: u64) -> Rev {
        Rev::from_parts(n, 0)
    }

    fn job(state: JobState, at: Option<u64>, min: Option<u64>) -> Job {
        Job {
            id: JobId(1),
            did: Did::new("did:plc:abc").unwrap(),
            state,
            epoch: Epoch(1),
            rev: at.map(rev),
            data: None,
            min_rev: min.map(rev),
            older: None,
            failures: 0,
            failure: String::new(),
            host: None,
            account: Account::Active,
            untold: Vec::new(),
            records: 0,
            buffered_op_sets: 0,
            buffered_bytes: 0,
        }
    }

    #[test]
    fn every_state_is_judged_as_the_table_of_the_module_says() {
        use Verdict::{Fine, Moved, Unsure};
        let unavailable = || JobState::Unavailable { status: UnavailableStatus::Deactivated };
        let failed = JobState::Failed { kind: FailureKind::Connect, attempt: 1, retry_at: Timestamp(0) };
        for (state, at, min, [below, equal, above, inactive, nothing]) in [
            (JobState::Complete, Some(5), None, [Fine, Fine, Moved, Moved, Unsure]),
            (JobState::Complete, Some(3), Some(5), [Fine, Fine, Moved, Moved, Unsure]),
            (JobState::Complete, Some(5), Some(3), [Fine, Fine, Moved, Moved, Unsure]),
            (unavailable(), Some(5), None, [Moved, Moved, Moved, Fine, Unsure]),
            (unavailable(), None, None, [Moved, Moved, Moved, Fine, Unsure]),
            (JobState::Enqueued, Some(5), None, [Fine; 5]),
            (JobState::InProgress, Some(5), None, [Fine; 5]),
            (failed, Some(5), None, [Fine; 5]),
        ] {
            let job = job(state, at, min);
            for (said, expected) in [
                (Said::At(rev(4)), below),
                (Said::At(rev(5)), equal),
                (Said::At(rev(6)), above),
                (Said::Inactive(None), inactive),
                (Said::Inactive(Some(UnavailableStatus::Deactivated)), inactive),
                (Said::Nothing, nothing),
            ] {
                assert_eq!(verdict(&job, said), expected, "{said:?} of {job:?}");
            }
            assert_eq!(is_asked_about(&job.state), nothing == Unsure, "{job:?}");
        }
    }

    #[test]
    fn an_unavailable_account_of_which_another_reason_is_told_has_moved() {
        use UnavailableStatus::{Deactivated, Deleted, NotFound, Suspended, Takendown};
        for (known, said, expected) in [
            (Deactivated, Deleted, Verdict::Moved),
            (Deactivated, NotFound, Verdict::Moved),
            (Takendown, Deactivated, Verdict::Moved),
            (Deleted, Takendown, Verdict::Moved),
            (Deleted, NotFound, Verdict::Fine),
            (Suspended, Takendown, Verdict::Fine),
            (Takendown, Takendown, Verdict::Fine),
        ] {
            let job = job(JobState::Unavailable { status: known }, Some(5), None);
            assert_eq!(verdict(&job, Said::Inactive(Some(said))), expected, "{known:?}, then {said:?}");
        }
    }
}
