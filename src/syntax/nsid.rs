use super::{SyntaxError, text_identifier};

/// A namespaced identifier; names a collection. At most 317 bytes. Rule: atproto.com/specs/nsid.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nsid(Box<str>);

impl Nsid {
    /// The longest NSID, in bytes. The authority has no limit of its own: the interop vectors accept one of more than 253 bytes.
    pub const MAX_LEN: usize = 317;

    /// Parses an NSID and keeps it as written.
    ///
    /// # Errors
    /// When the text breaks the syntax or a length limit.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        match broken_rule(text.as_bytes()) {
            Some(rule) => Err(SyntaxError::new("NSID", rule, text)),
            None => Ok(Self(text.into())),
        }
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_identifier!(Nsid);

/// The first rule that `text` breaks as an NSID, if any. Runs once for each record of a walk, so it allocates nothing.
pub(super) fn broken_rule(text: &[u8]) -> Option<&'static str> {
    if text.len() > Nsid::MAX_LEN {
        return Some("longer than 317 bytes");
    }
    let Some(name_at) = text.iter().rposition(|&b| b == b'.') else {
        return Some("fewer than three segments");
    };
    let (authority, name) = (&text[..name_at], &text[name_at + 1..]);
    if !authority.contains(&b'.') {
        return Some("fewer than three segments");
    }
    let is_label = |label: &[u8]| {
        matches!(label.len(), 1..=63)
            && label.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-')
            && label[0] != b'-'
            && label[label.len() - 1] != b'-'
    };
    if !authority.split(|&b| b == b'.').all(is_label) {
        return Some("an authority segment that is not a domain label");
    }
    if !authority[0].is_ascii_alphabetic() {
        return Some("the first segment must begin with a letter");
    }
    let is_name = matches!(name.len(), 1..=63) && name.iter().all(u8::is_ascii_alphanumeric) && name[0].is_ascii_alphabetic();
    (!is_name).then_some("the name must be 1 to 63 letters and digits and begin with a letter")
}
