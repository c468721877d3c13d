//! WAV files: our own reader (the hot path for most corpora) and a 16-bit writer.
//!
//! The reader walks the chunks, checks every size against the file and reports which fields contradict each other. It
//! tolerates what real writers produce: streamed files without a size, missing padding bytes, unknown chunks, garbage after
//! the end.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use super::pcm::{self, Encoding};
use super::{AudioError, Container, Decoded, MAX_CHANNELS, MAX_FRAMES, SAMPLE_RATES, SourceInfo};

const BYTES: &str = "bytes of data";

/// Frames decoded at a time if a file is not read as a whole.
const CHUNK_FRAMES: u64 = 1 << 16;

/// Decodes the content of a WAV file.
pub fn decode(bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    let layout = whole_layout(bytes, name)?;
    let (samples, peak) = pcm::to_mono(&bytes[layout.data()], layout.format.encoding, layout.channels());
    if samples.is_empty() {
        return Err(AudioError::empty(name, "the WAV file contains no samples"));
    }
    let peak = peak.ok_or_else(|| AudioError::corrupt(name, "a sample is NaN or infinite"))?;
    Ok(super::finish(samples, layout.info(), peak))
}

/// Decodes a file whose first bytes are `head` in chunks, so that only its samples are held in memory. `start` is the offset
/// of the WAV in a file of `length` bytes. `None` if the samples begin after `head`.
pub(super) fn decode_in_chunks(
    file: &mut (impl Read + Seek),
    head: &[u8],
    (start, length): (u64, u64),
    name: &Path,
) -> Result<Option<Decoded>, AudioError> {
    let Some(layout) = layout(head, length.saturating_sub(start), name)? else { return Ok(None) };
    let failed = |source| AudioError::io(name, source);
    file.seek(SeekFrom::Start(start + layout.data.start)).map_err(failed)?;
    let mut samples = Vec::with_capacity(layout.frames() as usize);
    let mut loudest = 0.0f32;
    let mut bytes = Vec::new();
    let mut remaining = layout.frames();
    while remaining > 0 {
        let frames = remaining.min(CHUNK_FRAMES);
        bytes.resize((frames * layout.format.frame_bytes()) as usize, 0);
        file.read_exact(&mut bytes).map_err(failed)?;
        let (chunk, peak) = pcm::to_mono(&bytes, layout.format.encoding, layout.channels());
        let peak = peak.ok_or_else(|| AudioError::corrupt(name, "a sample is NaN or infinite"))?;
        loudest = loudest.max(peak);
        samples.extend(chunk);
        remaining -= frames;
    }
    if samples.is_empty() {
        return Err(AudioError::empty(name, "the WAV file contains no samples"));
    }
    Ok(Some(super::finish(samples, layout.info(), loudest)))
}

/// Encodes a 16-bit mono WAV file. Samples outside [-1, 1] are clamped.
pub fn encode_pcm16(samples: &[f32], sample_rate: u32) -> Vec<u8> {
    const HEADER: usize = 44;
    // A size that does not fit is written as "streamed": readers then use everything up to the end of the file.
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = Vec::with_capacity(HEADER + 2 * samples.len());
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&size(HEADER - 8 + 2 * samples.len()));
    out.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    out.extend_from_slice(&sample_rate.to_le_bytes());
    out.extend_from_slice(&sample_rate.saturating_mul(2).to_le_bytes());
    out.extend_from_slice(b"\x02\0\x10\0data");
    out.extend_from_slice(&size(2 * samples.len()));
    // `as` saturates, which is the clamping documented above, and converts NaN to 0.
    out.extend(
        samples.iter().flat_map(|&sample| ((sample * 32768.0).round_ties_even() as i16).to_le_bytes()),
    );
    out
}

/// Parses the header of a WAV file in memory.
pub(super) fn info(bytes: &[u8], name: &Path) -> Result<SourceInfo, AudioError> {
    Ok(whole_layout(bytes, name)?.info())
}

/// Returns the encoding of the samples and their byte range.
pub(super) fn samples(bytes: &[u8], name: &Path) -> Result<(Encoding, Range<u64>, SourceInfo), AudioError> {
    let layout = whole_layout(bytes, name)?;
    Ok((layout.format.encoding, layout.data.clone(), layout.info()))
}

/// Like [`info`], from the first bytes of a file of `total` bytes: `None` if they do not reach the samples.
pub(super) fn probe(bytes: &[u8], total: u64, name: &Path) -> Result<Option<SourceInfo>, AudioError> {
    Ok(layout(bytes, total, name)?.map(|layout| layout.info()))
}

/// The validated content of the `fmt ` chunk.
#[derive(Clone, Copy, Debug)]
struct Format {
    encoding: Encoding,
    channels: u16,
    sample_rate: u32,
    bits: u16,
}

impl Format {
    fn frame_bytes(&self) -> u64 {
        self.encoding.bytes() as u64 * u64::from(self.channels)
    }
}

/// Location and format of the samples.
#[derive(Debug)]
struct Layout {
    format: Format,
    data: Range<u64>,
}

impl Layout {
    fn data(&self) -> Range<usize> {
        // Fits in usize: checked against the length of the slice.
        self.data.start as usize..self.data.end as usize
    }

    fn channels(&self) -> usize {
        usize::from(self.format.channels)
    }

    fn frames(&self) -> u64 {
        (self.data.end - self.data.start) / self.format.frame_bytes()
    }

    fn info(&self) -> SourceInfo {
        SourceInfo {
            container: Container::Wav,
            sample_rate: self.format.sample_rate,
            channels: self.format.channels,
            bits: Some(self.format.bits),
            declared_frames: Some(self.frames()),
        }
    }
}

fn whole_layout(bytes: &[u8], name: &Path) -> Result<Layout, AudioError> {
    layout(bytes, bytes.len() as u64, name)?
        .ok_or_else(|| AudioError::corrupt(name, "a chunk extends beyond the end of the file"))
}

/// Walks the chunks of a file of `total` bytes that starts with `bytes`; `None` if the walk leaves `bytes`.
fn layout(bytes: &[u8], total: u64, name: &Path) -> Result<Option<Layout>, AudioError> {
    let truncated = |declared| AudioError::truncated(name, declared, total, "bytes");
    if total < 12 {
        return Err(truncated(12));
    }
    let Some(riff_size) = u32_at(bytes, 4) else { return Ok(None) };
    let wide = !bytes.starts_with(b"RIFF");
    let mut riff_end = 8 + u64::from(riff_size);
    let mut wide_data = None;
    let mut fact = None;
    let mut format = None;
    let mut at = 12u64;
    loop {
        let body = at + 8;
        if body > total {
            let what = if format.is_none() { "it has no fmt chunk" } else { "it has no data chunk" };
            return Err(AudioError::corrupt(name, what));
        }
        let Some(id) = id_at(bytes, at) else { return Ok(None) };
        let Some(size) = u32_at(bytes, at + 4) else { return Ok(None) };
        if &id == b"data" {
            let format = format
                .ok_or_else(|| AudioError::corrupt(name, "the data chunk comes before any fmt chunk"))?;
            let size = Declared { size, wide: wide_data, riff_end, riff_size };
            let data = data_range(bytes, total, body, size, &format, name)?;
            let layout = Layout { format, data };
            check_fact(fact, &layout, name)?;
            if layout.frames() > MAX_FRAMES {
                return Err(AudioError::TooLong { path: name.to_owned(), limit: MAX_FRAMES });
            }
            return Ok(Some(layout));
        }
        if !is_chunk_id(id) {
            let what = format!("expected a chunk at byte {at}, but {} is not a chunk id", id.escape_ascii());
            return Err(AudioError::corrupt(name, what));
        }
        let end = body + u64::from(size);
        if end > total {
            return Err(truncated(end));
        }
        let content = usize::try_from(body).ok().and_then(|from| {
            let to = from.checked_add(size as usize)?;
            bytes.get(from..to)
        });
        match &id {
            b"fmt " if format.is_some() => {
                return Err(AudioError::corrupt(name, "it has two fmt chunks"));
            }
            b"fmt " => {
                let Some(content) = content else { return Ok(None) };
                format = Some(parse_format(content, name)?);
            }
            b"ds64" if wide => {
                let Some(content) = content else { return Ok(None) };
                let (Some(riff), Some(data)) = (u64_at(content, 0), u64_at(content, 8)) else {
                    return Err(AudioError::corrupt(name, "its ds64 chunk is too short"));
                };
                riff_end = riff.saturating_add(8);
                wide_data = Some(data);
            }
            b"fact" => {
                let Some(content) = content else { return Ok(None) };
                fact = u32_at(content, 0);
            }
            _ => {}
        }
        at = end + padding(bytes, end, size);
    }
}

/// A chunk of odd size is followed by a padding byte; some writers omit it.
fn padding(bytes: &[u8], end: u64, size: u32) -> u64 {
    let omitted =
        || id_at(bytes, end).is_some_and(is_chunk_id) && !id_at(bytes, end + 1).is_some_and(is_chunk_id);
    u64::from(size % 2 == 1 && !omitted())
}

/// All declared sizes that concern the data chunk.
struct Declared {
    size: u32,
    wide: Option<u64>,
    riff_end: u64,
    riff_size: u32,
}

fn data_range(
    bytes: &[u8],
    total: u64,
    start: u64,
    declared: Declared,
    format: &Format,
    name: &Path,
) -> Result<Range<u64>, AudioError> {
    let frame = format.frame_bytes();
    let available = total - start;
    let size = match declared.wide {
        Some(wide) if declared.size == u32::MAX => wide,
        _ => u64::from(declared.size),
    };
    if declared.wide.is_none() && is_streamed(&declared, start, available) {
        return Ok(start..start + available / frame * frame);
    }
    if size > available {
        return Err(AudioError::truncated(name, size, available, BYTES));
    }
    if size % frame != 0 {
        let what = format!("{size} bytes of data are not a multiple of the frame size of {frame} bytes");
        return Err(AudioError::corrupt(name, what));
    }
    let end = start + size;
    if bytes.len() as u64 == total {
        check_trailing_chunks(bytes, end + size % 2, declared.riff_end.min(total)).map_err(|()| {
            AudioError::length_differs(name, size, declared.riff_end.min(total) - start, BYTES)
        })?;
    }
    Ok(start..end)
}

/// Programs that write to a pipe cannot fill in the size afterwards. They write all ones (ffmpeg), the largest positive
/// number minus a page (sox, espeak), or zero together with an unfinished RIFF size.
fn is_streamed(declared: &Declared, start: u64, available: u64) -> bool {
    match declared.size {
        u32::MAX => true,
        0x7FFF_F000..=0x7FFF_FFFF => u64::from(declared.size) > available,
        0 => matches!(declared.riff_size, 0 | u32::MAX) || declared.riff_end <= start,
        _ => false,
    }
}

/// Checks that only chunks follow the samples up to the end of the RIFF: otherwise the size of the data chunk is wrong and
/// samples would be lost silently.
fn check_trailing_chunks(bytes: &[u8], mut at: u64, end: u64) -> Result<(), ()> {
    const COMMON: [&[u8; 4]; 10] =
        [b"LIST", b"id3 ", b"ID3 ", b"bext", b"iXML", b"cue ", b"smpl", b"JUNK", b"PEAK", b"fact"];
    while at + 8 <= end {
        let (Some(id), Some(size)) = (id_at(bytes, at), u32_at(bytes, at + 4)) else { return Ok(()) };
        // Truncated or not: this chunk contains no samples.
        if COMMON.contains(&&id) {
            return Ok(());
        }
        let next = at + 8 + u64::from(size);
        if !is_chunk_id(id) || next > end {
            let zeros = bytes[at as usize..end as usize].iter().all(|&byte| byte == 0);
            return if zeros { Ok(()) } else { Err(()) };
        }
        at = next + padding(bytes, next, size);
    }
    Ok(())
}

/// The optional fact chunk repeats the length; some writers count the samples of all channels.
fn check_fact(fact: Option<u32>, layout: &Layout, name: &Path) -> Result<(), AudioError> {
    let frames = layout.frames();
    match fact.map(u64::from) {
        None | Some(0) => Ok(()),
        Some(declared) if declared == u64::from(u32::MAX) => Ok(()),
        Some(declared) if declared == frames || declared == frames * u64::from(layout.format.channels) => {
            Ok(())
        }
        Some(declared) => Err(AudioError::length_differs(name, declared, frames, "samples")),
    }
}

fn parse_format(content: &[u8], name: &Path) -> Result<Format, AudioError> {
    /// The common end of all sub-format GUIDs that carry an old format tag.
    const WAVE_GUID: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71];
    let corrupt = |what: String| AudioError::corrupt(name, what);
    let short = || corrupt(format!("its fmt chunk has only {} bytes", content.len()));

    let field = |offset: usize| u16_at(content, offset).ok_or_else(short);
    let (mut tag, channels, block, bits) = (field(0)?, field(2)?, field(12)?, field(14)?);
    let sample_rate = u32_at(content, 4).ok_or_else(short)?;
    let byte_rate = u32_at(content, 8).ok_or_else(short)?;
    if tag == 0xFFFE {
        let valid_bits = field(18)?;
        if valid_bits > bits {
            return Err(corrupt(format!("{valid_bits} valid bits in samples of {bits}")));
        }
        if content.get(26..40).ok_or_else(short)? != WAVE_GUID {
            return Err(AudioError::unsupported(name, "a WAV file with an unknown extensible format"));
        }
        tag = field(24)?;
    }
    let coding = match tag {
        1 | 3 => tag,
        2 | 0x11 => return Err(AudioError::unsupported(name, "a WAV file with ADPCM samples")),
        6 | 7 => return Err(AudioError::unsupported(name, "a WAV file with A-law or mu-law samples")),
        0x50 | 0x55 => return Err(AudioError::unsupported(name, "a WAV file with MPEG audio inside")),
        other => {
            return Err(AudioError::unsupported(name, format!("a WAV file of unknown format {other:#06x}")));
        }
    };
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(corrupt(format!("the header declares {channels} channels")));
    }
    if !SAMPLE_RATES.contains(&sample_rate) {
        return Err(corrupt(format!("the header declares a sampling rate of {sample_rate} Hz")));
    }
    let encoding = match (coding, bits) {
        (1, 1..=8) => Encoding::U8,
        (1, 9..=16) => Encoding::I16,
        (1, 17..=24) => Encoding::I24,
        (1, 25..=32) => Encoding::I32,
        (3, 32) => Encoding::F32,
        (3, 64) => Encoding::F64,
        (1, _) => return Err(corrupt(format!("PCM samples of {bits} bits"))),
        _ => return Err(corrupt(format!("float samples of {bits} bits"))),
    };
    let format = Format { encoding, channels, sample_rate, bits };
    if u64::from(block) != format.frame_bytes() {
        return Err(corrupt(format!(
            "the header declares frames of {block} bytes, but {channels} x {bits} bits are {}",
            format.frame_bytes()
        )));
    }
    // Some writers leave this zero; any other value must match, or the sample rate is wrong.
    let expected = u64::from(sample_rate) * u64::from(block);
    if byte_rate != 0 && u64::from(byte_rate) != expected {
        return Err(corrupt(format!(
            "the header declares {byte_rate} bytes per second, but {sample_rate} Hz x {block} bytes are {expected}"
        )));
    }
    Ok(format)
}

fn is_chunk_id(id: [u8; 4]) -> bool {
    id.iter().all(|byte| (0x20..0x7F).contains(byte))
}

fn array_at<const N: usize>(bytes: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn id_at(bytes: &[u8], at: u64) -> Option<[u8; 4]> {
    array_at(bytes, at)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at as u64).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: u64) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}
