use super::{JobState, Timestamp, UnknownName};

impl JobState {
    /// The name of the state, without what it carries: `enqueued`, `in_progress`, `complete`, `failed`, `unavailable`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            JobState::Enqueued => "enqueued",
            JobState::InProgress => "in_progress",
            JobState::Complete => "complete",
            JobState::Failed { .. } => "failed",
            JobState::Unavailable { .. } => "unavailable",
        }
    }

    /// The name with its reason, as the store keeps it: `failed:connect`, `unavailable:deleted`, others as [`JobState::as_str`].
    /// Numbers are kept beside it.
    pub fn to_text(&self) -> String {
        match self {
            JobState::Enqueued | JobState::InProgress | JobState::Complete => self.as_str().to_owned(),
            JobState::Failed { kind, .. } => format!("failed:{kind}"),
            JobState::Unavailable { status } => format!("unavailable:{status}"),
        }
    }

    /// Reads [`JobState::to_text`]; `attempt` and `retry_at` are those of a failed state and unused for any other.
    ///
    /// # Errors
    /// For any text that `to_text` does not write.
    pub fn from_text(text: &str, attempt: u32, retry_at: Timestamp) -> Result<Self, UnknownName> {
        match text.split_once(':') {
            None => match text {
                "enqueued" => Ok(JobState::Enqueued),
                "in_progress" => Ok(JobState::InProgress),
                "complete" => Ok(JobState::Complete),
                _ => Err(unknown(text)),
            },
            Some(("failed", kind)) => Ok(JobState::Failed { kind: kind.parse()?, attempt, retry_at }),
            Some(("unavailable", status)) => Ok(JobState::Unavailable { status: status.parse()? }),
            Some(_) => Err(unknown(text)),
        }
    }
}

fn unknown(text: &str) -> UnknownName {
    UnknownName { what: "job state", text: text.chars().take(64).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{FailureKind, UnavailableStatus};

    fn every_state() -> Vec<JobState> {
        let failed = FailureKind::ALL.iter().map(|&kind| JobState::Failed { kind, attempt: 7, retry_at: Timestamp(99) });
        let unavailable = UnavailableStatus::ALL.iter().map(|&status| JobState::Unavailable { status });
        [JobState::Enqueued, JobState::InProgress, JobState::Complete].into_iter().chain(failed).chain(unavailable).collect()
    }

    #[test]
    fn every_state_reads_back_as_it_was_written() {
        let states = every_state();
        let texts: std::collections::BTreeSet<_> = states.iter().map(JobState::to_text).collect();
        assert_eq!(texts.len(), states.len(), "two states share a text");
        for state in states {
            assert_eq!(JobState::from_text(&state.to_text(), 7, Timestamp(99)), Ok(state));
        }
    }

    #[test]
    fn every_kind_and_status_reads_back_as_it_was_written() {
        for &kind in FailureKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        for &status in UnavailableStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
        }
    }

    #[test]
    fn text_that_is_not_exactly_a_state_is_refused() {
        for text in [
            "",
            "Enqueued",
            "complete ",
            "failed",
            "failed:",
            "failed:Connect",
            "unavailable:",
            "complete:",
            "in_progress:x",
            "gone:deleted",
        ] {
            assert!(JobState::from_text(text, 1, Timestamp(0)).is_err(), "{text:?} was read as a state");
        }
    }
}
