use super::{FailureKind, IllegalMove, JobEvent, JobState};

impl JobState {
    /// The state after `event`. Holds every legal move (design, "Job states"); the store applies no other.
    ///
    /// # Errors
    /// When the event cannot happen to a job in this state.
    pub fn on(&self, event: &JobEvent) -> Result<JobState, IllegalMove> {
        use JobState::{Complete, Enqueued, Failed, InProgress, Unavailable};
        let illegal = || Err(IllegalMove { state: self.clone(), event: event.clone() });
        match (event, self) {
            // A checkout under way or waiting is what was asked for.
            (JobEvent::Wanted, InProgress) => Ok(InProgress),
            (JobEvent::Wanted, Enqueued | Complete | Failed { .. } | Unavailable { .. }) => Ok(Enqueued),

            (JobEvent::Claimed, Enqueued | Failed { .. }) => Ok(InProgress),
            (JobEvent::Claimed, InProgress | Complete | Unavailable { .. }) => illegal(),

            (JobEvent::Released | JobEvent::Abandoned, InProgress) => Ok(Enqueued),
            (JobEvent::Released | JobEvent::Abandoned, Enqueued | Complete | Failed { .. } | Unavailable { .. }) => illegal(),

            (JobEvent::Finished, InProgress) => Ok(Complete),
            (JobEvent::Finished, Enqueued | Complete | Failed { .. } | Unavailable { .. }) => illegal(),

            (&JobEvent::Failed { kind, attempt, retry_at }, InProgress | Complete) => Ok(Failed { kind, attempt, retry_at }),
            (&JobEvent::Older { attempt, retry_at, .. }, InProgress) => Ok(Failed { kind: FailureKind::Stale, attempt, retry_at }),
            (JobEvent::Failed { .. }, Enqueued | Failed { .. } | Unavailable { .. }) => illegal(),
            (JobEvent::Older { .. }, Enqueued | Complete | Failed { .. } | Unavailable { .. }) => illegal(),

            (JobEvent::Gap, InProgress | Complete) => Ok(Enqueued),
            (JobEvent::Gap, Enqueued | Failed { .. } | Unavailable { .. }) => illegal(),

            // An account event may come at any time, and a second one may tell another status.
            (&JobEvent::Unavailable { status }, Enqueued | InProgress | Complete | Failed { .. } | Unavailable { .. }) => {
                Ok(Unavailable { status })
            }
        }
    }

    /// Whether op sets are buffered and delivered: a claim is open, or a lane follows.
    pub fn is_held(&self) -> bool {
        match self {
            JobState::InProgress | JobState::Complete => true,
            JobState::Enqueued | JobState::Failed { .. } | JobState::Unavailable { .. } => false,
        }
    }
}
