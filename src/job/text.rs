use std::fmt;
use std::str::FromStr;

use super::{FailureKind, UnavailableStatus};

/// Text that names no failure kind or status: the store holds what this program never writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what}: {text:?}")]
pub struct UnknownName {
    /// What was expected.
    pub what: &'static str,
    /// The text.
    pub text: String,
}

/// Gives an enum its names: one list serves both directions, so that they cannot disagree.
macro_rules! named {
    ($type:ident, $what:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// The name, as the store keeps it and metrics show it.
            pub const fn as_str(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }
        impl FromStr for $type {
            type Err = UnknownName;
            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text {
                    $($name => Ok($type::$variant),)+
                    _ => Err(UnknownName { what: $what, text: text.chars().take(64).collect() }),
                }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named!(
    FailureKind,
    "failure kind",
    Resolve = "resolve",
    BrokenIdentity = "broken_identity",
    Connect = "connect",
    Timeout = "timeout",
    HttpClient = "http_client",
    HttpServer = "http_server",
    MalformedCar = "malformed_car",
    MissingBlock = "missing_block",
    InvalidTree = "invalid_tree",
    InvalidCommit = "invalid_commit",
    BadSignature = "bad_signature",
    TooLarge = "too_large",
    Stale = "stale",
    Handler = "handler",
    Local = "local",
);

named!(
    UnavailableStatus,
    "account status",
    Deactivated = "deactivated",
    Takendown = "takendown",
    Suspended = "suspended",
    Deleted = "deleted",
    NotFound = "not_found",
);
