//! The identifiers of the protocol, parsed once and valid ever after.
//!
//! What goes in is text or bytes from the network; what comes out is a type that cannot hold anything else.
//! Rules and limits: the AT Protocol specifications for DID, NSID, record key, TID and repository paths.

mod datetime;
mod did;
mod nsid;
mod path;
mod record_key;
mod rev;
mod seq;

pub use datetime::Datetime;
pub use did::Did;
pub use nsid::Nsid;
pub use path::{RecordPath, RecordPathRef};
pub use record_key::RecordKey;
pub use rev::Rev;
pub use seq::Seq;

/// Text that is not the identifier it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what} ({rule}): {text:?}")]
#[non_exhaustive]
pub struct SyntaxError {
    /// The identifier that was expected, for example `"DID"`.
    pub what: &'static str,
    /// The rule that the text breaks.
    pub rule: &'static str,
    /// The text, cut to 64 characters.
    pub text: String,
}

impl SyntaxError {
    fn new(what: &'static str, rule: &'static str, text: &str) -> Self {
        Self { what, rule, text: text.chars().take(64).collect() }
    }
}

/// Implements what every validated text has in common: parsing, display, and serde by way of both.
macro_rules! text_identifier {
    ($name:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.as_str())
            }
        }
        impl std::str::FromStr for $name {
            type Err = $crate::syntax::SyntaxError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}
use text_identifier;
