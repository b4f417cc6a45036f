use super::{Nsid, RecordKey, SyntaxError, nsid, record_key, text_identifier};

/// The path of a record in its repo: `<collection>/<record key>`, at most 830 bytes.
/// Rule: atproto.com/specs/repository, "Repository Paths".
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordPath(Box<str>);

impl RecordPath {
    /// The longest path, in bytes: a collection of 317, a slash, a record key of 512.
    pub const MAX_LEN: usize = Nsid::MAX_LEN + 1 + RecordKey::MAX_LEN;

    /// Parses a path.
    ///
    /// # Errors
    /// When the text is not exactly a collection, one slash and a record key.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        RecordPathRef::new(text.as_bytes()).map(|path| path.to_owned())
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The collection, as text that is a valid NSID.
    pub fn collection(&self) -> &str {
        self.as_ref().collection()
    }

    /// The record key, as text that is a valid record key.
    pub fn record_key(&self) -> &str {
        self.as_ref().record_key()
    }

    /// The same path, borrowed.
    pub fn as_ref(&self) -> RecordPathRef<'_> {
        RecordPathRef(&self.0)
    }
}

text_identifier!(RecordPath);

/// A borrowed [`RecordPath`]: what a walk hands out without allocating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordPathRef<'a>(&'a str);

impl<'a> RecordPathRef<'a> {
    /// Parses the bytes of a tree key as a path.
    ///
    /// # Errors
    /// As [`RecordPath::new`].
    pub fn new(key: &'a [u8]) -> Result<Self, SyntaxError> {
        let broken = |rule| SyntaxError::new("record path", rule, &String::from_utf8_lossy(key));
        let slash = key.iter().position(|&b| b == b'/').ok_or_else(|| broken("no slash"))?;
        if let Some(rule) = nsid::broken_rule(&key[..slash]).or_else(|| record_key::broken_rule(&key[slash + 1..])) {
            return Err(broken(rule));
        }
        std::str::from_utf8(key).map(Self).map_err(|_| broken("not ASCII"))
    }

    /// Takes text that was parsed before as what it is.
    pub(crate) fn assume_valid(text: &'a str) -> Self {
        debug_assert!(Self::new(text.as_bytes()).is_ok(), "{text:?} is not a path");
        Self(text)
    }

    /// The whole text.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The collection.
    pub fn collection(self) -> &'a str {
        self.0.split_once('/').map_or("", |(collection, _)| collection)
    }

    /// The record key.
    pub fn record_key(self) -> &'a str {
        self.0.split_once('/').map_or("", |(_, key)| key)
    }

    /// An owned copy.
    pub fn to_owned(self) -> RecordPath {
        RecordPath(self.0.into())
    }
}

impl std::fmt::Display for RecordPathRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
