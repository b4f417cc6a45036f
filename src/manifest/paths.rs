use super::ManifestError;
use super::front::{Broken, Reader, Writer};
use crate::syntax::RecordPath;

/// Front-codes rising paths without CIDs: what an intent keeps.
///
/// # Errors
/// [`ManifestError::OutOfOrder`] when a path does not come after the one before it.
pub fn encode_paths(paths: &[RecordPath]) -> Result<Vec<u8>, ManifestError> {
    let mut writer = Writer::default();
    let mut out = Vec::with_capacity(16 + paths.len() * 24);
    for path in paths {
        if path.as_str() <= writer.before() {
            return Err(ManifestError::OutOfOrder { path: path.to_string() });
        }
        writer.put(&mut out, path.as_str());
    }
    Ok(out)
}

/// Reads what [`encode_paths`] wrote.
///
/// # Errors
/// For any other bytes.
pub fn decode_paths(mut bytes: &[u8]) -> Result<Vec<RecordPath>, ManifestError> {
    let mut reader = Reader::default();
    let mut paths = Vec::new();
    while !bytes.is_empty() {
        let entry = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        reader.take(&mut bytes).map_err(|broken| match broken {
            Broken::Cut => ManifestError::Cut { entry },
            Broken::Path => ManifestError::Path { entry },
        })?;
        paths.push(reader.path().to_owned());
    }
    Ok(paths)
}
