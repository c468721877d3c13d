//! MP3 (MPEG audio layer 3), encoded by `rusty_mp3`.

use rusty_mp3::{Error, Mp3Encoder, Mp3EncoderConfig};

use super::{AudioFileError, Encode, Format, SinkKind};

/// kbit/s. Speech at 24 kHz needs about 64; this leaves some margin, as the encoder has no bit reservoir at such rates.
const BITRATE: u32 = 96;

/// Sample rates of layer 3.
const RATES: [u32; 9] = [8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000];

pub(super) struct Mp3 {
    encoder: Mp3Encoder,
    rate: u32,
    kind: SinkKind,
    packets: u64,
}

impl Mp3 {
    pub fn begin(rate: u32, kind: SinkKind) -> Result<Mp3, AudioFileError> {
        if !RATES.contains(&rate) {
            return Err(AudioFileError::Rate { format: Format::Mp3, rate, instead: "wav or flac" });
        }
        let config = Mp3EncoderConfig { bitrate_kbps: BITRATE, vbr_quality: None };
        let mut mp3 = Mp3 { encoder: Mp3Encoder::new(config), rate, kind, packets: 0 };
        // Sets the rate even if no sample follows.
        mp3.push(&[])?;
        Ok(mp3)
    }

    fn push(&mut self, samples: &[f32]) -> Result<(), AudioFileError> {
        self.encoder.push_pcm_f32(samples, 1, self.rate).map_err(failed)
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        loop {
            match self.encoder.next_packet() {
                Ok(packet) => {
                    // The first packet holds the length, which is not known yet. If it cannot be rewritten, it is left out.
                    if self.packets > 0 || self.kind == SinkKind::Seekable {
                        out.extend(packet);
                    }
                    self.packets += 1;
                }
                Err(Error::Again | Error::Eof) => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(error: Error) -> AudioFileError {
    AudioFileError::Encoder { format: Format::Mp3, what: error.to_string() }
}

impl Encode for Mp3 {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), AudioFileError> {
        self.push(samples)?;
        self.drain(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, AudioFileError> {
        self.encoder.finish();
        self.drain(out)?;
        Ok(self.encoder.lame_tag_frame().map(<[u8]>::to_vec))
    }
}
