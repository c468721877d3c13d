//! Latents and codes of the GPT to a waveform: by the decoder, or by the DVAE if there is no decoder.

use crate::error::SpeakError;
use crate::stream::{FrameDecoder, decode_in_windows, largest_window};
use crate::weight_source::{WeightSource, fill};
use myxtts_data::audio::Resampler;
use myxtts_data::mel::{FrontEnd, MelExtractor, MelInverter, instance_normalize};
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::dvae::{Dvae, DvaeSizes};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerSizes};
use myxtts_model::weights::Part;
use myxtts_model::{Declare, GptSizes, Spoken};
use myxtts_tensor::{
    Control, DType, Device, Engine, EngineOptions, Error, InitialWeights, Layout, Precision, Program, Tape,
    Value,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quality of a model's waveform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// By the decoder.
    Decoded,
    /// By inverting mels of the DVAE; rough.
    Early,
}

impl Quality {
    /// Sample rate in Hz.
    pub fn rate(self) -> u32 {
        match self {
            Quality::Decoded => 24_000,
            Quality::Early => FrontEnd::Dvae.sample_rate(),
        }
    }
}

enum Networks {
    Decoded(Box<Decoder>),
    Early { dvae: Box<Dvae>, inverter: MelInverter },
}

/// The speaker encoder, always in f32: a stored voice does not depend on the decoding mode.
struct EncoderEngine {
    engine: Engine,
    encoder: SpeakerEncoder,
}

/// The decoder's program for a fixed number of windows and frames.
struct Window {
    program: Program,
    z: Value,
    speaker: Value,
    wave: Value,
}

impl Window {
    fn tape(engine: &Engine, decoder: &Decoder, (count, frames): (usize, usize)) -> (Tape, [Value; 3]) {
        let mut tape = Tape::new(Arc::clone(engine.layout()), engine.precision());
        let z = tape.input([count, frames, decoder.sizes().latent], DType::F32);
        let speaker = tape.input([count, decoder.sizes().speaker], DType::F32);
        let wave = match engine.precision() {
            Precision::F32 => decoder.wave(&mut tape, z, speaker),
            Precision::Bf16 => {
                let [z, speaker] = [z, speaker].map(|value| tape.cast(value, DType::Bf16));
                let wave = decoder.wave(&mut tape, z, speaker);
                tape.cast(wave, DType::F32)
            }
        };
        tape.keep(wave);
        (tape, [z, speaker, wave])
    }

    fn new(engine: &mut Engine, decoder: &Decoder, size: (usize, usize)) -> Result<Window, SpeakError> {
        let (tape, [z, speaker, wave]) = Window::tape(engine, decoder, size);
        Ok(Window { program: engine.load(tape)?, z, speaker, wave })
    }

    fn run(&mut self, engine: &mut Engine, z: &[f32], speakers: &[f32]) -> Result<Vec<f32>, SpeakError> {
        engine.write(&self.program, self.z, z)?;
        engine.write(&self.program, self.speaker, speakers)?;
        engine.run(&mut self.program, &Control::default())?;
        Ok(engine.read(&self.program, self.wave)?)
    }
}

/// The networks that follow the GPT.
pub(crate) struct Vocoder {
    engine: Engine,
    networks: Networks,
    /// `None` without a decoder, which alone needs a speaker vector.
    encoder: Option<EncoderEngine>,
    /// Cached programs, by number of windows and frames.
    windows: BTreeMap<(usize, usize), Window>,
}

impl Vocoder {
    /// Loads the networks with the decoder in bf16, or in f32 if the device does not support bf16.
    pub(crate) fn open_fast(
        source: &dyn WeightSource,
        device: Device,
        gpt: &GptSizes,
    ) -> Result<Vocoder, SpeakError> {
        match Vocoder::open(source, device, gpt, Precision::Bf16) {
            Err(SpeakError::Engine(Error::Unsupported(_))) => {
                Vocoder::open(source, device, gpt, Precision::F32)
            }
            loaded => loaded,
        }
    }

    /// Loads the networks. `precision` is the decoder's.
    pub(crate) fn open(
        source: &dyn WeightSource,
        device: Device,
        gpt: &GptSizes,
        precision: Precision,
    ) -> Result<Vocoder, SpeakError> {
        let has = |part: Part| source.has_part(part);
        let of = |name: &str| source.shape(name);
        let mut declare = Declare::new(0.0, &|_| false);
        let mut encoder_sizes = None;
        let mut networks = if has(Part::Decoder) && has(Part::Speaker) {
            let sizes = DecoderSizes::of_shapes(&of).map_err(SpeakError::shape(source))?;
            let speaker = SpeakerSizes::of_shapes(&of).map_err(SpeakError::shape(source))?;
            if speaker.mels != FrontEnd::Speaker.channels() {
                let what = format!("its speaker encoder has {} mels", speaker.mels);
                return Err(SpeakError::unfit(source, &what));
            }
            if sizes.latent != gpt.width || sizes.speaker != speaker.result {
                let what = format!(
                    "the decoder takes {} latent and {} speaker channels, but the GPT has {} and the speaker encoder {}",
                    sizes.latent, sizes.speaker, gpt.width, speaker.result
                );
                return Err(SpeakError::unfit(source, &what));
            }
            encoder_sizes = Some(speaker);
            Networks::Decoded(Box::new(Decoder::declare(&mut declare, &sizes)))
        } else if has(Part::Dvae) {
            let sizes = DvaeSizes::of_shapes(&of, "dvae.").map_err(SpeakError::shape(source))?;
            let mels = FrontEnd::Dvae.channels();
            if sizes.codes + 2 < gpt.audio_vocabulary || sizes.channels != mels || sizes.layers == 0 {
                let what = format!(
                    "the DVAE has {} codes and {} mels; the GPT needs {} codes and the waveform {mels} mels",
                    sizes.codes,
                    sizes.channels,
                    gpt.audio_vocabulary - 2
                );
                return Err(SpeakError::unfit(source, &what));
            }
            let dvae = Box::new(Dvae::declare(&mut declare, &sizes, "dvae."));
            Networks::Early { dvae, inverter: MelInverter::new() }
        } else {
            let what = format!(
                "it has neither {} with {} nor {}: the GPT alone cannot make a waveform",
                Part::Decoder.file(),
                Part::Speaker.file(),
                Part::Dvae.file()
            );
            return Err(SpeakError::unfit(source, &what));
        };
        let is_early = matches!(networks, Networks::Early { .. });
        let precision = if is_early { Precision::F32 } else { precision };
        let mut engine =
            load_engine(source, declare, |layout, options| Engine::new(device, layout, precision, options))?;
        if let Networks::Decoded(decoder) = &mut networks {
            decoder.fold(&mut engine)?;
        }
        let encoder = match encoder_sizes {
            None => None,
            Some(sizes) => {
                let mut declare = Declare::new(0.0, &|_| false);
                let encoder = SpeakerEncoder::declare(&mut declare, &sizes);
                let engine = load_engine(source, declare, |layout, options| match engine.cuda() {
                    Some(cuda) => Engine::on_cuda(Arc::clone(cuda), layout, Precision::F32, options),
                    None => Engine::new(device, layout, Precision::F32, options),
                })?;
                Some(EncoderEngine { engine, encoder })
            }
        };
        Ok(Vocoder { engine, networks, encoder, windows: BTreeMap::new() })
    }

    pub(crate) fn device_bytes(&self) -> Option<usize> {
        let (free, total) = self.engine.cuda()?.memory().ok()?;
        Some(total - free)
    }

    pub(crate) fn quality(&self) -> Quality {
        match self.networks {
            Networks::Decoded(_) => Quality::Decoded,
            Networks::Early { .. } => Quality::Early,
        }
    }

    /// Speaker vector of a recording at the conditioning's sample rate; `None` without a decoder.
    pub(crate) fn speaker_vector(&mut self, samples: &[f32]) -> Result<Option<Vec<f32>>, SpeakError> {
        let Some(EncoderEngine { engine, encoder }) = &mut self.encoder else { return Ok(None) };
        let (from, to) = (FrontEnd::Conditioning.sample_rate(), FrontEnd::Speaker.sample_rate());
        let samples = Resampler::new(from, to).resample(samples);
        let (mut features, channels) = (Vec::new(), FrontEnd::Speaker.channels());
        let frames = MelExtractor::new(FrontEnd::Speaker).compute(&samples, &mut features);
        instance_normalize(&mut features, channels);
        let mut tape = Tape::new(Arc::clone(engine.layout()), Precision::F32);
        let input = tape.input([1, frames, channels], DType::F32);
        let vector = encoder.embed(&mut tape, input);
        run(engine, tape, &[(input, &features)], &[], vector).map(Some)
    }

    /// Sizes of the decoder; `None` if there is none.
    pub(crate) fn decoder_sizes(&self) -> Option<&DecoderSizes> {
        match &self.networks {
            Networks::Decoded(decoder) => Some(decoder.sizes()),
            Networks::Early { .. } => None,
        }
    }

    /// Checks that a speaker vector fits the decoder.
    pub(crate) fn check_speaker<'v>(&self, speaker: Option<&'v [f32]>) -> Result<&'v [f32], SpeakError> {
        let wanted = self.decoder_sizes().map_or(0, |sizes| sizes.speaker);
        speaker.filter(|vector| vector.len() == wanted).ok_or(SpeakError::Speaker { wanted })
    }

    /// Reserves memory for all windows: growing it later would move buffers that captured programs use.
    pub(crate) fn reserve_windows(&mut self) -> Result<(), SpeakError> {
        let Networks::Decoded(decoder) = &self.networks else { return Ok(()) };
        if self.windows.is_empty() {
            let (tape, _) = Window::tape(&self.engine, decoder, largest_window(decoder.sizes()));
            let plan = self.engine.plan_of(&tape);
            self.engine.reserve([&plan])?;
        }
        Ok(())
    }

    /// Waveforms of utterances, each with its speaker vector. On devices that capture programs they are decoded together.
    pub(crate) fn waveforms(
        &mut self,
        utterances: &[(&Spoken, Option<&[f32]>)],
        mel_stats: &[f32],
    ) -> Result<Vec<Vec<f32>>, SpeakError> {
        // A program of the utterance's own length would be captured and hardly ever reused.
        if self.engine.cuda().is_some()
            && let Some(sizes) = self.decoder_sizes().cloned()
        {
            let mut all = Vec::with_capacity(utterances.len());
            for &(spoken, speaker) in utterances {
                all.push((&spoken.latents[..], self.check_speaker(speaker)?));
            }
            self.reserve_windows()?;
            return decode_in_windows(self, &sizes, &all);
        }
        utterances.iter().map(|(spoken, speaker)| self.decode_whole(spoken, *speaker, mel_stats)).collect()
    }

    /// Waveform of one utterance.
    pub(crate) fn waveform(
        &mut self,
        spoken: &Spoken,
        speaker: Option<&[f32]>,
        mel_stats: &[f32],
    ) -> Result<Vec<f32>, SpeakError> {
        Ok(self.waveforms(&[(spoken, speaker)], mel_stats)?.pop().unwrap_or_default())
    }

    /// Decodes an utterance with one program of its length.
    fn decode_whole(
        &mut self,
        spoken: &Spoken,
        speaker: Option<&[f32]>,
        mel_stats: &[f32],
    ) -> Result<Vec<f32>, SpeakError> {
        let mut tape = Tape::new(Arc::clone(self.engine.layout()), Precision::F32);
        match &self.networks {
            Networks::Decoded(decoder) => {
                let (sizes, speaker) = (decoder.sizes(), self.check_speaker(speaker)?);
                let rows = spoken.latents.len() / sizes.latent;
                if sizes.frames_of(rows) == 0 {
                    return Ok(Vec::new());
                }
                let latents = tape.input([1, rows, sizes.latent], DType::F32);
                let vector = tape.input([1, sizes.speaker], DType::F32);
                let z = decoder.upsample_latents(&mut tape, latents);
                let wave = decoder.wave(&mut tape, z, vector);
                run(&mut self.engine, tape, &[(latents, &spoken.latents), (vector, speaker)], &[], wave)
            }
            Networks::Early { dvae, inverter } => {
                if spoken.codes.is_empty() {
                    return Ok(Vec::new());
                }
                let codes = tape.input([1, spoken.codes.len()], DType::I32);
                let mel = dvae.decode(&mut tape, codes);
                // A poor model may generate START, which is a code of the GPT but not of the DVAE.
                let largest = i32::try_from(dvae.sizes().codes).unwrap_or(i32::MAX) - 1;
                let known: Vec<i32> = spoken.codes.iter().map(|&code| code.min(largest)).collect();
                let mut mel = run(&mut self.engine, tape, &[], &[(codes, &known)], mel)?;
                for frame in mel.chunks_exact_mut(mel_stats.len()) {
                    frame.iter_mut().zip(mel_stats).for_each(|(value, stat)| *value *= stat);
                }
                Ok(inverter.invert(&mel))
            }
        }
    }
}

#[cfg(test)]
impl Vocoder {
    /// A decoder with random weights, amplified so that its waveform is not close to zero.
    pub(crate) fn random(
        device: Device,
        precision: Precision,
        sizes: &DecoderSizes,
    ) -> Result<Vocoder, SpeakError> {
        let mut declare = Declare::new(0.0, &|_| false);
        let mut decoder = Decoder::declare(&mut declare, sizes);
        let (layout, released) = declare.finish();
        let mut engine =
            Engine::new(device, layout, precision, EngineOptions { seed: 3, ..EngineOptions::default() })?;
        for one in &released {
            let gain = match one.name.as_str() {
                name if name.contains("conv_post") => 4.0,
                name if name.ends_with("weight_g") => 2.0,
                _ => continue,
            };
            let mut data = engine.read_parameter(one.id)?;
            data.iter_mut().for_each(|value| *value *= gain);
            engine.write_parameter(one.id, &data)?;
        }
        decoder.fold(&mut engine)?;
        let networks = Networks::Decoded(Box::new(decoder));
        Ok(Vocoder { engine, networks, encoder: None, windows: BTreeMap::new() })
    }
}

impl FrameDecoder for Vocoder {
    fn windows(
        &mut self,
        size: (usize, usize),
        z: &[f32],
        speakers: &[f32],
        keep: bool,
    ) -> Result<Vec<f32>, SpeakError> {
        let Networks::Decoded(decoder) = &self.networks else { return Ok(Vec::new()) };
        if !keep {
            return Window::new(&mut self.engine, decoder, size)?.run(&mut self.engine, z, speakers);
        }
        let window = match self.windows.remove(&size) {
            Some(window) => window,
            None => Window::new(&mut self.engine, decoder, size)?,
        };
        self.windows.entry(size).or_insert(window).run(&mut self.engine, z, speakers)
    }
}

/// Creates an engine with the weights of the declared networks.
fn load_engine(
    source: &dyn WeightSource,
    declare: Declare<'_>,
    open: impl FnOnce(Arc<Layout>, EngineOptions) -> Result<Engine, Error>,
) -> Result<Engine, SpeakError> {
    let (layout, released) = declare.finish();
    let options = EngineOptions { initial: InitialWeights::Zeros, ..EngineOptions::default() };
    let mut engine = open(layout, options)?;
    let ids: Vec<_> = released.iter().map(|one| one.id).collect();
    engine.fill_parameters(&ids, |number, out| fill(source, &released[number], out))?;
    Ok(engine)
}

/// Runs a tape once and returns one of its values. The program is not cached: utterances have all lengths.
fn run(
    engine: &mut Engine,
    mut tape: Tape,
    floats: &[(Value, &[f32])],
    integers: &[(Value, &[i32])],
    wanted: Value,
) -> Result<Vec<f32>, SpeakError> {
    tape.keep(wanted);
    let mut program = engine.load(tape)?;
    for (value, data) in floats {
        engine.write(&program, *value, data)?;
    }
    for (value, data) in integers {
        engine.write_i32(&program, *value, data)?;
    }
    engine.run(&mut program, &Control::default())?;
    Ok(engine.read(&program, wanted)?)
}
