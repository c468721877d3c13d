//! Encodes samples into audio files and streams, incrementally.
//!
//! | format | contents | at the end of a file | in a pipe |
//! |---|---|---|---|
//! | `wav`, `wav24`, `wav-float` | RIFF, 16 or 24 bits or floats | sizes corrected | sizes 0xFFFFFFFF, "read to the end" |
//! | `flac` | 16 bits, lossless | length and MD5 corrected | length and MD5 unknown, which readers allow |
//! | `mp3` | MPEG-2 layer 3, 96 kbit/s | the frame with length and padding corrected | no such frame |
//! | `opus` | Opus in Ogg, 48 kbit/s | | smaller pages, for lower latency |
//! | `pcm` | 16 bits, little-endian, no header | | |
//!
//! FLAC is encoded here; MP3 by `rusty_mp3` and Opus by `opus-pure`, both in pure Rust, without dependencies and under permissive
//! licences. There is no encoder for AAC and Vorbis.

mod flac;
mod md5;
mod mp3;
mod opus;
mod pcm;

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::str::FromStr;

use myxtts_run::output_path::OutputWriter;

pub use pcm::Depth;

/// Audio file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// RIFF WAVE.
    Wav(Depth),
    /// Lossless, about half the size of a WAV file.
    Flac,
    /// MPEG-2 layer 3 at 96 kbit/s.
    Mp3,
    /// Opus in Ogg at 48 kbit/s, the smallest.
    Opus,
    /// Samples of 16 bits, little-endian, without a header.
    Pcm,
}

/// Error of writing audio.
#[derive(Debug, thiserror::Error)]
pub enum AudioFileError {
    /// Unknown format name or file extension.
    #[error("there is no encoder for {0:?}; there are {list}", list = Format::list())]
    UnknownFormat(String),
    /// The file name has no extension.
    #[error(
        "the name {0:?} has no extension that gives the format: use one of {list}, or --format", list = Format::extensions()
    )]
    NoExtension(String),
    /// The format does not support the sample rate.
    #[error("{format} does not support this model's sample rate of {rate} Hz: use {instead} instead")]
    Rate {
        /// The format.
        format: Format,
        /// Sample rate in Hz.
        rate: u32,
        /// Formats that support it.
        instead: &'static str,
    },
    /// The encoder failed.
    #[error("the {format} encoder failed: {what}")]
    Encoder {
        /// The format.
        format: Format,
        /// Message of the encoder.
        what: String,
    },
    /// Writing failed.
    #[error("the audio cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 7] = [
        Format::Wav(Depth::Int16),
        Format::Wav(Depth::Int24),
        Format::Wav(Depth::Float),
        Format::Flac,
        Format::Mp3,
        Format::Opus,
        Format::Pcm,
    ];

    /// Name in `--format`.
    pub fn name(self) -> &'static str {
        match self {
            Format::Wav(Depth::Int16) => "wav",
            Format::Wav(Depth::Int24) => "wav24",
            Format::Wav(Depth::Float) => "wav-float",
            Format::Flac => "flac",
            Format::Mp3 => "mp3",
            Format::Opus => "opus",
            Format::Pcm => "pcm",
        }
    }

    /// The format for a file name, by its extension.
    pub fn from_path(path: &Path) -> Result<Format, AudioFileError> {
        let shown = || path.display().to_string();
        let extension = path.extension().ok_or_else(|| AudioFileError::NoExtension(shown()))?;
        match extension.to_string_lossy().to_lowercase().as_str() {
            "wav" | "wave" => Ok(Format::Wav(Depth::Int16)),
            "flac" => Ok(Format::Flac),
            "mp3" => Ok(Format::Mp3),
            "opus" | "ogg" | "oga" => Ok(Format::Opus),
            "pcm" | "raw" | "s16" => Ok(Format::Pcm),
            other => Err(AudioFileError::UnknownFormat(format!(".{other}"))),
        }
    }

    /// Names of all formats, for messages.
    pub fn list() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    fn extensions() -> &'static str {
        ".wav, .flac, .mp3, .opus, .ogg, .pcm"
    }

    /// MIME type.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Wav(_) => "audio/wav",
            Format::Flac => "audio/flac",
            Format::Mp3 => "audio/mpeg",
            Format::Opus => "audio/ogg",
            Format::Pcm => "audio/pcm",
        }
    }

    /// Whether samples can be appended to an existing file: what follows the header depends only on the samples.
    pub fn is_appendable(self) -> bool {
        matches!(self, Format::Wav(_) | Format::Pcm)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = AudioFileError;

    fn from_str(name: &str) -> Result<Format, AudioFileError> {
        let named = Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name));
        named.ok_or_else(|| AudioFileError::UnknownFormat(name.to_owned()))
    }
}

/// Whether the header can be rewritten once the length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkKind {
    /// A file: it can.
    Seekable,
    /// A pipe, a socket or a player: it cannot.
    Streamed,
}

/// Encoder of one format for mono samples.
trait Encode: Send {
    /// Encodes samples in [-1, 1]; larger values are clamped, NaN becomes 0.
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError>;

    /// Encodes the rest; returns the final header if it changed.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError>;
}

/// Encodes samples into bytes, which the caller stores.
pub struct Encoder {
    encode: Box<dyn Encode>,
}

impl Encoder {
    /// Starts an encoder for a sample rate in Hz; the header goes to `out`.
    pub fn begin(
        format: Format,
        rate: u32,
        kind: SinkKind,
        out: &mut Vec<u8>,
    ) -> Result<Encoder, AudioFileError> {
        let encode: Box<dyn Encode> = match format {
            Format::Wav(depth) => Box::new(pcm::Wav::begin(depth, rate, out)),
            Format::Pcm => Box::new(pcm::Raw),
            Format::Flac => Box::new(flac::Flac::begin(rate, out)),
            Format::Mp3 => Box::new(mp3::Mp3::begin(rate, kind)?),
            Format::Opus => Box::new(opus::Opus::begin(rate, kind, out)?),
        };
        Ok(Encoder { encode })
    }

    /// Resumes an appendable file ([`Format::is_appendable`]) that has `samples` already; `None` for other formats.
    pub fn resume(format: Format, rate: u32, samples: u64) -> Option<Encoder> {
        match format {
            Format::Wav(depth) => Some(Encoder { encode: Box::new(pcm::Wav::resume(depth, rate, samples)) }),
            Format::Pcm => Some(Encoder { encode: Box::new(pcm::Raw) }),
            _ => None,
        }
    }

    /// Encodes samples in [-1, 1]; larger values are clamped, NaN becomes 0.
    pub fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        self.encode.encode(samples, out)
    }

    /// Encodes the rest. The returned bytes replace the header, if the sink is seekable.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError> {
        self.encode.finish(out)
    }
}

/// Length in bytes of an appendable file ([`Format::is_appendable`]) with the given number of samples, without trailing padding;
/// `None` for other formats.
pub fn appendable_length(format: Format, samples: u64) -> Option<u64> {
    match format {
        Format::Wav(depth) => Some(depth.header() + samples * depth.bytes()),
        Format::Pcm => Some(samples * Depth::Int16.bytes()),
        _ => None,
    }
}

/// Destination of encoded bytes.
pub trait Sink {
    /// Whether [`Sink::replace_start`] is supported.
    fn kind(&self) -> SinkKind;
    /// Appends bytes.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Overwrites the first bytes. Called once, after everything was appended, and only if the sink is seekable.
    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl Sink for File {
    fn kind(&self) -> SinkKind {
        match self.metadata() {
            Ok(found) if found.is_file() => SinkKind::Seekable,
            _ => SinkKind::Streamed,
        }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(0))?;
        self.write_all(bytes)
    }
}

impl Sink for OutputWriter {
    fn kind(&self) -> SinkKind {
        if self.is_file() { SinkKind::Seekable } else { SinkKind::Streamed }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).map_err(|error| io::Error::new(error.source.kind(), error))
    }

    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        OutputWriter::replace_start(self, bytes).map_err(|error| io::Error::new(error.source.kind(), error))
    }
}

/// A sink that cannot seek. Every write is flushed.
pub struct Stream<W>(pub W);

impl<W: Write> Sink for Stream<W> {
    fn kind(&self) -> SinkKind {
        SinkKind::Streamed
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    fn replace_start(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Encodes samples and writes them to a sink.
pub struct AudioWriter<S> {
    encoder: Encoder,
    sink: S,
    bytes: Vec<u8>,
}

impl<S: Sink> AudioWriter<S> {
    /// Starts a file of a sample rate in Hz.
    pub fn begin(mut sink: S, format: Format, rate: u32) -> Result<Self, AudioFileError> {
        let mut bytes = Vec::new();
        let encoder = Encoder::begin(format, rate, sink.kind(), &mut bytes)?;
        sink.add(&bytes)?;
        Ok(AudioWriter { encoder, sink, bytes })
    }

    /// Resumes an appendable file with `samples` samples, to whose end `sink` writes; `None` for other formats.
    pub fn resume(sink: S, format: Format, rate: u32, samples: u64) -> Option<Self> {
        Encoder::resume(format, rate, samples).map(|encoder| AudioWriter { encoder, sink, bytes: Vec::new() })
    }

    /// Writes samples in [-1, 1].
    pub fn write(&mut self, samples: &[f32]) -> Result<(), AudioFileError> {
        self.bytes.clear();
        self.encoder.encode(samples, &mut self.bytes)?;
        if self.bytes.is_empty() {
            return Ok(());
        }
        Ok(self.sink.add(&self.bytes)?)
    }

    /// The sink.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Finishes the file and returns the sink.
    pub fn finish(mut self) -> Result<S, AudioFileError> {
        self.bytes.clear();
        let start = self.encoder.finish(&mut self.bytes)?;
        self.sink.add(&self.bytes)?;
        if let (Some(start), SinkKind::Seekable) = (start, self.sink.kind()) {
            self.sink.replace_start(&start)?;
        }
        Ok(self.sink)
    }
}
