use crate::syntax::{Nsid, SyntaxError};

/// Which collections a consumer takes: exact NSIDs and `prefix.*`. Empty takes all. It is a filter, not a start key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CollectionFilter {
    exact: Vec<Nsid>,
    /// Each with its final dot, so that `app.bsky.*` does not take `app.bskyx.y`.
    prefixes: Vec<String>,
}

/// A pattern that is neither an NSID nor an NSID's beginning followed by `.*`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the collection pattern {pattern:?} is neither an NSID nor <beginning of an NSID>.*")]
pub struct FilterError {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it as an NSID.
    #[source]
    pub source: SyntaxError,
}

impl CollectionFilter {
    /// A filter from patterns, for example `["app.bsky.feed.post", "app.bsky.graph.*"]`.
    ///
    /// # Errors
    /// On the first pattern that can match nothing.
    pub fn new<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let broken = |source| FilterError { pattern: pattern.into(), source };
            match pattern.strip_suffix(".*") {
                // A beginning is valid when some NSID begins so: two more segments make any valid beginning whole.
                Some(beginning) => {
                    Nsid::new(&format!("{beginning}.a.a")).map_err(broken)?;
                    filter.prefixes.push(format!("{beginning}."));
                }
                None => filter.exact.push(Nsid::new(pattern).map_err(broken)?),
            }
        }
        Ok(filter)
    }

    /// Whether the consumer takes records of this collection.
    pub fn takes(&self, collection: &str) -> bool {
        (self.exact.is_empty() && self.prefixes.is_empty())
            || self.exact.iter().any(|nsid| nsid.as_str() == collection)
            || self.prefixes.iter().any(|prefix| collection.starts_with(prefix.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_exact_names_and_whole_segments_only() {
        let filter = CollectionFilter::new(["app.bsky.feed.post", "app.bsky.graph.*"]).unwrap();
        for (collection, taken) in [
            ("app.bsky.feed.post", true),
            ("app.bsky.feed.postgate", false),
            ("app.bsky.feed.like", false),
            ("app.bsky.graph.follow", true),
            ("app.bsky.graphs.follow", false),
            ("app.bsky.graph", false),
        ] {
            assert_eq!(filter.takes(collection), taken, "{collection}");
        }
        assert!(CollectionFilter::default().takes("a.b.c"));
    }

    #[test]
    fn refuses_patterns_that_match_nothing() {
        for pattern in ["", "*", ".*", "app.bsky.feed.p*", "app..*", "app.bsky", "-app.*"] {
            assert!(CollectionFilter::new([pattern]).is_err(), "{pattern:?}");
        }
    }
}
