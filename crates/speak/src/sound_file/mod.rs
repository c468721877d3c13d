//! Samples to files and streams, as they come.
//!
//! | format | what is written | at the end of a file | into a pipe |
//! |---|---|---|---|
//! | `wav`, `wav24`, `wav-float` | RIFF, 16 or 24 bits or floats | sizes put right | sizes 0xFFFFFFFF: "read all there is" |
//! | `flac` | 16 bits, lossless | length and MD5 put right | length and MD5 unknown, which readers allow |
//! | `mp3` | MPEG-2 layer 3, 96 kbit/s | the frame with length and padding put right | no such frame |
//! | `opus` | Opus in Ogg, 48 kbit/s | | smaller pages, so that they come sooner |
//! | `pcm` | 16 bits, little-endian, nothing else | | |
//!
//! FLAC is encoded here; MP3 by `rusty_mp3` and Opus by `opus-pure`, both Rust alone, without dependencies and under permissive
//! licences. No encoder for AAC or Vorbis was looked for.

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

use myxtts_run::destination::DestinationWriter;

pub use pcm::Depth;

/// How sound is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// RIFF WAVE.
    Wav(Depth),
    /// Lossless, about half of a WAV file.
    Flac,
    /// Understood by everything.
    Mp3,
    /// The smallest; Opus in Ogg.
    Opus,
    /// Samples of 16 bits, little-endian, without a header.
    Pcm,
}

/// Why sound cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SoundFileError {
    /// No such format.
    #[error("there is no encoder for {0:?}; there are {list}", list = Format::list())]
    UnknownFormat(String),
    /// A file's name says nothing.
    #[error(
        "the name {0:?} does not say which format to write: end it with one of {list}, or name the format", list = Format::extensions()
    )]
    NoExtension(String),
    /// The format has no such rate.
    #[error("{format} has no rate of {rate} Hz, which this model speaks at: write {instead} instead")]
    Rate {
        /// The format.
        format: Format,
        /// Samples per second.
        rate: u32,
        /// What does have it.
        instead: &'static str,
    },
    /// The encoder failed.
    #[error("the {format} encoder failed: {what}")]
    Encoder {
        /// The format.
        format: Format,
        /// What it says.
        what: String,
    },
    /// Nothing can be written.
    #[error("the sound cannot be written: {0}")]
    Io(#[from] io::Error),
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 7] = [
        Format::Wav(Depth::Int16),
        Format::Wav(Depth::Int24),
        Format::Wav(Depth::Float),
        Format::Flac,
        Format::Mp3,
        Format::Opus,
        Format::Pcm,
    ];

    /// What `--format` calls it.
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

    /// The format that a file's name asks for.
    pub fn of_path(path: &Path) -> Result<Format, SoundFileError> {
        let shown = || path.display().to_string();
        let extension = path.extension().ok_or_else(|| SoundFileError::NoExtension(shown()))?;
        match extension.to_string_lossy().to_lowercase().as_str() {
            "wav" | "wave" => Ok(Format::Wav(Depth::Int16)),
            "flac" => Ok(Format::Flac),
            "mp3" => Ok(Format::Mp3),
            "opus" | "ogg" | "oga" => Ok(Format::Opus),
            "pcm" | "raw" | "s16" => Ok(Format::Pcm),
            other => Err(SoundFileError::UnknownFormat(format!(".{other}"))),
        }
    }

    /// The names of all formats, for messages.
    pub fn list() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    fn extensions() -> &'static str {
        ".wav, .flac, .mp3, .opus, .ogg, .pcm"
    }

    /// What a server calls it.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Wav(_) => "audio/wav",
            Format::Flac => "audio/flac",
            Format::Mp3 => "audio/mpeg",
            Format::Opus => "audio/ogg",
            Format::Pcm => "audio/pcm",
        }
    }

    /// Whether what is behind the header of a file depends on nothing but the samples there: such a file can be continued.
    pub fn is_plain(self) -> bool {
        matches!(self, Format::Wav(_) | Format::Pcm)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = SoundFileError;

    fn from_str(name: &str) -> Result<Format, SoundFileError> {
        let named = Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name));
        named.ok_or_else(|| SoundFileError::UnknownFormat(name.to_owned()))
    }
}

/// Whether the first bytes can still be changed when the last are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A file.
    Replaceable,
    /// A pipe, a socket, a player.
    Sent,
}

/// One format's way of making bytes of mono samples.
trait Encode: Send {
    /// Adds samples in [-1, 1]; what is beyond is limited, and what is no number is silence.
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), SoundFileError>;

    /// Adds what is left, and gives what the first bytes should be now.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, SoundFileError>;
}

/// Makes bytes of samples; where they go is the caller's business.
pub struct Encoder {
    encode: Box<dyn Encode>,
}

impl Encoder {
    /// Begins a sound of so many samples per second: its first bytes go to `out`.
    pub fn begin(
        format: Format,
        rate: u32,
        start: Start,
        out: &mut Vec<u8>,
    ) -> Result<Encoder, SoundFileError> {
        let encode: Box<dyn Encode> = match format {
            Format::Wav(depth) => Box::new(pcm::Wav::begin(depth, rate, out)),
            Format::Pcm => Box::new(pcm::Raw),
            Format::Flac => Box::new(flac::Flac::begin(rate, out)),
            Format::Mp3 => Box::new(mp3::Mp3::begin(rate, start)?),
            Format::Opus => Box::new(opus::Opus::begin(rate, start, out)?),
        };
        Ok(Encoder { encode })
    }

    /// Goes on with a plain file ([`Format::is_plain`]) that has `samples` already; none for others.
    pub fn resume(format: Format, rate: u32, samples: u64) -> Option<Encoder> {
        match format {
            Format::Wav(depth) => Some(Encoder { encode: Box::new(pcm::Wav::resume(depth, rate, samples)) }),
            Format::Pcm => Some(Encoder { encode: Box::new(pcm::Raw) }),
            _ => None,
        }
    }

    /// Adds samples in [-1, 1]; what is beyond is limited, and what is no number is silence.
    pub fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), SoundFileError> {
        self.encode.encode(samples, out)
    }

    /// Adds what is left. What is returned is to replace the first bytes, where it can.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, SoundFileError> {
        self.encode.finish(out)
    }
}

/// Bytes that a plain format ([`Format::is_plain`]) has after so many samples, without what may end it.
pub fn plain_length(format: Format, samples: u64) -> Option<u64> {
    match format {
        Format::Wav(depth) => Some(depth.header() + samples * depth.bytes()),
        Format::Pcm => Some(samples * Depth::Int16.bytes()),
        _ => None,
    }
}

/// Where encoded bytes go.
pub trait Sink {
    /// Whether [`Sink::replace_start`] works.
    fn start(&self) -> Start;
    /// Adds bytes.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Overwrites the first bytes; called once, after everything was added. Not called where they were sent.
    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl Sink for File {
    fn start(&self) -> Start {
        match self.metadata() {
            Ok(found) if found.is_file() => Start::Replaceable,
            _ => Start::Sent,
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

impl Sink for DestinationWriter {
    fn start(&self) -> Start {
        if self.is_file() { Start::Replaceable } else { Start::Sent }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).map_err(|error| io::Error::new(error.source.kind(), error))
    }

    fn replace_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        DestinationWriter::replace_start(self, bytes)
            .map_err(|error| io::Error::new(error.source.kind(), error))
    }
}

/// Bytes that are gone once they are written. Each piece of sound is flushed.
pub struct Stream<W>(pub W);

impl<W: Write> Sink for Stream<W> {
    fn start(&self) -> Start {
        Start::Sent
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    fn replace_start(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Writes sound to a sink, piece by piece.
pub struct SoundWriter<S> {
    encoder: Encoder,
    sink: S,
    bytes: Vec<u8>,
}

impl<S: Sink> SoundWriter<S> {
    /// Begins a sound of so many samples per second.
    pub fn begin(mut sink: S, format: Format, rate: u32) -> Result<Self, SoundFileError> {
        let mut bytes = Vec::new();
        let encoder = Encoder::begin(format, rate, sink.start(), &mut bytes)?;
        sink.add(&bytes)?;
        Ok(SoundWriter { encoder, sink, bytes })
    }

    /// Goes on with a plain file that has `samples` already and to whose end `sink` adds; none for other formats.
    pub fn resume(sink: S, format: Format, rate: u32, samples: u64) -> Option<Self> {
        Encoder::resume(format, rate, samples).map(|encoder| SoundWriter { encoder, sink, bytes: Vec::new() })
    }

    /// Adds samples in [-1, 1].
    pub fn write(&mut self, samples: &[f32]) -> Result<(), SoundFileError> {
        self.bytes.clear();
        self.encoder.encode(samples, &mut self.bytes)?;
        if self.bytes.is_empty() {
            return Ok(());
        }
        Ok(self.sink.add(&self.bytes)?)
    }

    /// Where it goes.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Ends the sound.
    pub fn finish(mut self) -> Result<S, SoundFileError> {
        self.bytes.clear();
        let start = self.encoder.finish(&mut self.bytes)?;
        self.sink.add(&self.bytes)?;
        if let (Some(start), Start::Replaceable) = (start, self.sink.start()) {
            self.sink.replace_start(&start)?;
        }
        Ok(self.sink)
    }
}
