use super::{SyntaxError, text_identifier};

/// The key of a record within its collection: 1 to 512 of `A-Z a-z 0-9 _ ~ . : -`, not `.` nor `..`.
/// Rule: atproto.com/specs/record-key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey(Box<str>);

impl RecordKey {
    /// The longest record key, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Parses a record key.
    ///
    /// # Errors
    /// When the text breaks the syntax or the length limit.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        match broken_rule(text.as_bytes()) {
            Some(rule) => Err(SyntaxError::new("record key", rule, text)),
            None => Ok(Self(text.into())),
        }
    }

    /// Whether bytes are a record key; without allocating.
    pub(crate) fn is_valid(bytes: &[u8]) -> bool {
        broken_rule(bytes).is_none()
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_identifier!(RecordKey);

/// The first rule that `text` breaks as a record key, if any.
pub(super) fn broken_rule(text: &[u8]) -> Option<&'static str> {
    if !matches!(text.len(), 1..=RecordKey::MAX_LEN) {
        return Some("must be 1 to 512 bytes");
    }
    if text == b"." || text == b".." {
        return Some("must not be . or ..");
    }
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'~' | b'.' | b':' | b'-');
    (!text.iter().all(allowed)).then_some("may hold only letters, digits and _ ~ . : -")
}
