use std::sync::Arc;

use super::{SyntaxError, text_identifier};

/// A decentralized identifier: names one account, and so one repo.
///
/// At most 2,048 bytes, case-sensitive, any method (whether a method can be resolved is the identity module's question).
/// Cloning is cheap. Rule: atproto.com/specs/did.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Did(Arc<str>);

impl Did {
    /// The longest DID, in bytes.
    pub const MAX_LEN: usize = 2048;

    /// Parses a DID.
    ///
    /// # Errors
    /// When the text breaks the syntax or the length limit.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        let broken = |rule| Err(SyntaxError::new("DID", rule, text));
        if text.len() > Self::MAX_LEN {
            return broken("longer than 2048 bytes");
        }
        let Some((method, id)) = text.strip_prefix("did:").and_then(|rest| rest.split_once(':')) else {
            return broken("must be did:<method>:<id>");
        };
        if method.is_empty() || !method.bytes().all(|b| b.is_ascii_lowercase()) {
            return broken("the method must be lower-case letters");
        }
        if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:%-".contains(&b)) {
            return broken("the id may hold only letters, digits and . _ : % -");
        }
        if id.is_empty() || id.ends_with([':', '%']) {
            return broken("the id must not be empty nor end in : or %");
        }
        Ok(Self(text.into()))
    }

    /// The whole text, `did:` included.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The method, for example `plc`.
    pub fn method(&self) -> &str {
        self.0[4..].split(':').next().unwrap_or_default()
    }

    /// What follows the method.
    pub fn id(&self) -> &str {
        &self.0[4 + self.method().len() + 1..]
    }
}

text_identifier!(Did);
