//! Opus in Ogg, by `opus-pure`.

use opus_pure::{Application, Error, MAX_PACKET_BYTES, OggOpusWriter, OpusEncoder, OpusHead, OpusTags};

use super::{Encode, Format, SoundFileError, Start};

/// bit/s: speech of 12 kHz bandwidth, transparent to most.
const BITRATE: i32 = 48_000;

/// Packets in a second.
const PACKETS: u32 = 50;

/// Ogg counts at this rate.
const TICKS: u32 = 48_000;

/// Bytes of a page that is sent: about a tenth of a second.
const SENT_PAGE: usize = 600;

pub(super) struct Opus {
    encoder: OpusEncoder,
    /// None once it is finished.
    writer: Option<OggOpusWriter<Vec<u8>>>,
    /// Samples of a packet.
    frame: usize,
    /// Ticks of Ogg's clock for a sample.
    ticks: u64,
    /// Ticks that a player leaves away at the start: the encoder's delay.
    skipped: u64,
    /// Samples that do not fill a packet yet.
    waiting: Vec<f32>,
    samples: u64,
    packet: Vec<u8>,
}

impl Opus {
    pub fn begin(rate: u32, start: Start, out: &mut Vec<u8>) -> Result<Opus, SoundFileError> {
        if ![8000, 12000, 16000, 24000, 48000].contains(&rate) {
            return Err(SoundFileError::Rate { format: Format::Opus, rate, instead: "mp3, flac or wav" });
        }
        let mut encoder = OpusEncoder::new(rate as i32, 1, Application::Audio).map_err(failed)?;
        encoder.bitrate_bps = BITRATE;
        let head = OpusHead::for_encoder(&encoder, rate);
        let skipped = u64::from(head.pre_skip);
        let mut tags = OpusTags::new();
        tags.push("ENCODER", "myxtts").map_err(failed)?;
        let mut writer = OggOpusWriter::with_tags(Vec::new(), head, tags).map_err(failed)?;
        if start == Start::Sent {
            writer.set_page_target(SENT_PAGE);
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

    /// Hands on the pages that are full.
    fn drain(&mut self, out: &mut Vec<u8>) {
        if let Some(pages) = self.writer.as_mut().and_then(OggOpusWriter::get_mut) {
            out.append(pages);
        }
    }

    /// Encodes one frame. The last says how many of its ticks are sound.
    fn frame(&mut self, samples: &[f32], ticks: Option<u32>) -> Result<(), SoundFileError> {
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

fn failed(error: Error) -> SoundFileError {
    SoundFileError::Encoder { format: Format::Opus, what: error.to_string() }
}

impl Encode for Opus {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), SoundFileError> {
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

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, SoundFileError> {
        // What the encoder's delay holds back is pushed out by silence. The end of the last packet says where the sound ends.
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
