//! What one audit knows of hosts. Bounded by the hosts that jobs are at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::core::Core;
use super::ask::Line;
use crate::fetch::Host;
use crate::syntax::Did;

/// Hosts by the names that jobs have.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<HashMap<String, Known>>);

#[derive(Debug, Clone)]
enum Known {
    At(Host),
    /// Not asked any more in this audit.
    GivenUp,
}

impl Hosts {
    /// A line to a host. `repos` are some that the store says are there; they are used to find it the first time.
    /// None when it was given up, or is not found.
    pub(super) async fn line(&self, core: &Arc<Core>, name: &str, repos: &[Did]) -> Option<Line> {
        let known = self.lock().get(name).cloned();
        match known {
            Some(Known::At(pds)) => Some(Line::to(core, name, pds)),
            Some(Known::GivenUp) => None,
            None => {
                let line = Line::find(core, name, repos).await?;
                self.lock().insert(name.to_owned(), Known::At(line.pds().clone()));
                Some(line)
            }
        }
    }

    /// Remembers what became of a line.
    pub(super) fn leave(&self, line: &Line) {
        if line.is_given_up() {
            tracing::warn!(host = line.name(), "audit: host given up, its repos are checked out again");
            self.lock().insert(line.name().to_owned(), Known::GivenUp);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
