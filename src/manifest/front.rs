//! Front coding: a path is how many bytes it shares with the one before it, how many follow, and those.

use crate::repo::mst::common_prefix;
use crate::syntax::RecordPathRef;

/// Writes rising paths, each against the one before it.
#[derive(Debug, Default)]
pub(super) struct Writer {
    before: String,
}

impl Writer {
    /// The path written last; empty before the first.
    pub(super) fn before(&self) -> &str {
        &self.before
    }

    /// Begins anew behind `path`, which the reader is told in another way.
    pub(super) fn restart(&mut self, path: &str) {
        self.before.clear();
        self.before.push_str(path);
    }

    /// Writes `path`, which must be greater than the one before it.
    pub(super) fn put(&mut self, out: &mut Vec<u8>, path: &str) {
        let shared = common_prefix(self.before.as_bytes(), path.as_bytes());
        let suffix = &path[shared..];
        put_length(out, shared);
        put_length(out, suffix.len());
        out.extend_from_slice(suffix.as_bytes());
        self.before.truncate(shared);
        self.before.push_str(suffix);
    }
}

/// Reads what [`Writer`] wrote, and takes nothing else.
#[derive(Debug, Default)]
pub(super) struct Reader {
    path: String,
    slash: usize,
}

/// Why a path could not be read.
pub(super) enum Broken {
    Cut,
    Path,
}

impl Reader {
    /// Begins behind `path`, as [`Writer::restart`].
    pub(super) fn restart(&mut self, path: RecordPathRef<'_>) {
        self.path.clear();
        self.path.push_str(path.as_str());
        self.slash = path.collection().len();
    }

    /// The path read last.
    pub(super) fn path(&self) -> RecordPathRef<'_> {
        RecordPathRef::assume_valid(&self.path)
    }

    /// The path read last, as text; empty before the first.
    pub(super) fn text(&self) -> &str {
        &self.path
    }

    /// Reads one path from the front of `bytes`.
    pub(super) fn take(&mut self, bytes: &mut &[u8]) -> Result<(), Broken> {
        let shared = take_length(bytes)?;
        let length = take_length(bytes)?;
        let (suffix, rest) = bytes.split_at_checked(length).ok_or(Broken::Cut)?;
        *bytes = rest;
        let follows = match (self.path.as_bytes().get(shared), suffix.first()) {
            // Greater at the first byte that differs: so the paths rise, and share no more than they say.
            (Some(before), Some(here)) => here > before,
            (None, Some(_)) => shared == self.path.len(),
            (_, None) => false,
        };
        let suffix = std::str::from_utf8(suffix).map_err(|_| Broken::Path)?;
        if !follows || !suffix.is_ascii() {
            return Err(Broken::Path);
        }
        self.path.truncate(shared);
        self.path.push_str(suffix);
        self.check(shared)
    }

    /// Checks the syntax of the path, of which the first `shared` bytes were checked before.
    fn check(&mut self, shared: usize) -> Result<(), Broken> {
        if shared <= self.slash {
            let path = RecordPathRef::new(self.path.as_bytes()).map_err(|_| Broken::Path)?;
            self.slash = path.collection().len();
            return Ok(());
        }
        let key = &self.path.as_bytes()[self.slash + 1..];
        let valid = key.len() <= 512
            && key[shared - self.slash - 1..].iter().all(|&byte| KEY_BYTES[usize::from(byte)])
            && key != b"."
            && key != b"..";
        if valid { Ok(()) } else { Err(Broken::Path) }
    }
}

/// Which bytes a record key may hold.
const KEY_BYTES: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        allowed[byte] = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'~' | b'.' | b':' | b'-');
        byte += 1;
    }
    allowed
};

/// Writes a length below 2^14 in one byte or two.
pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    debug_assert!(length < 1 << 14);
    if length >= 0x80 {
        out.push(length as u8 | 0x80);
    }
    out.push(if length >= 0x80 { (length >> 7) as u8 } else { length as u8 });
}

fn take_length(bytes: &mut &[u8]) -> Result<usize, Broken> {
    match **bytes {
        [low, ref rest @ ..] if low < 0x80 => {
            *bytes = rest;
            Ok(usize::from(low))
        }
        [low, high, ref rest @ ..] if (1..0x80).contains(&high) => {
            *bytes = rest;
            Ok(usize::from(low & 0x7f) | usize::from(high) << 7)
        }
        [_, _, ..] => Err(Broken::Path),
        _ => Err(Broken::Cut),
    }
}
