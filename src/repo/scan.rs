//! One pass over the bytes of a record that checks every rule of the data model and tells a sink what it comes across.

use cid::Cid;

use super::record::{CborRule, RecordFault};

/// How deep arrays and maps may nest, the record itself included (atproto.com/guides/data-validation, as the limits below).
pub(super) const MAX_NESTING: usize = 32;
/// How many elements an array, and how many pairs a map may have.
const MAX_ELEMENTS: u64 = 131_072;
/// The longest key of a map, in bytes.
const MAX_KEY: usize = 8_192;
/// The longest CID of a link, in bytes.
const MAX_CID: usize = 100;

/// Is told the parts of a record in their order. The parts of a record that turns out to be bad are told up to where it is.
pub(super) trait Sink {
    fn null(&mut self);
    fn boolean(&mut self, value: bool);
    fn integer(&mut self, value: i64);
    fn bytes(&mut self, value: &[u8]);
    /// A text, in UTF-8.
    fn text(&mut self, value: &[u8]);
    /// A link, as a binary CID.
    fn link(&mut self, cid: &[u8]);
    /// An array begins; `index` counts its elements from 0.
    fn array(&mut self);
    fn element(&mut self, index: u64);
    fn array_end(&mut self);
    /// A map begins; `index` counts its pairs from 0.
    fn map(&mut self);
    fn key(&mut self, index: u64, key: &[u8]);
    fn map_end(&mut self);
}

/// Nobody wants to know.
impl Sink for () {
    fn null(&mut self) {}
    fn boolean(&mut self, _: bool) {}
    fn integer(&mut self, _: i64) {}
    fn bytes(&mut self, _: &[u8]) {}
    fn text(&mut self, _: &[u8]) {}
    fn link(&mut self, _: &[u8]) {}
    fn array(&mut self) {}
    fn element(&mut self, _: u64) {}
    fn array_end(&mut self) {}
    fn map(&mut self) {}
    fn key(&mut self, _: u64, _: &[u8]) {}
    fn map_end(&mut self) {}
}

/// Scans one value that must fill the bytes.
pub(super) fn scan(bytes: &[u8], sink: &mut impl Sink) -> Result<(), RecordFault> {
    let mut scanner = Scanner { bytes, at: 0 };
    scanner.value(sink, MAX_NESTING)?;
    if scanner.at < bytes.len() {
        return Err(scanner.fault(CborRule::Trailing));
    }
    Ok(())
}

struct Scanner<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Scanner<'b> {
    #[cold]
    fn fault(&self, rule: CborRule) -> RecordFault {
        RecordFault::Encoding { offset: self.at, rule }
    }

    /// `nesting`: how many levels of arrays and maps may still begin.
    fn value<S: Sink>(&mut self, sink: &mut S, nesting: usize) -> Result<(), RecordFault> {
        let Some(&first) = self.bytes.get(self.at) else { return Err(self.fault(CborRule::Truncated)) };
        match first >> 5 {
            0 => {
                let value = self.integer(first)?;
                sink.integer(value);
            }
            1 => {
                let value = self.integer(first)?;
                sink.integer(-1 - value);
            }
            2 => sink.bytes(self.string(first)?),
            3 => sink.text(self.text(first)?),
            4 => self.array(first, sink, nesting)?,
            5 => self.map(first, sink, nesting)?,
            6 => sink.link(self.link()?),
            _ => {
                match first {
                    0xf4 => sink.boolean(false),
                    0xf5 => sink.boolean(true),
                    0xf6 => sink.null(),
                    0xf9..=0xfb => return Err(self.fault(CborRule::Float)),
                    _ => return Err(self.fault(CborRule::Simple)),
                }
                self.at += 1;
            }
        }
        Ok(())
    }

    /// The number in the head that begins with the byte `first`, which is the next.
    #[inline]
    fn argument(&mut self, first: u8) -> Result<u64, RecordFault> {
        let low = first & 0x1f;
        if low < 24 {
            self.at += 1;
            return Ok(u64::from(low));
        }
        self.long_argument(low)
    }

    fn long_argument(&mut self, low: u8) -> Result<u64, RecordFault> {
        let (len, least) = match low {
            24 => (1, 24),
            25 => (2, 0x100),
            26 => (4, 0x1_0000),
            27 => (8, 0x1_0000_0000),
            31 => return Err(self.fault(CborRule::Indefinite)),
            _ => return Err(self.fault(CborRule::Reserved)),
        };
        let Some(digits) = self.bytes.get(self.at + 1..self.at + 1 + len) else { return Err(self.fault(CborRule::Truncated)) };
        let value = digits.iter().fold(0, |value, &digit| value << 8 | u64::from(digit));
        if value < least {
            return Err(self.fault(CborRule::NotMinimal));
        }
        self.at += 1 + len;
        Ok(value)
    }

    fn integer(&mut self, first: u8) -> Result<i64, RecordFault> {
        let at = self.at;
        let value = self.argument(first)?;
        i64::try_from(value).map_err(|_| RecordFault::Encoding { offset: at, rule: CborRule::Integer })
    }

    /// The content of a byte or text string.
    #[inline]
    fn string(&mut self, first: u8) -> Result<&'b [u8], RecordFault> {
        let len = self.argument(first)?;
        let content = usize::try_from(len).ok().and_then(|len| self.bytes[self.at..].get(..len));
        let Some(content) = content else { return Err(self.fault(CborRule::Truncated)) };
        self.at += content.len();
        Ok(content)
    }

    #[inline]
    fn text(&mut self, first: u8) -> Result<&'b [u8], RecordFault> {
        let at = self.at;
        let content = self.string(first)?;
        // Most texts are ASCII, which is found out a word at a time.
        if content.is_ascii() || std::str::from_utf8(content).is_ok() {
            return Ok(content);
        }
        Err(RecordFault::Encoding { offset: at, rule: CborRule::Utf8 })
    }

    fn link(&mut self) -> Result<&'b [u8], RecordFault> {
        // Links to records and nodes, and those to blobs, differ in the codec alone: the fifth of these bytes.
        const HEAD: [u8; 5] = [0xd8, 0x2a, 0x58, 0x25, 0x00];
        if let Some((&[a, b, c, d, e, ref cid @ ..], _)) = self.bytes[self.at..].split_first_chunk::<41>()
            && [a, b, c, d, e] == HEAD
            && matches!(*cid, [0x01, 0x71 | 0x55, 0x12, 0x20, ..])
        {
            let start = self.at + HEAD.len();
            self.at += 41;
            return Ok(&self.bytes[start..self.at]);
        }
        self.unusual_link()
    }

    fn unusual_link(&mut self) -> Result<&'b [u8], RecordFault> {
        let at = self.at;
        let fault = |rule| RecordFault::Encoding { offset: at, rule };
        if self.argument(self.bytes[at])? != 42 {
            return Err(fault(CborRule::Tag));
        }
        let first = match self.bytes.get(self.at) {
            Some(first) if first >> 5 == 2 => *first,
            Some(_) => return Err(fault(CborRule::Cid)),
            None => return Err(fault(CborRule::Truncated)),
        };
        let cid = self.string(first)?.strip_prefix(&[0]).filter(|cid| cid.len() <= MAX_CID).ok_or(fault(CborRule::Cid))?;
        // The library stops reading where the CID ends; the comparison also refuses numbers that are not minimal.
        match Cid::try_from(cid) {
            Ok(parsed) if parsed.to_bytes() == cid => Ok(cid),
            _ => Err(fault(CborRule::Cid)),
        }
    }

    /// The number of elements or pairs, and the nesting within them.
    fn container(&mut self, first: u8, nesting: usize) -> Result<(u64, usize), RecordFault> {
        let Some(nesting) = nesting.checked_sub(1) else { return Err(self.fault(CborRule::Nesting)) };
        let at = self.at;
        let len = self.argument(first)?;
        if len > MAX_ELEMENTS {
            return Err(RecordFault::Encoding { offset: at, rule: CborRule::Elements });
        }
        Ok((len, nesting))
    }

    fn array<S: Sink>(&mut self, first: u8, sink: &mut S, nesting: usize) -> Result<(), RecordFault> {
        let (len, nesting) = self.container(first, nesting)?;
        sink.array();
        for index in 0..len {
            sink.element(index);
            self.value(sink, nesting)?;
        }
        sink.array_end();
        Ok(())
    }

    fn map<S: Sink>(&mut self, first: u8, sink: &mut S, nesting: usize) -> Result<(), RecordFault> {
        let (len, nesting) = self.container(first, nesting)?;
        sink.map();
        let mut previous: &[u8] = &[];
        for index in 0..len {
            previous = self.key(previous)?;
            sink.key(index, previous);
            self.value(sink, nesting)?;
        }
        sink.map_end();
        Ok(())
    }

    /// A key, which must come after the one before it: the shorter first, then by bytes. The empty key would come first, and is not allowed.
    fn key(&mut self, previous: &[u8]) -> Result<&'b [u8], RecordFault> {
        let at = self.at;
        let fault = |rule| RecordFault::Encoding { offset: at, rule };
        let key = match self.bytes.get(at) {
            Some(&first) if first >> 5 == 3 => self.text(first)?,
            Some(_) => return Err(fault(CborRule::KeyType)),
            None => return Err(fault(CborRule::Truncated)),
        };
        match key.len() {
            0 => Err(fault(CborRule::KeyLength)),
            len if len > MAX_KEY => Err(fault(CborRule::KeyLength)),
            len if len > previous.len() || len == previous.len() && key > previous => Ok(key),
            _ => Err(fault(CborRule::KeyOrder)),
        }
    }
}
