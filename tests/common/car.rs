//! A CAR read with nothing of the library.

/// What stands behind each length of a CAR.
pub(crate) fn chunks(car: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = car;
    let chunks = std::iter::from_fn(|| {
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (chunk, after) = rest.split_at_checked(length).expect("no frame is cut");
        rest = after;
        Some(chunk.to_vec())
    });
    chunks.collect()
}
