//! Opus in Ogg, encoded by `opus-pure`.

use opus_pure::{Application, Error, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead, OpusTags};

use super::{AudioFileError, Encode, Format, SinkKind};

/// bit/s: transparent to most listeners for speech of 12 kHz bandwidth.
const BITRATE: i32 = 48_000;

/// Packets per second.
const PACKETS: u32 = 50;

/// Rate of Ogg's granule positions in Hz.
const TICKS: u32 = 48_000;

/// Bytes of a page in a stream: about a tenth of a second.
const STREAMED_PAGE: usize = 600;

pub(super) struct Opus {
    encoder: OpusEncoder,
    /// `None` once finished.
    writer: Option<OggOpusWriter<Vec<u8>>>,
    /// Samples per packet.
    frame: usize,
    /// Granule positions per sample.
    ticks: u64,
    /// Granule positions that a player skips at the start: the encoder's delay.
    skipped: u64,
    /// Samples of an incomplete packet.
    waiting: Vec<f32>,
    samples: u64,
    packet: Vec<u8>,
}

impl Opus {
    pub fn begin(rate: u32, kind: SinkKind, out: &mut Vec<u8>) -> Result<Opus, AudioFileError> {
        if ![8000, 12000, 16000, 24000, 48000].contains(&rate) {
            return Err(AudioFileError::Rate { format: Format::Opus, rate, instead: "mp3, flac or wav" });
        }
        let mut encoder = OpusEncoder::new(rate as i32, 1, Application::Audio).map_err(failed)?;
        encoder.bitrate_bps = BITRATE;
        let head = OpusHead::for_encoder(&encoder, rate);
        let skipped = u64::from(head.pre_skip);
        let mut tags = OpusTags::new();
        tags.push("ENCODER", "myxtts").map_err(failed)?;
        let mut writer = OggOpusWriter::with_tags(Vec::new(), head, tags).map_err(failed)?;
        if kind == SinkKind::Streamed {
            writer.set_page_target(STREAMED_PAGE);
        }
        let mut opus = Opus {
            encoder,
            writer: Some(writer),
            frame: (rate / PACKETS) as usize,
            ticks: u64::from(TICKS / rate),
            skipped,
            waiting: Vec::new(),
            samples: 0,
            packet: vec![0; MAX_PACKET_BYTES],
        };
        opus.drain(out);
        Ok(opus)
    }

    /// Moves complete pages to `out`.
    fn drain(&mut self, out: &mut Vec<u8>) {
        if let Some(pages) = self.writer.as_mut().and_then(OggOpusWriter::get_mut) {
            out.append(pages);
        }
    }

    /// Encodes one frame. `ticks` is the duration of the last frame, the rest of which is padding.
    fn frame(&mut self, samples: &[f32], ticks: Option<u32>) -> Result<(), AudioFileError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let length = self.encoder.encode(samples, self.frame, &mut self.packet).map_err(failed)?;
        let packet = &self.packet[..length];
        match ticks {
            Some(ticks) => writer.write_packet_with_duration(packet, ticks),
            None => writer.write_packet(packet),
        }
        .map_err(failed)
    }
}

fn failed(error: Error) -> AudioFileError {
    AudioFileError::Encoder { format: Format::Opus, what: error.to_string() }
}

impl Encode for Opus {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        self.samples += samples.len() as u64;
        let limited = |&sample: &f32| if sample.is_finite() { sample.clamp(-1.0, 1.0) } else { 0.0 };
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.extend(samples.iter().map(limited));
        let whole = waiting.len() / self.frame * self.frame;
        for frame in waiting[..whole].chunks_exact(self.frame) {
            self.frame(frame, None)?;
        }
        waiting.drain(..whole);
        self.waiting = waiting;
        self.drain(out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError> {
        // Silence flushes what the encoder's delay holds back. The end position of the last packet marks the end of the audio.
        let end = self.skipped + self.samples * self.ticks;
        let mut rest = std::mem::take(&mut self.waiting);
        let delay = self.skipped.div_ceil(self.ticks) as usize;
        let frames = (rest.len() + delay).div_ceil(self.frame);
        rest.resize(frames * self.frame, 0.0);
        for (number, frame) in rest.chunks_exact(self.frame).enumerate() {
            let written = self.writer.as_ref().map_or(0, |writer| writer.granule() as u64);
            let is_last = number + 1 == frames;
            self.frame(frame, is_last.then(|| end.saturating_sub(written) as u32))?;
        }
        if let Some(writer) = self.writer.take() {
            out.append(&mut writer.finish().map_err(failed)?);
        }
        Ok(None)
    }
}
