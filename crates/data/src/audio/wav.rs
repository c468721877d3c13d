//! WAV files: a reader of our own (the hot path of most corpora) and a writer of 16-bit ones.
//!
//! The reader walks the chunks, believes no size it has not compared with the file, and says which
//! field contradicts which. It forgives what writers really do: streamed files with no size, missing
//! padding bytes, chunks nobody knows, rubbish behind the end.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use super::pcm::{self, Encoding};
use super::{AudioError, Container, Decoded, MOST_CHANNELS, MOST_FRAMES, SAMPLE_RATES, SourceInfo};

const BYTES: &str = "bytes of data";

/// Samples per channel that are decoded at a time where a file is not read whole.
const PIECE_FRAMES: u64 = 1 << 16;

/// Decodes the content of a WAV file.
pub fn decode(bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    let layout = whole_layout(bytes, name)?;
    let (samples, peak) = pcm::to_mono(&bytes[layout.data()], layout.format.encoding, layout.channels());
    if samples.is_empty() {
        return Err(AudioError::empty(name, "the WAV file holds no samples"));
    }
    let peak = peak.ok_or_else(|| AudioError::corrupt(name, "a sample is infinite or not a number"))?;
    Ok(super::finish(samples, layout.info(), peak))
}

/// Decodes a file whose first bytes are `head`, without ever holding more of it than a piece: only its samples. The WAV
/// begins at a byte of a file of so many (`start`, `length`). `None` where the samples begin beyond the head.
pub(super) fn decode_in_pieces(
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
    let mut left = layout.frames();
    while left > 0 {
        let frames = left.min(PIECE_FRAMES);
        bytes.resize((frames * layout.format.frame_bytes()) as usize, 0);
        file.read_exact(&mut bytes).map_err(failed)?;
        let (piece, peak) = pcm::to_mono(&bytes, layout.format.encoding, layout.channels());
        let peak = peak.ok_or_else(|| AudioError::corrupt(name, "a sample is infinite or not a number"))?;
        loudest = loudest.max(peak);
        samples.extend(piece);
        left -= frames;
    }
    if samples.is_empty() {
        return Err(AudioError::empty(name, "the WAV file holds no samples"));
    }
    Ok(Some(super::finish(samples, layout.info(), loudest)))
}

/// A WAV file of 16 bits and one channel. What is beyond [-1, 1] is limited.
pub fn encode_pcm16(samples: &[f32], sample_rate: u32) -> Vec<u8> {
    const HEADER: usize = 44;
    // A size that does not fit is written as "streamed": readers then take all there is.
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = Vec::with_capacity(HEADER + 2 * samples.len());
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&size(HEADER - 8 + 2 * samples.len()));
    out.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    out.extend_from_slice(&sample_rate.to_le_bytes());
    out.extend_from_slice(&sample_rate.saturating_mul(2).to_le_bytes());
    out.extend_from_slice(b"\x02\0\x10\0data");
    out.extend_from_slice(&size(2 * samples.len()));
    // `as` saturates, which is the limiting promised above, and turns not-a-number into silence.
    out.extend(
        samples.iter().flat_map(|&sample| ((sample * 32768.0).round_ties_even() as i16).to_le_bytes()),
    );
    out
}

/// What the header of a WAV file in memory says.
pub(super) fn info(bytes: &[u8], name: &Path) -> Result<SourceInfo, AudioError> {
    Ok(whole_layout(bytes, name)?.info())
}

/// How its samples are stored, and which of its bytes they are.
pub(super) fn samples(bytes: &[u8], name: &Path) -> Result<(Encoding, Range<u64>, SourceInfo), AudioError> {
    let layout = whole_layout(bytes, name)?;
    Ok((layout.format.encoding, layout.data.clone(), layout.info()))
}

/// The same from the first bytes of a file of `total`: `None` where they do not reach the samples.
pub(super) fn probe(bytes: &[u8], total: u64, name: &Path) -> Result<Option<SourceInfo>, AudioError> {
    Ok(layout(bytes, total, name)?.map(|layout| layout.info()))
}

/// What the `fmt ` chunk says, made sure of.
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

/// Where the samples are and how they are stored.
#[derive(Debug)]
struct Layout {
    format: Format,
    data: Range<u64>,
}

impl Layout {
    fn data(&self) -> Range<usize> {
        // Checked against the length of the slice, which is a usize.
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
        .ok_or_else(|| AudioError::corrupt(name, "the chunks lead out of the file"))
}

/// Walks the chunks of a file of `total` bytes, of which `bytes` are the first; `None` where the walk
/// leaves them.
fn layout(bytes: &[u8], total: u64, name: &Path) -> Result<Option<Layout>, AudioError> {
    let cut = |declared| AudioError::truncated(name, declared, total, "bytes");
    if total < 12 {
        return Err(cut(12));
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
            if layout.frames() > MOST_FRAMES {
                return Err(AudioError::TooLong { path: name.to_owned(), limit: MOST_FRAMES });
            }
            return Ok(Some(layout));
        }
        if !is_name(id) {
            let what = format!("at byte {at} a chunk should start, but {} is no name", id.escape_ascii());
            return Err(AudioError::corrupt(name, what));
        }
        let end = body + u64::from(size);
        if end > total {
            return Err(cut(end));
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

/// A chunk of odd size is followed by a byte of padding; some writers forget it.
fn padding(bytes: &[u8], end: u64, size: u32) -> u64 {
    let forgotten = || id_at(bytes, end).is_some_and(is_name) && !id_at(bytes, end + 1).is_some_and(is_name);
    u64::from(size % 2 == 1 && !forgotten())
}

/// The sizes that bear on the data chunk.
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
    let there = total - start;
    let size = match declared.wide {
        Some(wide) if declared.size == u32::MAX => wide,
        _ => u64::from(declared.size),
    };
    if declared.wide.is_none() && is_streamed(&declared, start, there) {
        return Ok(start..start + there / frame * frame);
    }
    if size > there {
        return Err(AudioError::truncated(name, size, there, BYTES));
    }
    if size % frame != 0 {
        let what = format!("{size} bytes of data are not whole frames of {frame} bytes");
        return Err(AudioError::corrupt(name, what));
    }
    let end = start + size;
    if bytes.len() as u64 == total {
        check_behind(bytes, end + size % 2, declared.riff_end.min(total)).map_err(|()| {
            AudioError::length_differs(name, size, declared.riff_end.min(total) - start, BYTES)
        })?;
    }
    Ok(start..end)
}

/// Programs that write to a pipe cannot come back to fill in a size. They leave all ones (ffmpeg), the
/// largest positive number less a page (sox, espeak), or zero together with an unfinished RIFF size.
fn is_streamed(declared: &Declared, start: u64, there: u64) -> bool {
    match declared.size {
        u32::MAX => true,
        0x7FFF_F000..=0x7FFF_FFFF => u64::from(declared.size) > there,
        0 => matches!(declared.riff_size, 0 | u32::MAX) || declared.riff_end <= start,
        _ => false,
    }
}

/// What stands between the samples and the end of the RIFF must be chunks: if it is not, the size of
/// the data chunk is wrong and samples would be lost in silence.
fn check_behind(bytes: &[u8], mut at: u64, end: u64) -> Result<(), ()> {
    const COMMON: [&[u8; 4]; 10] =
        [b"LIST", b"id3 ", b"ID3 ", b"bext", b"iXML", b"cue ", b"smpl", b"JUNK", b"PEAK", b"fact"];
    while at + 8 <= end {
        let (Some(id), Some(size)) = (id_at(bytes, at), u32_at(bytes, at + 4)) else { return Ok(()) };
        // Cut off or not: the sound is not in it.
        if COMMON.contains(&&id) {
            return Ok(());
        }
        let next = at + 8 + u64::from(size);
        if !is_name(id) || next > end {
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
    /// The end of every sub-format GUID that carries an old format tag.
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
            return Err(AudioError::unsupported(name, "a WAV file of an unknown extensible format"));
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
    if channels == 0 || channels > MOST_CHANNELS {
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
            "the header declares frames of {block} bytes, {channels} x {bits} bits make {}",
            format.frame_bytes()
        )));
    }
    // Zero is what writers leave that do not care; anything else has to fit, or the rate is wrong.
    let expected = u64::from(sample_rate) * u64::from(block);
    if byte_rate != 0 && u64::from(byte_rate) != expected {
        return Err(corrupt(format!(
            "the header declares {byte_rate} bytes per second, {sample_rate} Hz x {block} bytes make {expected}"
        )));
    }
    Ok(format)
}

fn is_name(id: [u8; 4]) -> bool {
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
