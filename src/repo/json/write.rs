use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::repo::cid_text::write_cid;
use crate::repo::scan::Sink;

/// Writes JSON text.
pub(super) struct Writer<'o> {
    pub(super) out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn separate(&mut self, index: u64) {
        if index > 0 {
            self.out.push(b',');
        }
    }

    fn string(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        let mut written = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.put(&bytes[written..at]);
            self.escape(byte);
            written = at + 1;
        }
        self.put(&bytes[written..]);
        self.out.push(b'"');
    }

    #[cold]
    fn escape(&mut self, byte: u8) {
        match byte {
            b'"' => self.put(b"\\\""),
            b'\\' => self.put(b"\\\\"),
            b'\n' => self.put(b"\\n"),
            b'\r' => self.put(b"\\r"),
            b'\t' => self.put(b"\\t"),
            _ => self.format(format_args!("\\u{byte:04x}")),
        }
    }

    fn format(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a vector cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

impl Sink for Writer<'_> {
    fn null(&mut self) {
        self.put(b"null");
    }

    fn boolean(&mut self, value: bool) {
        self.put(if value { b"true" } else { b"false" });
    }

    fn integer(&mut self, value: i64) {
        self.format(format_args!("{value}"));
    }

    fn bytes(&mut self, value: &[u8]) {
        self.put(b"{\"$bytes\":\"");
        let start = self.out.len();
        self.out.resize(start + base64::encoded_len(value.len(), false).unwrap_or(0), 0);
        // The room is exactly what the encoding takes.
        let _ = STANDARD_NO_PAD.encode_slice(value, &mut self.out[start..]);
        self.put(b"\"}");
    }

    fn text(&mut self, value: &[u8]) {
        self.string(value);
    }

    fn link(&mut self, cid: &[u8]) {
        self.put(b"{\"$link\":\"");
        write_cid(cid, self.out);
        self.put(b"\"}");
    }

    fn array(&mut self) {
        self.out.push(b'[');
    }

    fn element(&mut self, index: u64) {
        self.separate(index);
    }

    fn array_end(&mut self) {
        self.out.push(b']');
    }

    fn map(&mut self) {
        self.out.push(b'{');
    }

    fn key(&mut self, index: u64, key: &[u8]) {
        self.separate(index);
        self.string(key);
        self.out.push(b':');
    }

    fn map_end(&mut self) {
        self.out.push(b'}');
    }
}
