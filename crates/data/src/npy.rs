//! The numpy array format (version 1.0): writes headers of a fixed size, reads any header.
//!
//! Written headers are always 128 bytes long, so that a file can be written as a stream and its header filled in at the end,
//! and so that data stays aligned for any mapping.

use crate::record::Dtype;

/// Length of every written header; numpy requires a multiple of 64.
pub(crate) const HEADER_BYTES: usize = 128;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Longest header that is accepted: real ones have about a hundred bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// numpy's name of the element type, such as `<f4`.
    pub descr: String,
    /// Extent of each dimension; C order.
    pub shape: Vec<usize>,
    /// Byte offset of the data in the file.
    pub data_start: usize,
}

/// Why a file is not a readable array.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NpyError {
    /// The magic bytes are missing.
    #[error("not a numpy file: it does not start with \\x93NUMPY")]
    NotNumpy,
    /// The file ends inside the header.
    #[error("the numpy header is truncated: the file has {have} bytes")]
    CutOff {
        /// Actual length in bytes.
        have: usize,
    },
    /// The header has an invalid or unsupported value.
    #[error("invalid numpy header: {0}")]
    Malformed(String),
    /// The data do not have the size given by the header.
    #[error("the header declares {declared} bytes of data, the file has {found}")]
    WrongSize {
        /// Bytes according to the header.
        declared: usize,
        /// Bytes in the file.
        found: usize,
    },
    /// The element type is not the requested one.
    #[error("the array holds {found}, not {wanted}")]
    WrongType {
        /// numpy's name of the actual type.
        found: String,
        /// numpy's name of the requested type.
        wanted: &'static str,
    },
}

/// Returns the header of a C-order array.
pub fn header(dtype: Dtype, shape: &[usize]) -> [u8; HEADER_BYTES] {
    let dims: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let dims =
        if shape.len() == 1 { dims.trim_end().to_owned() } else { dims.trim_end_matches(", ").to_owned() };
    let text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({dims}), }}", dtype.numpy());
    let mut out = [b' '; HEADER_BYTES];
    assert!(
        text.len() + 11 <= HEADER_BYTES,
        "five dimensions of 20 digits fit; nothing here has more than four"
    );
    out[..6].copy_from_slice(MAGIC);
    out[6..8].copy_from_slice(&[1, 0]);
    out[8..10].copy_from_slice(&((HEADER_BYTES - 10) as u16).to_le_bytes());
    out[10..10 + text.len()].copy_from_slice(text.as_bytes());
    out[HEADER_BYTES - 1] = b'\n';
    out
}

/// Parses a header from the first bytes of a file.
pub fn parse_header(bytes: &[u8]) -> Result<Header, NpyError> {
    if bytes.len() < 10 {
        return Err(if MAGIC.starts_with(&bytes[..bytes.len().min(6)]) {
            NpyError::CutOff { have: bytes.len() }
        } else {
            NpyError::NotNumpy
        });
    }
    if &bytes[..6] != MAGIC {
        return Err(NpyError::NotNumpy);
    }
    let (length, text_start) = match bytes[6] {
        1 => (usize::from(u16::from_le_bytes([bytes[8], bytes[9]])), 10),
        2 | 3 => {
            let field = bytes.get(8..12).ok_or(NpyError::CutOff { have: bytes.len() })?;
            (u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize, 12)
        }
        other => return Err(NpyError::Malformed(format!("unknown format version {other}"))),
    };
    if length > MAX_HEADER_BYTES {
        return Err(NpyError::Malformed(format!("it has {length} bytes")));
    }
    let data_start = text_start + length;
    let text = bytes.get(text_start..data_start).ok_or(NpyError::CutOff { have: bytes.len() })?;
    let text = std::str::from_utf8(text).map_err(|_| NpyError::Malformed("it is not UTF-8".into()))?;
    let missing = |key: &str| NpyError::Malformed(format!("no '{key}' in {:?}", text.trim_end()));

    let descr = value_after(text, "descr").and_then(quoted).ok_or_else(|| missing("descr"))?;
    let order = value_after(text, "fortran_order").ok_or_else(|| missing("fortran_order"))?;
    if !order.starts_with("False") {
        return Err(NpyError::Malformed("the array is in Fortran order; save it in C order".into()));
    }
    let shape = value_after(text, "shape").and_then(tuple).ok_or_else(|| missing("shape"))?;
    Ok(Header { descr: descr.to_owned(), shape, data_start })
}

/// Reads a whole `f32` array from a file's bytes: its shape and its values.
pub fn read_f32(bytes: &[u8]) -> Result<(Vec<usize>, Vec<f32>), NpyError> {
    let header = parse_header(bytes)?;
    if header.descr != Dtype::F32.numpy() {
        return Err(NpyError::WrongType { found: header.descr, wanted: Dtype::F32.numpy() });
    }
    let data = &bytes[header.data_start..];
    let declared = header
        .shape
        .iter()
        .try_fold(Dtype::F32.size(), |product, &n| product.checked_mul(n))
        .ok_or_else(|| NpyError::Malformed(format!("shape {:?} is larger than memory", header.shape)))?;
    if declared != data.len() {
        return Err(NpyError::WrongSize { declared, found: data.len() });
    }
    let values = data.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect();
    Ok((header.shape, values))
}

/// Returns a whole `f32` array as the bytes of a file.
pub fn write_f32(shape: &[usize], values: &[f32]) -> Vec<u8> {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "the shape must match the number of values");
    let mut out = Vec::with_capacity(HEADER_BYTES + 4 * values.len());
    out.extend_from_slice(&header(Dtype::F32, shape));
    out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    out
}

/// Returns the text after `'key':` in the header's Python dictionary.
fn value_after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let at = text.find(&format!("'{key}'"))?;
    Some(text[at + key.len() + 2..].trim_start().strip_prefix(':')?.trim_start())
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.split('\'').next()
}

fn tuple(text: &str) -> Option<Vec<usize>> {
    let inside = text.strip_prefix('(')?.split_once(')')?.0;
    inside.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_round_trips_for_every_rank() {
        for shape in [&[][..], &[7], &[3, 80], &[2, 3, 4], &[1, 2, 3, 4], &[0, 80]] {
            let bytes = header(Dtype::I16, shape);
            let read = parse_header(&bytes).unwrap();
            assert_eq!(read, Header { descr: "<i2".into(), shape: shape.to_vec(), data_start: HEADER_BYTES });
        }
    }

    #[test]
    fn one_dimension_is_written_as_a_python_tuple() {
        let bytes = header(Dtype::F32, &[5]);
        assert!(std::str::from_utf8(&bytes[10..]).unwrap().contains("'shape': (5,), }"));
    }

    #[test]
    fn an_array_round_trips_and_every_truncation_is_an_error() {
        let bytes = write_f32(&[2, 3], &[1.0, -2.0, 3.5, f32::MAX, 0.0, -0.0]);
        assert_eq!(read_f32(&bytes).unwrap().0, [2, 3]);
        for end in 0..bytes.len() {
            assert!(read_f32(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_shape_larger_than_memory_is_an_error() {
        let bytes = header(Dtype::F32, &[usize::MAX / 2, 80]);
        assert!(matches!(read_f32(&bytes), Err(NpyError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_f32(&tail);
            let _ = read_f32(&[b"\x93NUMPY\x01\x00", &tail[..]].concat());
        }
    }
}
