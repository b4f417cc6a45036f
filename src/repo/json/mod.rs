//! Records as JSON: links as `{"$link": …}`, bytes as `{"$bytes": …}` (atproto.com/specs/data-model, "JSON Representation").
mod read;
mod value;
mod write;

pub use read::{JsonError, JsonRule, from_value};

use serde_json::Value;

use super::RecordFault;
use super::record::scan_record;

/// Appends a record as JSON text, without building it up in memory. The keys are in the record's own order.
///
/// # Errors
/// When the bytes are no record ([`super::record::check`]); what is appended by then is to be cut off.
pub fn write(record: &[u8], out: &mut Vec<u8>) -> Result<(), RecordFault> {
    scan_record(record, &mut write::Writer { out })
}

/// A record as a JSON value.
///
/// # Errors
/// When the bytes are no record ([`super::record::check`]).
pub fn to_value(record: &[u8]) -> Result<Value, RecordFault> {
    let mut builder = value::Builder::default();
    scan_record(record, &mut builder)?;
    Ok(builder.finish())
}
