use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Map, Value};

use crate::repo::cid_text::cid_text;
use crate::repo::scan::Sink;

/// Builds a JSON value.
#[derive(Default)]
pub(super) struct Builder {
    /// The arrays and maps that have begun and not ended, the outermost first.
    open: Vec<Open>,
    done: Value,
}

enum Open {
    Array(Vec<Value>),
    /// The pairs so far, and the key whose value comes next.
    Map(Map<String, Value>, String),
}

impl Builder {
    pub(super) fn finish(self) -> Value {
        self.done
    }

    fn value(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(Open::Array(elements)) => elements.push(value),
            Some(Open::Map(pairs, key)) => {
                pairs.insert(std::mem::take(key), value);
            }
            None => self.done = value,
        }
    }

    fn end(&mut self) {
        match self.open.pop() {
            Some(Open::Array(elements)) => self.value(Value::Array(elements)),
            Some(Open::Map(pairs, _)) => self.value(Value::Object(pairs)),
            None => {}
        }
    }

    fn marked(&mut self, mark: &str, text: String) {
        self.value(Value::Object(Map::from_iter([(mark.to_owned(), Value::String(text))])));
    }
}

/// The sink is told nothing but UTF-8, so nothing is ever replaced.
fn text(utf8: &[u8]) -> String {
    String::from_utf8_lossy(utf8).into_owned()
}

impl Sink for Builder {
    fn null(&mut self) {
        self.value(Value::Null);
    }

    fn boolean(&mut self, value: bool) {
        self.value(value.into());
    }

    fn integer(&mut self, value: i64) {
        self.value(value.into());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.marked("$bytes", STANDARD_NO_PAD.encode(value));
    }

    fn text(&mut self, value: &[u8]) {
        self.value(text(value).into());
    }

    fn link(&mut self, cid: &[u8]) {
        self.marked("$link", cid_text(cid));
    }

    fn array(&mut self) {
        self.open.push(Open::Array(Vec::new()));
    }

    fn element(&mut self, _: u64) {}

    fn array_end(&mut self) {
        self.end();
    }

    fn map(&mut self) {
        self.open.push(Open::Map(Map::new(), String::new()));
    }

    fn key(&mut self, _: u64, key: &[u8]) {
        if let Some(Open::Map(_, next)) = self.open.last_mut() {
            *next = text(key);
        }
    }

    fn map_end(&mut self) {
        self.end();
    }
}
