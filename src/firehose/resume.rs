use std::fmt;

use crate::syntax::Seq;

/// Where an upstream is asked to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resume {
    /// With what happens from now on: no cursor.
    Live,
    /// With the oldest event that it retains: cursor 0.
    Oldest,
    /// With what follows an event. Some upstreams begin with that event itself; both are coped with.
    After(Seq),
}

impl Resume {
    /// The `cursor` parameter of the request; none leaves it out.
    pub fn cursor(self) -> Option<u64> {
        match self {
            Self::Live => None,
            Self::Oldest => Some(0),
            Self::After(seq) => Some(seq.get()),
        }
    }
}

impl From<Option<Seq>> for Resume {
    fn from(seq: Option<Seq>) -> Self {
        seq.map_or(Self::Live, Self::After)
    }
}

impl fmt::Display for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Oldest => f.write_str("oldest"),
            Self::After(seq) => write!(f, "after {seq}"),
        }
    }
}
