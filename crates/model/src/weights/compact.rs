//! A compact file of tensors: weights as small integers with one scale per row or column, compressed with DEFLATE.
//! It takes about a fifth of the space of f32; reading it returns f32 with a small error.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `myxttscw` |
//! | 4 | version, little-endian |
//! | 4 | length of the header, little-endian |
//! | header | JSON: a list of [`Entry`] |
//! | rest | the data of each tensor, in the order of the header, without gaps |
//!
//! The data of a quantised tensor are its scales as bf16, then a DEFLATE stream of one byte per weight: the integer
//! plus `limit`. The data of any other tensor are a DEFLATE stream of its bytes.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use half::bf16;
use miniz_oxide::deflate::core::{
    CompressionStrategy, CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output,
    create_comp_flags_from_zip_params,
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::ElementType;
use super::buffers::is_buffer;
use super::tensors::{MAX_HEADER_BYTES, Stored, TensorFile, View};

/// First bytes of a file. As the header length of a safetensors file they would be far above its limit.
pub(super) const MAGIC: &[u8; 8] = b"myxttscw";

/// Version of the format: the one written, and the only one read.
const VERSION: u32 = 1;

/// Bytes before the header.
const PREAMBLE: usize = 16;

/// Tensors with fewer elements are stored exactly.
const MIN_ELEMENTS: usize = 1024;

/// Rows with fewer elements do not get a scale of their own.
const MIN_ROW: usize = 16;

/// Largest decoded size in bytes, whatever the size of the file.
const ALWAYS_ALLOWED: usize = 64 << 20;

/// Largest decoded size of a larger file, in multiples of its size. DEFLATE can expand 1032 times; weights do not.
const MAX_EXPANSION: usize = 32;

/// Alignment of decoded tensors in bytes: that of the largest element.
const ALIGNMENT: usize = 8;

/// Fractions of a row's largest magnitude that are tried as the largest integer's value.
const CLIPPING: [f32; 8] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5];

/// Default number of bits per weight before compression.
pub const DEFAULT_BITS: f32 = 7.0;

/// Returns the largest integer of a weight for a number of bits from 4 to 8, which may be fractional; `None` outside.
pub fn limit_of_bits(bits: f32) -> Option<u8> {
    (4.0..=8.0).contains(&bits).then(|| (bits - 1.0).exp2() as u8 - 1)
}

/// A tensor in the header.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    dtype: ElementType,
    shape: Vec<usize>,
    /// Length of its data in the file.
    bytes: usize,
    /// How its weights are quantised; `None` if it is stored exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quantised: Option<Quantised>,
}

/// How a tensor is quantised.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quantised {
    /// Largest integer: weights are from `-limit` to `limit` times their scale.
    limit: u8,
    /// Which weights share a scale.
    scale: Axis,
}

/// Which weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Axis {
    /// Those with the same index in the first dimension.
    Row,
    /// Those in the same column of a matrix.
    Column,
}

/// Writes tensors as a compact file, with integers up to `limit`.
pub(super) fn encode(tensors: &[(&str, View)], limit: u8) -> Result<Vec<u8>, String> {
    let parts: Vec<(Entry, Vec<u8>)> = tensors
        .par_iter()
        .map(|(name, view)| encode_tensor(name, view, limit))
        .collect::<Result<_, String>>()?;
    let header: Vec<&Entry> = parts.iter().map(|(entry, _)| entry).collect();
    let header = serde_json::to_vec(&header).map_err(|error| error.to_string())?;
    let length = u32::try_from(header.len()).ok().filter(|&length| u64::from(length) <= MAX_HEADER_BYTES);
    let length = length.ok_or("its names and shapes are too large for a header")?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes.extend(header);
    parts.iter().for_each(|(_, data)| bytes.extend_from_slice(data));
    Ok(bytes)
}

fn encode_tensor(name: &str, view: &View, limit: u8) -> Result<(Entry, Vec<u8>), String> {
    let (data, quantised) = match quantise(name, view, limit) {
        Some((scale, Rows { scales, symbols, .. })) => {
            let mut data: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            data.extend(deflate_symbols(&symbols)?);
            (data, Some(Quantised { limit, scale }))
        }
        None => (deflate(view.bytes)?, None),
    };
    let shape = view.shape.to_vec();
    Ok((Entry { name: name.to_owned(), dtype: view.kind, shape, bytes: data.len(), quantised }, data))
}

/// Compresses integers. Searches for runs only: other repetitions are accidental, and encoding them takes more space
/// than encoding each integer.
fn deflate_symbols(symbols: &[u8]) -> Result<Vec<u8>, String> {
    let flags = create_comp_flags_from_zip_params(9, 0, CompressionStrategy::RLE as i32);
    let mut bytes = Vec::new();
    let append = |more: &[u8]| {
        bytes.extend_from_slice(more);
        true
    };
    let mut compressor = CompressorOxide::new(flags);
    match compress_to_output(&mut compressor, symbols, TDEFLFlush::Finish, append) {
        (TDEFLStatus::Done, _) => Ok(bytes),
        (status, _) => Err(format!("cannot be compressed: {status:?}")),
    }
}

fn deflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.map_err(|error| format!("cannot be compressed: {error}"))
}

/// Quantises a tensor along the axis with the smaller error; `None` if it has to be stored exactly.
fn quantise(name: &str, view: &View, limit: u8) -> Option<(Axis, Rows)> {
    let count: usize = view.shape.iter().product();
    let rows = *view.shape.first()?;
    if view.kind != ElementType::F32 || view.shape.len() < 2 || count < MIN_ELEMENTS || is_buffer(name) {
        return None;
    }
    let values = view.to_f32()?;
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let width = count / rows;
    let by_row = (width >= MIN_ROW).then(|| (Axis::Row, quantise_rows(&values, width, limit)));
    let by_column = (view.shape.len() == 2 && rows >= MIN_ROW).then(|| {
        let mut columns = quantise_rows(&transpose(&values, width), rows, limit);
        columns.symbols = transpose(&columns.symbols, rows);
        (Axis::Column, columns)
    });
    let found = [by_row, by_column].into_iter().flatten();
    found.min_by(|(_, a), (_, b)| a.error.total_cmp(&b.error))
}

/// Transposes a matrix whose rows have `width` elements.
fn transpose<T: Copy>(values: &[T], width: usize) -> Vec<T> {
    (0..width).flat_map(|column| values.iter().skip(column).step_by(width).copied()).collect()
}

/// Quantised rows.
struct Rows {
    scales: Vec<bf16>,
    /// Integers plus the limit.
    symbols: Vec<u8>,
    /// Sum of squared errors.
    error: f64,
}

fn quantise_rows(values: &[f32], width: usize, limit: u8) -> Rows {
    let mut rows = Rows { scales: Vec::new(), symbols: Vec::with_capacity(values.len()), error: 0.0 };
    for row in values.chunks(width) {
        let (scale, error) = best_scale(row, limit);
        rows.scales.push(scale);
        rows.error += error;
        let scale = scale.to_f32();
        rows.symbols.extend(row.iter().map(|&value| (nearest(value, scale, limit) + f32::from(limit)) as u8));
    }
    rows
}

/// The integer that is nearest to a value; 0 where the scale is 0.
fn nearest(value: f32, scale: f32, limit: u8) -> f32 {
    let limit = f32::from(limit);
    if scale == 0.0 { 0.0 } else { (value / scale).round().clamp(-limit, limit) }
}

/// Returns the scale with the least squared error, and that error. Tries those of [`CLIPPING`], and the least-squares
/// fit to the integers of the best of them.
fn best_scale(row: &[f32], limit: u8) -> (bf16, f64) {
    let largest = row.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let with_error = |scale: f32| {
        // Rounding up to bf16 could give infinity.
        let scale = bf16::from_f32(scale).min(bf16::MAX);
        let (wide, mut error) = (scale.to_f32(), 0.0f64);
        for &value in row {
            let difference = f64::from(value) - f64::from(nearest(value, wide, limit) * wide);
            error += difference * difference;
        }
        (scale, error)
    };
    let tried = CLIPPING.iter().map(|clipping| with_error(largest / f32::from(limit) * clipping));
    let best = tried.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((bf16::ZERO, 0.0));
    let (mut product, mut square) = (0.0f64, 0.0f64);
    for &value in row {
        let integer = f64::from(nearest(value, best.0.to_f32(), limit));
        product += integer * f64::from(value);
        square += integer * integer;
    }
    let fitted = with_error(if square > 0.0 { (product / square) as f32 } else { 0.0 });
    if fitted.1 < best.1 { fitted } else { best }
}

/// Tensors of a compact file, decoded.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Their bytes; the element type of the vector gives the alignment.
    pub words: Vec<u64>,
    /// Location of each tensor, in bytes.
    pub tensors: BTreeMap<String, Stored>,
}

/// Decodes a compact file. Sizes claimed by the file are checked before anything is allocated.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, String> {
    decode_file(bytes).map_err(|what| format!("not a valid compact file: {what}"))
}

fn decode_file(bytes: &[u8]) -> Result<Decoded, String> {
    let number = |at: usize| bytes.get(at..)?.first_chunk().map(|&four| u32::from_le_bytes(four));
    let (Some(version), Some(length)) = (number(8), number(12)) else {
        return Err("it is too short".to_owned());
    };
    if version != VERSION {
        return Err(format!("it has version {version}; this program reads version {VERSION}"));
    }
    if u64::from(length) > MAX_HEADER_BYTES {
        return Err(format!("it claims a header of {length} bytes"));
    }
    let end = PREAMBLE + length as usize;
    let header = bytes.get(PREAMBLE..end).ok_or("it ends within its header")?;
    let entries: Vec<Entry> =
        serde_json::from_slice(header).map_err(|error| format!("its header is damaged: {error}"))?;

    let mut tensors = BTreeMap::new();
    let mut jobs = Vec::new();
    let (mut data, mut size) = (&bytes[end..], 0usize);
    for entry in &entries {
        let wrong = |what: &str| format!("the tensor {:?} {what}", entry.name);
        let count = entry.shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n));
        let needed = count.and_then(|count| count.checked_mul(entry.dtype.size()));
        let next = needed.and_then(|needed| size.checked_add(needed)?.checked_next_multiple_of(ALIGNMENT));
        let (Some(count), Some(needed), Some(next)) = (count, needed, next) else {
            return Err(wrong("has a shape that overflows"));
        };
        let own = data.get(..entry.bytes).ok_or_else(|| wrong("extends past the end of the file"))?;
        data = &data[entry.bytes..];
        jobs.push(Job { entry, data: own, count, scales: scale_count(entry, own.len()).map_err(wrong)? });
        let stored = Stored { kind: entry.dtype, shape: entry.shape.clone(), range: size..size + needed };
        if tensors.insert(entry.name.clone(), stored).is_some() {
            return Err(wrong("is present twice"));
        }
        size = next;
    }
    if !data.is_empty() {
        return Err(format!("it has {} bytes after its last tensor", data.len()));
    }
    let allowed = ALWAYS_ALLOWED.max(bytes.len().saturating_mul(MAX_EXPANSION));
    if size > allowed {
        return Err(format!("it has {} bytes and claims tensors of {size}", bytes.len()));
    }

    let mut words = vec![0u64; size / ALIGNMENT];
    let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let mut outputs = Vec::with_capacity(jobs.len());
    for job in &jobs {
        let needed = job.count * job.entry.dtype.size();
        let (output, after) = rest.split_at_mut(needed.next_multiple_of(ALIGNMENT));
        outputs.push(&mut output[..needed]);
        rest = after;
    }
    jobs.par_iter().zip(outputs).try_for_each(|(job, output)| job.run(output))?;
    Ok(Decoded { words, tensors })
}

/// Number of scales of a tensor: 0 if it is not quantised.
fn scale_count(entry: &Entry, bytes: usize) -> Result<usize, &'static str> {
    let Some(Quantised { limit, scale }) = entry.quantised else { return Ok(0) };
    if entry.dtype != ElementType::F32 || limit == 0 || limit > 127 {
        return Err("is quantised in a way that this program does not know");
    }
    let scales = match (scale, &entry.shape[..]) {
        (Axis::Row, [rows, ..]) => *rows,
        (Axis::Column, [_, columns]) => *columns,
        _ => return Err("has no rows or columns to share a scale"),
    };
    if scales.checked_mul(2).is_none_or(|needed| needed > bytes) {
        return Err("has fewer bytes than its scales need");
    }
    Ok(scales)
}

/// One tensor to decode.
struct Job<'f> {
    entry: &'f Entry,
    data: &'f [u8],
    /// Number of elements.
    count: usize,
    scales: usize,
}

impl Job<'_> {
    fn run(&self, output: &mut [u8]) -> Result<(), String> {
        let wrong = |what: String| format!("the tensor {:?} {what}", self.entry.name);
        let Some(Quantised { limit, scale }) = self.entry.quantised else {
            output.copy_from_slice(&inflate(self.data, output.len()).map_err(wrong)?);
            return Ok(());
        };
        let (scales, symbols) = self.data.split_at(2 * self.scales);
        let scales: Vec<f32> =
            scales.as_chunks::<2>().0.iter().map(|&two| bf16::from_le_bytes(two).to_f32()).collect();
        if scales.iter().any(|scale| !scale.is_finite()) {
            return Err(wrong("has a scale that is not finite".to_owned()));
        }
        let symbols = inflate(symbols, self.count).map_err(wrong)?;
        if symbols.iter().any(|&symbol| symbol > 2 * limit) {
            return Err(wrong(format!("has integers above {limit}")));
        }
        // A tensor without elements has no scales; any width will do.
        let width = self.count.checked_div(self.scales).unwrap_or(0).max(1);
        let outputs = output.as_chunks_mut::<4>().0.iter_mut();
        for (i, (&symbol, output)) in symbols.iter().zip(outputs).enumerate() {
            let scale = match scale {
                Axis::Row => scales[i / width],
                Axis::Column => scales[i % self.scales],
            };
            *output = ((f32::from(symbol) - f32::from(limit)) * scale).to_le_bytes();
        }
        Ok(())
    }
}

/// Decompresses exactly `length` bytes; the stream and the data must end with them.
fn inflate(data: &[u8], length: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut decoder = DeflateDecoder::new(data);
    let read = decoder.by_ref().take(length as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot be decompressed: {error}"))?;
    if bytes.len() != length {
        let relation = if bytes.len() < length { "fewer" } else { "more" };
        return Err(format!("has {relation} bytes than its shape needs"));
    }
    match decoder.into_inner() {
        [] => Ok(bytes),
        rest => Err(format!("is followed by {} bytes that are not part of it", rest.len())),
    }
}

/// Norm of the difference of two files' floating-point tensors, divided by the norm of those of the first; `None` if
/// their names or shapes differ.
pub fn relative_error(exact: &TensorFile, stored: &TensorFile) -> Option<f64> {
    let (mut error, mut total) = (0.0f64, 0.0f64);
    if !exact.names().eq(stored.names()) {
        return None;
    }
    for name in exact.names() {
        let (a, b) = (exact.get(name)?, stored.get(name)?);
        if a.shape != b.shape || a.kind != b.kind {
            return None;
        }
        let (Some(a), Some(b)) = (a.to_f32(), b.to_f32()) else { continue };
        for (a, b) in a.into_iter().zip(b) {
            let (a, b) = (f64::from(a), f64::from(b));
            error += (a - b) * (a - b);
            total += a * a;
        }
    }
    Some(if total > 0.0 { (error / total).sqrt() } else { 0.0 })
}
