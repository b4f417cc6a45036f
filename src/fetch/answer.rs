use serde::Deserialize;

use super::FetchCause;
use crate::job::UnavailableStatus;

/// How much of the body of an error is read.
pub(super) const MAX_ERROR_BODY: usize = 8 * 1024;

/// What an error answer says, taken from a body that may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ErrorBody {
    /// The name of the error; empty when the body is not the protocol's JSON.
    name: String,
    /// The message, or the beginning of a body that is something else.
    message: String,
}

#[derive(Deserialize)]
struct Json {
    error: String,
    #[serde(default)]
    message: Option<String>,
}

impl ErrorBody {
    /// Reads the beginning of a body, [`MAX_ERROR_BODY`] bytes at most.
    pub(super) fn parse(body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(Json { error, message }) => Self { name: printable(&error, 64), message: printable(&message.unwrap_or_default(), 200) },
            Err(_) => Self { name: String::new(), message: printable(&String::from_utf8_lossy(body), 80) },
        }
    }

    /// Whether the host turned the request down for load, which any status may come with.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.name.as_str(), "RateLimitExceeded" | "TooManyRequests")
    }

    /// Decides what an answer other than a success or a refusal means. The name of the error counts before the status, because the
    /// reference PDS and the relay answer the same thing with different ones.
    pub(super) fn cause(self, status: u16) -> FetchCause {
        if let Some(account) = account_status(&self.name) {
            return FetchCause::Unavailable { status, error: self.name, account };
        }
        let error = match (self.name.as_str(), self.message.as_str()) {
            ("", "") => "no body".to_owned(),
            ("", message) => format!("{message:?}"),
            (name, "") => name.to_owned(),
            (name, message) => format!("{name}: {message}"),
        };
        if status >= 500 { FetchCause::Server { status, error } } else { FetchCause::Client { status, error } }
    }
}

fn account_status(error_name: &str) -> Option<UnavailableStatus> {
    match error_name {
        "RepoNotFound" => Some(UnavailableStatus::NotFound),
        "RepoDeleted" => Some(UnavailableStatus::Deleted),
        "RepoTakendown" => Some(UnavailableStatus::Takendown),
        "RepoSuspended" => Some(UnavailableStatus::Suspended),
        // A relay's word for an account that is not active for a reason that it does not know.
        "RepoDeactivated" | "RepoInactive" => Some(UnavailableStatus::Deactivated),
        _ => None,
    }
}

/// The text in one line, cut to `max` characters.
pub(super) fn printable(text: &str, max: usize) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(max).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(status: u16, body: &str) -> FetchCause {
        ErrorBody::parse(body.as_bytes()).cause(status)
    }

    #[test]
    fn the_name_of_the_error_decides_whatever_the_status() {
        use UnavailableStatus::{Deactivated, Deleted, NotFound, Suspended, Takendown};
        for (name, expected) in [
            ("RepoNotFound", NotFound),
            ("RepoDeleted", Deleted),
            ("RepoTakendown", Takendown),
            ("RepoSuspended", Suspended),
            ("RepoDeactivated", Deactivated),
            ("RepoInactive", Deactivated),
        ] {
            for status in [400, 403, 404, 410, 500] {
                let cause = cause(status, &format!(r#"{{"error":"{name}","message":"m"}}"#));
                assert_eq!(cause, FetchCause::Unavailable { status, error: name.into(), account: expected });
            }
        }
    }

    #[test]
    fn a_body_that_is_not_json_is_quoted_and_cut() {
        let html = format!("<html>\n{}", "x".repeat(500));
        let FetchCause::Client { status: 404, error } = cause(404, &html) else { panic!("not a client error") };
        assert!(error.len() < 90 && error.starts_with("\"<html> xx"), "{error}");
        assert_eq!(cause(502, ""), FetchCause::Server { status: 502, error: "no body".into() });
    }

    #[test]
    fn other_names_are_kept_with_their_message() {
        assert_eq!(
            cause(404, r#"{"error":"RepoNotSynchronized","message":"later"}"#),
            FetchCause::Client { status: 404, error: "RepoNotSynchronized: later".into() }
        );
        assert_eq!(
            cause(500, r#"{"error":"InternalServerError"}"#),
            FetchCause::Server { status: 500, error: "InternalServerError".into() }
        );
    }

    #[test]
    fn a_refusal_is_known_by_its_name() {
        assert!(ErrorBody::parse(br#"{"error":"RateLimitExceeded","message":"Rate Limit Exceeded"}"#).is_refusal());
        assert!(!ErrorBody::parse(b"Rate Limit Exceeded").is_refusal());
    }
}
