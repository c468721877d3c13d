//! The chain of frames of an MP3 file. Each frame declares its size, so the whole file can be walked without decoding: a
//! cut, a gap or a changed header breaks the chain.

use std::ops::Range;
use std::path::Path;

use super::{AudioError, Container, SourceInfo};

/// All frames of a file.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) header: Header,
    /// Byte ranges of the audio frames.
    pub(super) frames: Vec<Range<usize>>,
    tag: Tag,
}

impl Scan {
    /// Encoder delay in samples.
    pub(super) fn delay(&self) -> u64 {
        self.tag.delay
    }

    /// Number of samples without encoder delay and padding.
    pub(super) fn samples(&self) -> u64 {
        let all = self.frames.len() as u64 * self.header.samples();
        all.saturating_sub(self.tag.delay + self.tag.padding)
    }

    pub(super) fn info(&self) -> SourceInfo {
        self.header.info(self.samples())
    }
}

/// A parsed frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    mpeg1: bool,
    pub(super) sample_rate: u32,
    pub(super) channels: u16,
    bytes: usize,
}

impl Header {
    /// Samples per channel in a frame.
    pub(super) fn samples(&self) -> u64 {
        if self.mpeg1 { 1152 } else { 576 }
    }

    fn info(&self, declared: u64) -> SourceInfo {
        SourceInfo {
            container: Container::Mp3,
            sample_rate: self.sample_rate,
            channels: self.channels,
            bits: None,
            declared_frames: Some(declared),
        }
    }

    fn same_stream(&self, other: &Header) -> bool {
        (self.mpeg1, self.sample_rate, self.channels) == (other.mpeg1, other.sample_rate, other.channels)
    }

    /// Size in bytes of the side information after the header.
    fn side_bytes(&self) -> usize {
        match (self.mpeg1, self.channels) {
            (true, 1) | (false, 2) => 17,
            (true, _) => 32,
            (false, _) => 9,
        }
    }
}

/// Why bytes are not a decodable frame.
#[derive(Debug, PartialEq, Eq)]
enum NotAFrame {
    /// There is no frame header.
    Missing,
    /// A header of an unsupported variant.
    Unsupported(&'static str),
}

fn parse(bytes: &[u8]) -> Result<Header, NotAFrame> {
    const KBITS_MPEG1: [u32; 16] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0];
    const KBITS_MPEG2: [u32; 16] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0];
    let Some(&[0xFF, b, c, d]) = bytes.first_chunk::<4>() else { return Err(NotAFrame::Missing) };
    let (version, layer) = (b >> 3 & 3, b >> 1 & 3);
    let (rate_index, bitrate_index) = (c >> 2 & 3, usize::from(c >> 4));
    if b & 0xE0 != 0xE0 || version == 1 || layer == 0 || rate_index == 3 || bitrate_index == 15 {
        return Err(NotAFrame::Missing);
    }
    if layer != 1 {
        return Err(NotAFrame::Unsupported("MPEG audio of layer 1 or 2"));
    }
    if bitrate_index == 0 {
        return Err(NotAFrame::Unsupported("an MP3 file with a free bit rate"));
    }
    let mpeg1 = version == 3;
    let base = [44_100, 48_000, 32_000][usize::from(rate_index)];
    let sample_rate = match version {
        3 => base,
        2 => base / 2,
        _ => base / 4,
    };
    let kbits = if mpeg1 { KBITS_MPEG1 } else { KBITS_MPEG2 }[bitrate_index];
    let per_frame = if mpeg1 { 144_000 } else { 72_000 };
    let bytes = per_frame * kbits / sample_rate + u32::from(c >> 1 & 1);
    let channels = if d >> 6 == 3 { 1 } else { 2 };
    Ok(Header { mpeg1, sample_rate, channels, bytes: bytes as usize })
}

/// Metadata that the first frame may carry instead of audio (Xing, Info or VBRI).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tag {
    /// Number of frames that follow; zero if not declared.
    frames: u64,
    /// Number of bytes from this frame on; zero if not declared.
    bytes: u64,
    delay: u64,
    padding: u64,
}

/// Delay in samples inherent to every MP3 decoder.
const DECODER_DELAY: u64 = 529;

fn parse_tag(header: &Header, frame: &[u8]) -> Option<Tag> {
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..)?.first_chunk::<4>().map(|field| u64::from(u32::from_be_bytes(*field)))
    };
    if frame.get(36..40) == Some(b"VBRI") {
        return Some(Tag { bytes: number(frame, 46)?, frames: number(frame, 50)?, ..Tag::default() });
    }
    let body = frame.get(4 + header.side_bytes()..)?;
    if !(body.starts_with(b"Xing") || body.starts_with(b"Info")) {
        return None;
    }
    let flags = number(body, 4)?;
    let mut at = 8;
    let mut field = |flag: u64, length: usize| {
        let value = (flags & flag != 0).then(|| number(body, at))?;
        at += length;
        value
    };
    let frames = field(1, 4).unwrap_or(0);
    let bytes = field(2, 4).unwrap_or(0);
    field(4, 100);
    field(8, 4);
    let mut tag = Tag { frames, bytes, ..Tag::default() };
    // The LAME extension, also written by ffmpeg: two 12-bit numbers.
    if let Some(extension) = body.get(at..)
        && let Some(&[a, b, c]) = extension.get(21..).and_then(|rest| rest.first_chunk::<3>())
        && [b"LAME", b"Lavf", b"Lavc"].iter().any(|name| extension.starts_with(&name[..]))
    {
        let (a, b, c) = (u64::from(a), u64::from(b), u64::from(c));
        tag.delay = (a << 4 | b >> 4) + DECODER_DELAY;
        tag.padding = ((b & 15) << 8 | c).saturating_sub(DECODER_DELAY);
    }
    Some(tag)
}

/// Reads the first frame; `None` if it does not declare the length of the file.
pub(super) fn probe(bytes: &[u8], name: &Path) -> Result<Option<SourceInfo>, AudioError> {
    let header = first_header(bytes, name)?;
    let Some(frame) = bytes.get(..header.bytes) else { return Ok(None) };
    Ok(parse_tag(&header, frame)
        .filter(|tag| tag.frames > 0)
        .map(|tag| header.info((tag.frames * header.samples()).saturating_sub(tag.delay + tag.padding))))
}

fn first_header(bytes: &[u8], name: &Path) -> Result<Header, AudioError> {
    parse(bytes).map_err(|error| match error {
        NotAFrame::Unsupported(what) => AudioError::unsupported(name, what),
        NotAFrame::Missing => AudioError::unsupported(name, "content that starts like MP3 but is not"),
    })
}

/// Walks all frames of a file that starts with one.
pub(super) fn scan(bytes: &[u8], name: &Path) -> Result<Scan, AudioError> {
    let header = first_header(bytes, name)?;
    let tag = bytes.get(..header.bytes).and_then(|frame| parse_tag(&header, frame));
    let mut at = if tag.is_some() { header.bytes } else { 0 };
    let tag = tag.unwrap_or_default();
    let mut frames = Vec::new();
    let complete = |frames: &Vec<_>| tag.frames > 0 && frames.len() as u64 >= tag.frames;
    while at < bytes.len() && !is_tail(&bytes[at..]) {
        let here = match parse(&bytes[at..]) {
            Ok(here) if header.same_stream(&here) => here,
            _ if complete(&frames) => break,
            _ if bytes.len() - at < 4 => {
                return Err(AudioError::end_missing(name, "it ends inside a frame header"));
            }
            _ => return Err(AudioError::corrupt(name, format!("expected a frame at byte {at}"))),
        };
        let end = at + here.bytes;
        if end > bytes.len() {
            if complete(&frames) {
                break;
            }
            return Err(AudioError::truncated(name, end as u64, bytes.len() as u64, "bytes"));
        }
        frames.push(at..end);
        at = end;
    }
    let scan = Scan { header, frames, tag };
    check_length(&scan, bytes.len() as u64, name)?;
    Ok(scan)
}

/// Some encoders count the tag's own frame, so one missing frame is only a truncation if bytes are missing too.
fn check_length(scan: &Scan, bytes: u64, name: &Path) -> Result<(), AudioError> {
    let (declared, found) = (scan.tag.frames, scan.frames.len() as u64);
    if found == 0 {
        return Err(AudioError::empty(name, "the MP3 file contains no audio"));
    }
    let bytes_missing = scan.tag.bytes > bytes;
    if declared > found + 1 || (declared == found + 1 && bytes_missing) {
        return Err(AudioError::truncated(name, declared, found, "MPEG frames"));
    }
    if declared > 0 && found > declared + 1 {
        return Err(AudioError::length_differs(name, declared, found, "MPEG frames"));
    }
    Ok(())
}

/// Whether the rest is a tag or padding after the last frame.
fn is_tail(rest: &[u8]) -> bool {
    const TAGS: [&[u8]; 5] = [b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3", b"3DI"];
    TAGS.iter().any(|tag| rest.starts_with(tag)) || rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` silent frames, 64 kbit/s, 22,050 Hz, mono: 208 bytes each.
    fn silent(count: usize) -> Vec<u8> {
        let mut frame = vec![0u8; 208];
        frame[..4].copy_from_slice(&[0xFF, 0xF3, 0x80, 0xC0]);
        frame.repeat(count)
    }

    fn name() -> &'static Path {
        Path::new("a.mp3")
    }

    #[test]
    fn the_chain_is_walked_to_its_end_and_tags_are_skipped() {
        let mut bytes = silent(10);
        let scan = scan(&bytes, name()).unwrap();
        assert_eq!((scan.frames.len(), scan.samples()), (10, 5760));
        assert_eq!((scan.header.sample_rate, scan.header.channels), (22_050, 1));
        bytes.extend_from_slice(b"TAG");
        bytes.resize(bytes.len() + 125, b' ');
        assert_eq!(super::scan(&bytes, name()).unwrap().frames.len(), 10);
    }

    #[test]
    fn every_cut_inside_a_frame_is_detected() {
        let bytes = silent(3);
        for end in 1..bytes.len() {
            let cut = scan(&bytes[..end], name());
            assert_eq!(cut.is_err(), end % 208 != 0, "cut at {end}");
        }
    }

    #[test]
    fn a_gap_in_the_chain_is_detected() {
        let mut bytes = silent(5);
        bytes.drain(300..310);
        assert!(matches!(scan(&bytes, name()), Err(AudioError::Corrupt { .. })));
    }

    #[test]
    fn the_declared_number_of_frames_is_checked() {
        let mut bytes = silent(1);
        let tag = 4 + 9;
        bytes[tag..tag + 12].copy_from_slice(b"Info\0\0\0\x01\0\0\0\x06");
        assert_eq!(probe(&bytes, name()).unwrap().unwrap().declared_frames, Some(6 * 576));
        let with = |count| [&bytes[..], &silent(count)].concat();
        assert!(matches!(scan(&with(3), name()), Err(AudioError::Truncated { declared: 6, found: 3, .. })));
        assert_eq!(scan(&with(6), name()).unwrap().frames.len(), 6);
        assert!(matches!(scan(&with(9), name()), Err(AudioError::LengthDiffers { .. })));
    }
}
