//! A reader of trees that follows links and concatenates prefixes, by a general CBOR reader, and checks nothing.

use std::collections::HashMap;

use atproto_backfill::repo::Link;
use ciborium::Value;

use crate::CID;

/// A tree as its blocks have it.
#[derive(Debug, Default)]
pub struct Plain {
    /// Its keys with their records; none for a CID of a kind that is not allowed.
    pub entries: Vec<(Vec<u8>, Option<Link>)>,
    /// All blocks as often as a walk comes across them, in its order.
    pub order: Vec<Link>,
}

/// Reads a tree that was found to be one.
pub fn read(root: Link, blocks: &HashMap<Link, &[u8]>) -> Plain {
    let mut plain = Plain::default();
    plain.node(root, blocks);
    plain
}

impl Plain {
    fn node(&mut self, link: Link, blocks: &HashMap<Link, &[u8]>) {
        self.order.push(link);
        let node: Value = ciborium::from_reader(blocks[&link]).expect("a node is CBOR");
        if let Some(left) = field(&node, "l").and_then(child) {
            self.node(left, blocks);
        }
        let mut key = Vec::new();
        for entry in field(&node, "e").and_then(Value::as_array).expect("a node has entries") {
            let prefix = field(entry, "p").and_then(Value::as_integer).expect("an entry has a prefix");
            key.truncate(usize::try_from(prefix).expect("a length"));
            key.extend_from_slice(field(entry, "k").and_then(Value::as_bytes).expect("an entry has a suffix"));
            let record = field(entry, "v").and_then(child);
            self.entries.push((key.clone(), record));
            self.order.extend(record);
            if let Some(right) = field(entry, "t").and_then(child) {
                self.node(right, blocks);
            }
        }
    }
}

/// The value of a field.
pub fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    map.as_map()?.iter().find(|(key, _)| key.as_text() == Some(name)).map(|(_, value)| value)
}

fn child(value: &Value) -> Option<Link> {
    let (tag, value) = value.as_tag()?;
    let digest = value.as_bytes()?.strip_prefix(&[0])?.strip_prefix(&CID)?;
    (tag == 42).then_some(Link::from_digest(digest.try_into().ok()?))
}
