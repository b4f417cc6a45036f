use super::{SyntaxError, text_identifier};

const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";

/// A revision of a repo: a TID, 13 characters that sort as the 64-bit number they spell.
///
/// The number is 53 bits of microseconds since the Unix epoch, then 10 bits of clock id; the top bit is zero.
/// Revs of one repo only ever rise. Rule: atproto.com/specs/tid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rev([u8; 13]);

impl Rev {
    /// The lowest rev, `2222222222222`.
    pub const ZERO: Rev = Rev(*b"2222222222222");

    /// Parses a rev.
    ///
    /// # Errors
    /// When the text is not 13 characters of the TID alphabet with the top bit clear.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        let broken = |rule| SyntaxError::new("rev", rule, text);
        let bytes: [u8; 13] = text.as_bytes().try_into().map_err(|_| broken("must be 13 characters"))?;
        if !bytes.iter().all(|b| ALPHABET.contains(b)) {
            return Err(broken("may hold only 2-7 and a-z"));
        }
        if bytes[0] > b'j' {
            return Err(broken("the top bit must be zero"));
        }
        Ok(Self(bytes))
    }

    /// The rev of a time, in microseconds since the Unix epoch (53 bits), and a clock id (10 bits); higher bits are cut off.
    pub fn from_parts(micros: u64, clock_id: u16) -> Self {
        let mut number = (micros & ((1 << 53) - 1)) << 10 | u64::from(clock_id & 0x3ff);
        let mut text = [0; 13];
        for digit in text.iter_mut().rev() {
            *digit = ALPHABET[(number & 31) as usize];
            number >>= 5;
        }
        Self(text)
    }

    /// The time that the rev names, in microseconds since the Unix epoch. It is the host's claim, never to be trusted.
    pub fn micros(self) -> u64 {
        let number = self.0.iter().fold(0u64, |number, digit| {
            let value = match digit {
                b'2'..=b'7' => digit - b'2',
                letter => letter - b'a' + 6,
            };
            number << 5 | u64::from(value)
        });
        number >> 10
    }

    /// The 13 characters.
    pub fn as_str(&self) -> &str {
        // The only constructors write ASCII, so the fallback is never taken.
        std::str::from_utf8(&self.0).unwrap_or("2222222222222")
    }
}

text_identifier!(Rev);
