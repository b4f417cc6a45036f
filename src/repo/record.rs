//! Records: whether bytes are one, what is wrong with those that are not, and reading those that are.

use std::convert::Infallible;

use serde::Deserialize;

use super::scan;

/// The largest record, in bytes of DAG-CBOR (atproto.com/guides/data-validation).
pub const MAX_BYTES: usize = 1_048_576;

/// Why bytes are no record. The record is dropped alone: nothing else of its repo is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RecordFault {
    /// It is larger than [`MAX_BYTES`].
    #[error("it has {bytes} bytes, more than {MAX_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is some other value than a map.
    #[error("it is not a map")]
    NotAMap,
    /// It is not in canonical DAG-CBOR, or beyond what the data model allows.
    #[error("at byte {offset}, {rule}")]
    Encoding {
        /// Where the offending value or key begins, in bytes from the beginning of the record.
        offset: usize,
        /// What is wrong with it.
        rule: CborRule,
    },
}

/// A rule of DAG-CBOR or the data model that bytes break (atproto.com/specs/data-model).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CborRule {
    /// A value ends after the record does.
    #[error("the record is cut short")]
    Truncated,
    /// The record ends before its bytes do.
    #[error("the record has ended, and more bytes follow")]
    Trailing,
    /// A string, array or map without length.
    #[error("a length is indefinite")]
    Indefinite,
    /// The length encodings 28 to 30.
    #[error("a reserved encoding is used")]
    Reserved,
    /// A number in more bytes than it needs.
    #[error("a number or length is not as short as it can be")]
    NotMinimal,
    /// An integer outside of signed 64 bits.
    #[error("an integer does not fit 64 bits with a sign")]
    Integer,
    /// A float of any width.
    #[error("there is a float")]
    Float,
    /// `undefined` or another simple value than false, true and null.
    #[error("there is a simple value other than false, true and null")]
    Simple,
    /// A tag other than 42.
    #[error("there is a tag other than that of links")]
    Tag,
    /// A link whose content is not a zero byte and a CID.
    #[error("a link holds no CID")]
    Cid,
    /// Text that is not UTF-8.
    #[error("a text is not UTF-8")]
    Utf8,
    /// A map key that is not text.
    #[error("a map key is not text")]
    KeyType,
    /// A map key of no or more than 8,192 bytes.
    #[error("a map key is empty or longer than 8192 bytes")]
    KeyLength,
    /// A map key that is given twice, or after one that should follow it.
    #[error("a map key is given twice or out of order")]
    KeyOrder,
    /// More than 131,072 elements or pairs.
    #[error("an array or a map has more than 131072 elements")]
    Elements,
    /// More than 32 levels.
    #[error("arrays and maps are nested more than 32 deep")]
    Nesting,
}

impl RecordFault {
    /// A word for counting faults by their kind.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::NotAMap => "not_a_map",
            Self::Encoding { .. } => "encoding",
        }
    }
}

/// Checks that bytes are a record: one map in canonical DAG-CBOR, within the limits of the data model. Allocates nothing.
///
/// What the record is about, its `$type` included, is not looked at.
///
/// # Errors
/// The first fault.
pub fn check(bytes: &[u8]) -> Result<(), RecordFault> {
    scan_record(bytes, &mut ())
}

/// As [`check`], telling a sink about the parts.
pub(super) fn scan_record(bytes: &[u8], sink: &mut impl scan::Sink) -> Result<(), RecordFault> {
    if bytes.len() > MAX_BYTES {
        return Err(RecordFault::TooLarge { bytes: bytes.len() });
    }
    // A map's head is 0xa0 and above; 0xc0 is a tag.
    if matches!(bytes.first(), Some(first) if first >> 5 != 5) {
        return Err(RecordFault::NotAMap);
    }
    scan::scan(bytes, sink)
}

/// Reads a record's bytes into any type that serde can read; `ipld_core::ipld::Ipld` takes every record. Texts and bytes may be borrowed.
///
/// # Errors
/// When the record does not have the shape of the type.
pub fn decode<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, DecodeError> {
    serde_ipld_dagcbor::from_slice(bytes).map_err(DecodeError)
}

/// A record that does not have the shape that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the record does not have the expected shape: {0}")]
pub struct DecodeError(serde_ipld_dagcbor::DecodeError<Infallible>);
