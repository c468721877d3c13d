//! FLAC, MP3, Ogg and MPEG-4 through `symphonia`, with every check enabled that the format allows.
//!
//! | format | damage is detected by |
//! |---|---|
//! | FLAC | MD5 of the samples, checksum of each frame, declared length |
//! | MP3 | the chain of frames, the declared number of frames |
//! | Ogg | checksum and sequence number of each page, the end-of-stream flag, the declared length |
//! | MPEG-4 | the sizes of its boxes, its sample table, the declared length |

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::well_known::CODEC_ID_MP3;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};
use symphonia::default::codecs::MpaDecoder;
use symphonia::default::formats::{FlacReader, IsoMp4Reader, OggReader};

use super::pcm::Peak;
use super::{AudioError, Container, Decoded, MAX_CHANNELS, MAX_FRAMES, SAMPLE_RATES, SourceInfo};
use super::{mp4, mpeg, ogg};

const SAMPLES: &str = "samples";

/// Decodes a file; `bytes` starts after any leading tag.
pub(super) fn decode(container: Container, bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    catch_panic(name, || match container {
        Container::Mp3 => decode_mp3(bytes, name),
        _ => decode_track(container, bytes, name),
    })
}

/// Reads the headers without decoding.
pub(super) fn info(container: Container, bytes: &[u8], name: &Path) -> Result<SourceInfo, AudioError> {
    catch_panic(name, || match container {
        Container::Mp3 => Ok(mpeg::scan(bytes, name)?.info()),
        _ => Ok(Source::open(container, bytes, name)?.info),
    })
}

/// Reads the first bytes of a FLAC file; `None` if they do not reach far enough.
pub(super) fn probe_flac(bytes: &[u8], name: &Path) -> Result<Option<SourceInfo>, AudioError> {
    // Marker, block header, two block sizes, two frame sizes; then rate (20 bits), channels - 1 (3), bits - 1 (5), length
    // (36).
    let Some(block) = bytes.get(4..26) else { return Ok(None) };
    if block[0] & 0x7F != 0 {
        return Err(AudioError::corrupt(name, "the first block of the FLAC file is not STREAMINFO"));
    }
    let packed = block[14..22].iter().fold(0u64, |packed, &byte| packed << 8 | u64::from(byte));
    let info = SourceInfo {
        container: Container::Flac,
        sample_rate: (packed >> 44) as u32,
        channels: (packed >> 41 & 7) as u16 + 1,
        bits: Some((packed >> 36 & 31) as u16 + 1),
        declared_frames: Some(packed & 0xF_FFFF_FFFF).filter(|&frames| frames > 0),
    };
    Ok(Some(plausible(info, name)?))
}

/// Runs a decoder and reports a panic in it as damage: the decoders index and subtract without validating hostile input.
fn catch_panic<T>(name: &Path, work: impl FnOnce() -> Result<T, AudioError>) -> Result<T, AudioError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(AudioError::corrupt(name, "the decoder failed on the content")))
}

fn plausible(info: SourceInfo, name: &Path) -> Result<SourceInfo, AudioError> {
    if !SAMPLE_RATES.contains(&info.sample_rate) {
        let what = format!("the header declares a sampling rate of {} Hz", info.sample_rate);
        return Err(AudioError::corrupt(name, what));
    }
    if info.channels == 0 || info.channels > MAX_CHANNELS {
        let what = format!("the header declares {} channels", info.channels);
        return Err(AudioError::corrupt(name, what));
    }
    Ok(info)
}

fn options() -> AudioDecoderOptions {
    AudioDecoderOptions::default().verify(true)
}

fn decode_mp3(bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    let scan = mpeg::scan(bytes, name)?;
    let convert = |error| convert_error(error, Container::Mp3, name);
    let mut codec = AudioCodecParameters::new();
    codec.for_codec(CODEC_ID_MP3);
    // Frames are passed to the decoder one by one, so encoder delay and padding are removed here.
    let mut decoder = MpaDecoder::try_new(&codec, &options().gapless(false)).map_err(convert)?;
    let mut mix = Mix::new(scan.info(), name);
    for range in &scan.frames {
        let duration = Duration::new(scan.header.samples());
        let packet = PacketRef::new(0, Timestamp::new(0), duration, &bytes[range.clone()]);
        mix.push(decoder.decode_ref(&packet).map_err(convert)?)?;
    }
    mix.crop(scan.delay(), Some(scan.samples()));
    mix.finish()
}

/// An opened file and its audio track.
struct Source<'a> {
    reader: Box<dyn FormatReader + 'a>,
    track: u32,
    codec: AudioCodecParameters,
    info: SourceInfo,
    /// Number of frames the whole track decodes to, including encoder delay.
    whole: Option<u64>,
    edit: mp4::Edit,
}

impl<'a> Source<'a> {
    fn open(container: Container, bytes: &'a [u8], name: &Path) -> Result<Source<'a>, AudioError> {
        let convert = |error| convert_error(error, container, name);
        let bytes = if container == Container::Flac { without_id3v1(bytes) } else { bytes };
        let edit = match container {
            Container::Mp4 => mp4::check(bytes, name)?,
            _ => mp4::Edit::default(),
        };
        if container == Container::Ogg {
            ogg::check(bytes, name)?;
        }
        let stream = MediaSourceStream::new(Box::new(Cursor::new(bytes)), Default::default());
        let format = FormatOptions::default();
        let reader: Box<dyn FormatReader + 'a> = match container {
            Container::Flac => Box::new(FlacReader::try_new(stream, format).map_err(convert)?),
            Container::Ogg => Box::new(OggReader::try_new(stream, format).map_err(convert)?),
            Container::Mp4 => Box::new(IsoMp4Reader::try_new(stream, format).map_err(convert)?),
            Container::Wav | Container::Mp3 => unreachable!("WAV and MP3 have separate readers"),
        };
        let no_audio = || AudioError::unsupported(name, "a file without an audio track");
        let track = reader.default_track(TrackType::Audio).ok_or_else(no_audio)?;
        let codec = track.codec_params.as_ref().and_then(|codec| codec.audio()).ok_or_else(no_audio)?.clone();
        let whole = track.num_frames.filter(|&frames| frames > 0);
        let edited = whole.map(|whole| {
            let rest = whole.saturating_sub(edit.delay);
            edit.length.map_or(rest, |length| rest.min(length))
        });
        let info = SourceInfo {
            container,
            sample_rate: codec.sample_rate.unwrap_or(0),
            channels: codec.channels.as_ref().map_or(0, |channels| channels.count() as u16),
            bits: codec.bits_per_sample.map(|bits| bits as u16),
            declared_frames: edited,
        };
        Ok(Source { track: track.id, reader, codec, info, whole, edit })
    }
}

/// Some taggers append an ID3v1 tag to a FLAC file, where the last frame would swallow it.
fn without_id3v1(bytes: &[u8]) -> &[u8] {
    match bytes.split_last_chunk::<128>() {
        Some((before, tag)) if tag.starts_with(b"TAG") => before,
        _ => bytes,
    }
}

fn decode_track(container: Container, bytes: &[u8], name: &Path) -> Result<Decoded, AudioError> {
    let convert = |error| convert_error(error, container, name);
    let mut source = Source::open(container, bytes, name)?;
    let mut decoder =
        symphonia::default::get_codecs().make_audio_decoder(&source.codec, &options()).map_err(convert)?;
    // MPEG-4 often leaves rate and channels to the codec's own header.
    let codec = decoder.codec_params();
    source.info.sample_rate = codec.sample_rate.unwrap_or(source.info.sample_rate);
    if let Some(channels) = &codec.channels {
        source.info.channels = channels.count() as u16;
    }
    let mut mix = Mix::new(plausible(source.info, name)?, name);
    let mut last_end = 0;
    let ended_early = loop {
        match source.reader.next_packet() {
            Ok(Some(packet)) if packet.track_id == source.track => {
                last_end = packet.pts.get().max(0) as u64 + packet.dur.get();
                mix.push(decoder.decode(&packet).map_err(convert)?)?;
            }
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => break true,
            Err(error) => return Err(convert(error)),
        }
    };
    let found = mix.samples.len() as u64;
    match source.whole {
        // The last packet was reached, so frames in the middle were skipped.
        Some(whole) if found < whole && last_end >= whole => {
            let what = format!("{} of {whole} samples are in unreadable frames", whole - found);
            return Err(AudioError::corrupt(name, what));
        }
        Some(whole) if found < whole => return Err(AudioError::truncated(name, whole, found, SAMPLES)),
        Some(whole) if found > whole + slack(container) => {
            return Err(AudioError::length_differs(name, whole, found, SAMPLES));
        }
        _ if ended_early => return Err(AudioError::end_missing(name, "it ends inside a packet")),
        _ => {}
    }
    if decoder.finalize().verify_ok == Some(false) {
        return Err(AudioError::corrupt(name, "the MD5 of the samples differs from the header's"));
    }
    let declared = mix.info.declared_frames;
    mix.crop(source.edit.delay, declared);
    mix.finish()
}

/// Number of samples allowed after the declared end: the rest of the last packet for codecs with a fixed packet size.
fn slack(container: Container) -> u64 {
    match container {
        Container::Mp4 => 4096,
        _ => 0,
    }
}

fn convert_error(error: Error, container: Container, name: &Path) -> AudioError {
    match error {
        Error::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            AudioError::end_missing(name, "it ends inside its header or a packet")
        }
        Error::Unsupported(what) => AudioError::unsupported(name, format!("{container:?}: {what}")),
        Error::IoError(error) => AudioError::corrupt(name, error.to_string()),
        other => AudioError::corrupt(name, other.to_string()),
    }
}

/// Collects decoded packets as one mono channel.
struct Mix<'a> {
    info: SourceInfo,
    name: &'a Path,
    samples: Vec<f32>,
    planes: Vec<Vec<f32>>,
}

impl<'a> Mix<'a> {
    fn new(info: SourceInfo, name: &'a Path) -> Mix<'a> {
        // Only a hint: the header may be wrong, so the reservation is limited to a minute or so.
        let hint = info.declared_frames.unwrap_or(0).min(1 << 22) + 4096;
        Mix { info, name, samples: Vec::with_capacity(hint as usize), planes: Vec::new() }
    }

    fn push(&mut self, buffer: GenericAudioBufferRef<'_>) -> Result<(), AudioError> {
        if buffer.spec().channels().count() != usize::from(self.info.channels)
            || buffer.spec().rate() != self.info.sample_rate
        {
            return Err(AudioError::corrupt(
                self.name,
                "the number of channels or the sample rate changes within the file",
            ));
        }
        if (self.samples.len() + buffer.frames()) as u64 > MAX_FRAMES {
            return Err(AudioError::TooLong { path: self.name.to_owned(), limit: MAX_FRAMES });
        }
        buffer.copy_to_vecs_planar(&mut self.planes);
        match &self.planes[..] {
            [mono] => self.samples.extend_from_slice(mono),
            [left, right] => self.samples.extend(left.iter().zip(right).map(|(l, r)| (l + r) * 0.5)),
            planes => {
                let count = planes.len() as f32;
                let mean = |frame| planes.iter().map(|plane| plane[frame]).sum::<f32>() / count;
                self.samples.extend((0..buffer.frames()).map(mean));
            }
        }
        Ok(())
    }

    /// Removes encoder delay and padding.
    fn crop(&mut self, delay: u64, length: Option<u64>) {
        let delay = usize::try_from(delay).unwrap_or(usize::MAX).min(self.samples.len());
        self.samples.drain(..delay);
        if let Some(length) = length.and_then(|length| usize::try_from(length).ok()) {
            self.samples.truncate(length);
        }
    }

    fn finish(self) -> Result<Decoded, AudioError> {
        if self.samples.is_empty() {
            return Err(AudioError::empty(self.name, "the file contains no samples"));
        }
        let mut peak = Peak::default();
        peak.update(&self.samples);
        let peak =
            peak.value().ok_or_else(|| AudioError::corrupt(self.name, "a sample is NaN or infinite"))?;
        Ok(super::finish(self.samples, self.info, peak))
    }
}
