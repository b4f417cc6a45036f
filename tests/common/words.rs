//! What an error says.

use std::error::Error;

/// An error and all it comes from.
pub(crate) fn words<'a>(error: &'a (dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source()).map(|error| format!("{error}: ")).collect()
}
