//! Strict DAG-CBOR as commits, tree nodes and CAR headers need it: a cursor over bytes that allocates nothing.
//!
//! Every method answers `None` when the bytes break a rule of DAG-CBOR (atproto.com/specs/data-model): lengths that are not
//! minimal or not definite, ends that come too early. After a `None` the cursor stands anywhere.

use super::Link;

/// How deep values may nest; deeper is refused, so that hostile bytes cannot exhaust the stack.
const MAX_NESTING: usize = 32;

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

/// One value of any kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    /// The binary CID of a link, of whatever kind.
    Link(&'a [u8]),
    Boolean(bool),
    Null,
    /// How many elements, and a cursor that stands at the first.
    Array(u64, Reader<'a>),
    Map,
}

impl<'a> Value<'a> {
    /// The text, if it is one.
    pub(crate) fn text(self) -> Option<&'a str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The bytes, if it is a byte string.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// The truth value, if it is one.
    pub(crate) fn boolean(self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(value) } else { None }
    }

    /// The text or the null, if it is one of them.
    pub(crate) fn optional_text(self) -> Option<Option<&'a str>> {
        if let Self::Null = self { Some(None) } else { self.text().map(Some) }
    }

    /// The link, if it is one of the kind that the repository format allows.
    pub(crate) fn link(self) -> Option<Link> {
        if let Self::Link(cid) = self { Link::from_bytes(cid) } else { None }
    }

    /// The link or the null, if it is one of them.
    pub(crate) fn optional_link(self) -> Option<Option<Link>> {
        if let Self::Null = self { Some(None) } else { self.link().map(Some) }
    }
}

/// A cursor over the bytes of one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes have been read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Whether all bytes have been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(len).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// The major type and the argument of the next head; the argument must be as short as it can be.
    fn head(&mut self) -> Option<(u8, u64)> {
        let first = self.byte()?;
        let (major, low) = (first >> 5, first & 31);
        let value = match low {
            0..=23 => return Some((major, u64::from(low))),
            24..=27 => self.take(1 << (low - 24))?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
            _ => return None,
        };
        let least = [24, 1 << 8, 1 << 16, 1 << 32][usize::from(low - 24)];
        (value >= least).then_some((major, value))
    }

    fn expect(&mut self, expected: u8) -> Option<u64> {
        let (major, value) = self.head()?;
        (major == expected).then_some(value)
    }

    /// An unsigned integer.
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        self.expect(UNSIGNED)
    }

    /// A byte string.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.expect(BYTES)?;
        self.take(len)
    }

    /// A text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = self.expect(TEXT)?;
        std::str::from_utf8(self.take(len)?).ok()
    }

    /// The number of elements of an array, which follow.
    pub(crate) fn array(&mut self) -> Option<u64> {
        self.expect(ARRAY)
    }

    /// The number of pairs of a map, which follow.
    pub(crate) fn map(&mut self) -> Option<u64> {
        self.expect(MAP)
    }

    /// Whether a map is next. None at the end.
    pub(crate) fn peek_map(&self) -> Option<bool> {
        self.bytes.get(self.at).map(|first| first >> 5 == MAP)
    }

    /// The binary CID of a link, of whatever kind, without the zero byte before it.
    pub(crate) fn any_link(&mut self) -> Option<&'a [u8]> {
        if self.expect(TAG)? != 42 {
            return None;
        }
        self.bytes()?.strip_prefix(&[0]).filter(|cid| !cid.is_empty())
    }

    /// A link of the one kind that the repository format allows.
    pub(crate) fn link(&mut self) -> Option<Link> {
        Link::from_bytes(self.any_link()?)
    }

    /// Takes a `null` if one is next.
    pub(crate) fn null(&mut self) -> bool {
        let null = self.bytes.get(self.at) == Some(&0xf6);
        self.at += usize::from(null);
        null
    }

    /// Reads one value of any kind, checking all of it.
    pub(crate) fn value(&mut self) -> Option<Value<'a>> {
        let start = *self;
        let value = match self.head()? {
            (UNSIGNED, value) => return i64::try_from(value).ok().map(Value::Integer),
            (NEGATIVE, value) => return i64::try_from(value).ok().map(|value| Value::Integer(-1 - value)),
            (BYTES, len) => return self.take(len).map(Value::Bytes),
            (TEXT, len) => return std::str::from_utf8(self.take(len)?).ok().map(Value::Text),
            (ARRAY, len) => Value::Array(len, *self),
            (MAP, _) => Value::Map,
            (TAG, _) => {
                *self = start;
                return self.any_link().map(Value::Link);
            }
            (_, 20) => Value::Boolean(false),
            (_, 21) => Value::Boolean(true),
            _ => Value::Null,
        };
        *self = start;
        self.skip()?;
        Some(value)
    }

    /// Passes over one value of any kind, checking that it is strict DAG-CBOR.
    pub(crate) fn skip(&mut self) -> Option<()> {
        self.skip_nested(MAX_NESTING)
    }

    fn skip_nested(&mut self, nesting: usize) -> Option<()> {
        let start = self.at;
        match self.head()? {
            (UNSIGNED | NEGATIVE, value) => i64::try_from(value).is_ok().then_some(()),
            (BYTES, len) => self.take(len).map(drop),
            (TEXT, len) => std::str::from_utf8(self.take(len)?).ok().map(drop),
            (ARRAY, len) => (0..len).try_for_each(|_| self.skip_nested(nesting.checked_sub(1)?)),
            (MAP, len) => self.skip_pairs(len, nesting.checked_sub(1)?),
            (TAG, _) => {
                self.at = start;
                self.any_link().map(drop)
            }
            // Of the simple values only false, true and null; no floats.
            (_, value) => (self.at == start + 1 && (20..=22).contains(&value)).then_some(()),
        }
    }

    fn skip_pairs(&mut self, len: u64, nesting: usize) -> Option<()> {
        let mut previous = None;
        for _ in 0..len {
            let key = self.text()?;
            if key.is_empty() || !previous.is_none_or(|previous| precedes(previous, key)) {
                return None;
            }
            previous = Some(key);
            self.skip_nested(nesting)?;
        }
        Some(())
    }
}

/// Whether one map key sorts before another: the shorter first, then by bytes.
pub(crate) fn precedes(left: &str, right: &str) -> bool {
    (left.len(), left.as_bytes()) < (right.len(), right.as_bytes())
}
