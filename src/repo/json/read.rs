use std::str::FromStr;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cid::Cid;
use serde_json::{Map, Number, Value};

use crate::repo::emit::{self, Major};
use crate::repo::record::{self, RecordFault};
use crate::repo::scan::MAX_NESTING;

/// Base64 with or without padding.
const BASE64: GeneralPurpose = {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD, config)
};

/// Why JSON is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// A value that the data model does not have.
    #[error("{rule} at {path:?}")]
    Value {
        /// The keys and indexes that lead to it, joined by `/`; empty for the record itself.
        path: String,
        /// What is wrong with it.
        rule: JsonRule,
    },
    /// It can be encoded, but not as a record.
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// What is wrong with a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonRule {
    /// The record is not an object.
    #[error("a record must be an object")]
    NotAnObject,
    /// A number that is no integer of 64 bits.
    #[error("a number is not an integer of 64 bits with a sign")]
    Number,
    /// `$link` beside other keys, or not the text of a CID.
    #[error("a $link must be the text of a CID, and the only key")]
    Link,
    /// `$bytes` beside other keys, or not base64 text.
    #[error("$bytes must be base64 text, and the only key")]
    Bytes,
    /// `$type` that is no text, or empty.
    #[error("$type must be text, and not empty")]
    Type,
    /// A blob without a link, a MIME type and a positive size.
    #[error("a blob must have a link ref, a mimeType and a positive size")]
    Blob,
    /// More than 32 levels.
    #[error("arrays and objects are nested more than 32 deep")]
    Nesting,
}

/// A record as canonical DAG-CBOR; its CID is [`crate::repo::Link::of`] the result.
///
/// # Errors
/// When the value is outside of the data model, or no record ([`record::check`]).
pub fn from_value(json: &Value) -> Result<Vec<u8>, JsonError> {
    let mut encoder = Encoder { out: Vec::with_capacity(256), path: Vec::new() };
    let result = match json {
        Value::Object(_) => encoder.value(json, MAX_NESTING),
        _ => Err(JsonRule::NotAnObject),
    };
    let Encoder { out, path } = encoder;
    result.map_err(|rule| JsonError::Value { path: path.join("/"), rule })?;
    record::check(&out)?;
    Ok(out)
}

struct Encoder<'j> {
    out: Vec<u8>,
    /// Leads to the value being encoded; after an error, to the value at fault.
    path: Vec<std::borrow::Cow<'j, str>>,
}

impl<'j> Encoder<'j> {
    fn value(&mut self, json: &'j Value, nesting: usize) -> Result<(), JsonRule> {
        match json {
            Value::Null => self.out.push(emit::NULL),
            Value::Bool(false) => self.out.push(emit::FALSE),
            Value::Bool(true) => self.out.push(emit::TRUE),
            Value::Number(number) => self.integer(integral(number).ok_or(JsonRule::Number)?),
            Value::String(text) => emit::text(&mut self.out, text),
            Value::Array(elements) => self.array(elements, nesting.checked_sub(1).ok_or(JsonRule::Nesting)?)?,
            Value::Object(pairs) => match marked(pairs)? {
                Some(Marked::Link(cid)) => emit::cid(&mut self.out, &cid.to_bytes()),
                Some(Marked::Bytes(bytes)) => emit::bytes(&mut self.out, &bytes),
                None => self.map(pairs, nesting.checked_sub(1).ok_or(JsonRule::Nesting)?)?,
            },
        }
        Ok(())
    }

    fn integer(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => emit::head(&mut self.out, Major::Unsigned, value),
            Err(_) => emit::head(&mut self.out, Major::Negative, !value as u64),
        }
    }

    fn array(&mut self, elements: &'j [Value], nesting: usize) -> Result<(), JsonRule> {
        emit::head(&mut self.out, Major::Array, elements.len() as u64);
        for (index, element) in elements.iter().enumerate() {
            self.path.push(index.to_string().into());
            self.value(element, nesting)?;
            self.path.pop();
        }
        Ok(())
    }

    fn map(&mut self, pairs: &'j Map<String, Value>, nesting: usize) -> Result<(), JsonRule> {
        check_type(pairs)?;
        let mut sorted: Vec<(&String, &Value)> = pairs.iter().collect();
        sorted.sort_by_key(|(key, _)| (key.len(), *key));
        emit::head(&mut self.out, Major::Map, sorted.len() as u64);
        for (key, value) in sorted {
            emit::text(&mut self.out, key);
            self.path.push(key.into());
            self.value(value, nesting)?;
            self.path.pop();
        }
        Ok(())
    }
}

/// The integer that a number is. `123.0` is one, as JSON does not tell them apart; beyond 2^53 a float no longer says which one.
fn integral(number: &Number) -> Option<i64> {
    const EXACT: f64 = (1u64 << 53) as f64;
    number.as_i64().or_else(|| number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT).map(|float| float as i64))
}

/// The values that JSON writes as an object of one key with a meaning of its own.
enum Marked {
    Link(Cid),
    Bytes(Vec<u8>),
}

fn marked(pairs: &Map<String, Value>) -> Result<Option<Marked>, JsonRule> {
    let only = |value: &'_ Value| if pairs.len() == 1 { value.as_str().map(str::to_owned) } else { None };
    if let Some(value) = pairs.get("$link") {
        let cid = only(value).and_then(|text| Cid::from_str(&text).ok().filter(|cid| cid.to_string() == text));
        return cid.map(|cid| Some(Marked::Link(cid))).ok_or(JsonRule::Link);
    }
    if let Some(value) = pairs.get("$bytes") {
        let bytes = only(value).and_then(|text| BASE64.decode(text).ok());
        return bytes.map(|bytes| Some(Marked::Bytes(bytes))).ok_or(JsonRule::Bytes);
    }
    Ok(None)
}

fn check_type(pairs: &Map<String, Value>) -> Result<(), JsonRule> {
    let name = match pairs.get("$type") {
        None => return Ok(()),
        Some(Value::String(name)) if !name.is_empty() => name,
        Some(_) => return Err(JsonRule::Type),
    };
    if name != "blob" {
        return Ok(());
    }
    let link = matches!(pairs.get("ref"), Some(Value::Object(link)) if matches!(marked(link), Ok(Some(Marked::Link(_)))));
    let mime_type = matches!(pairs.get("mimeType"), Some(Value::String(name)) if !name.is_empty());
    let size = matches!(pairs.get("size"), Some(Value::Number(size)) if integral(size).is_some_and(|size| size > 0));
    if link && mime_type && size { Ok(()) } else { Err(JsonRule::Blob) }
}
