//! MPEG audio layer 3, by `rusty_mp3`.

use rusty_mp3::{Error, Mp3Encoder, Mp3EncoderConfig};

use super::{Encode, Format, SoundFileError, Start};

/// kbit/s. Speech at 24 kHz needs about 64; this leaves some room, for the encoder has no reservoir at such rates.
const BITRATE: u32 = 96;

/// Rates that layer 3 has.
const RATES: [u32; 9] = [8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000];

pub(super) struct Mp3 {
    encoder: Mp3Encoder,
    rate: u32,
    start: Start,
    packets: u64,
}

impl Mp3 {
    pub fn begin(rate: u32, start: Start) -> Result<Mp3, SoundFileError> {
        if !RATES.contains(&rate) {
            return Err(SoundFileError::Rate { format: Format::Mp3, rate, instead: "wav or flac" });
        }
        let config = Mp3EncoderConfig { bitrate_kbps: BITRATE, vbr_quality: None };
        let mut mp3 = Mp3 { encoder: Mp3Encoder::new(config), rate, start, packets: 0 };
        // Fixes the rate even where no sample follows.
        mp3.push(&[])?;
        Ok(mp3)
    }

    fn push(&mut self, samples: &[f32]) -> Result<(), SoundFileError> {
        self.encoder.push_pcm_f32(samples, 1, self.rate).map_err(failed)
    }

    fn drain(&mut self, out: &mut Vec<u8>) -> Result<(), SoundFileError> {
        loop {
            match self.encoder.next_packet() {
                Ok(packet) => {
                    // The first holds a length that is not known yet. Where it cannot be put right, no length is better.
                    if self.packets > 0 || self.start == Start::Replaceable {
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

fn failed(error: Error) -> SoundFileError {
    SoundFileError::Encoder { format: Format::Mp3, what: error.to_string() }
}

impl Encode for Mp3 {
    fn encode(&mut self, samples: &[f32], out: &mut Vec<u8>) -> Result<(), SoundFileError> {
        self.push(samples)?;
        self.drain(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<Option<Vec<u8>>, SoundFileError> {
        self.encoder.finish();
        self.drain(out)?;
        Ok(self.encoder.lame_tag_frame().map(<[u8]>::to_vec))
    }
}
