//! From what the GPT said to samples: by the decoder, or by the DVAE while there is none.

use crate::error::SpeakError;
use crate::source::{Source, fill};
use crate::stream::{FrameDecoder, in_windows, largest_window};
use myxtts_data::audio::Resampler;
use myxtts_data::mel::{FrontEnd, MelExtractor, MelInverter, instance_normalize};
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::dvae::{Dvae, DvaeSizes};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerSizes};
use myxtts_model::weights::Part;
use myxtts_model::{Declare, GptSizes, Spoken};
use myxtts_tensor::{
    Control, DType, Device, Engine, EngineOptions, Error, Initial, Layout, Precision, Program, Tape, Value,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a voice sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// By a decoder.
    Decoded,
    /// By mels of the DVAE: rough.
    Early,
}

impl Quality {
    /// Samples per second.
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

/// Hears who speaks, in f32 always: what is kept of a voice does not depend on how it is spoken with.
struct Ears {
    engine: Engine,
    encoder: SpeakerEncoder,
}

/// The decoder on some windows of a fixed number of frames.
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

/// The networks behind the GPT.
pub(crate) struct Sound {
    engine: Engine,
    networks: Networks,
    /// None where no decoder asks for a speaker.
    ears: Option<Ears>,
    /// By their number and their frames: those that are kept.
    windows: BTreeMap<(usize, usize), Window>,
}

impl Sound {
    /// Opens what there is with a decoder in bf16, or in f32 where the device has no bf16.
    pub(crate) fn open_fast(
        source: &dyn Source,
        device: Device,
        gpt: &GptSizes,
    ) -> Result<Sound, SpeakError> {
        match Sound::open(source, device, gpt, Precision::Bf16) {
            Err(SpeakError::Engine(Error::Unsupported(_))) => {
                Sound::open(source, device, gpt, Precision::F32)
            }
            opened => opened,
        }
    }

    /// Opens what there is. `precision` is the decoder's; bf16 only on devices that have it.
    pub(crate) fn open(
        source: &dyn Source,
        device: Device,
        gpt: &GptSizes,
        precision: Precision,
    ) -> Result<Sound, SpeakError> {
        let has = |part: Part| source.holds(part);
        let of = |name: &str| source.shape(name);
        let mut declare = Declare::new(0.0, &|_| false);
        let mut hears = None;
        let mut networks = if has(Part::Decoder) && has(Part::Speaker) {
            let sizes = DecoderSizes::of_shapes(&of).map_err(SpeakError::shape(source))?;
            let heard = SpeakerSizes::of_shapes(&of).map_err(SpeakError::shape(source))?;
            if heard.mels != FrontEnd::Speaker.channels() {
                let what = format!("its speaker encoder listens to {} mels", heard.mels);
                return Err(SpeakError::unfit(source, &what));
            }
            if sizes.latent != gpt.width || sizes.speaker != heard.result {
                let what = format!(
                    "the decoder takes states of {} and speakers of {} numbers; the GPT gives {}, the speaker encoder {}",
                    sizes.latent, sizes.speaker, gpt.width, heard.result
                );
                return Err(SpeakError::unfit(source, &what));
            }
            hears = Some(heard);
            Networks::Decoded(Box::new(Decoder::declare(&mut declare, &sizes)))
        } else if has(Part::Dvae) {
            let sizes = DvaeSizes::of_shapes(&of, "dvae.").map_err(SpeakError::shape(source))?;
            let mels = FrontEnd::Dvae.channels();
            if sizes.codes + 2 < gpt.audio_vocabulary || sizes.channels != mels || sizes.layers == 0 {
                let what = format!(
                    "the DVAE has {} codes of {} mels; the GPT says {} codes, and sound is made of {mels} mels",
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
                "it has neither {} with {} nor {}, and the GPT alone makes no sound",
                Part::Decoder.file(),
                Part::Speaker.file(),
                Part::Dvae.file()
            );
            return Err(SpeakError::unfit(source, &what));
        };
        let is_early = matches!(networks, Networks::Early { .. });
        let precision = if is_early { Precision::F32 } else { precision };
        let mut engine =
            opened(source, declare, |layout, options| Engine::new(device, layout, precision, options))?;
        if let Networks::Decoded(decoder) = &mut networks {
            decoder.fold(&mut engine)?;
        }
        let ears = match hears {
            None => None,
            Some(sizes) => {
                let mut declare = Declare::new(0.0, &|_| false);
                let encoder = SpeakerEncoder::declare(&mut declare, &sizes);
                let engine = opened(source, declare, |layout, options| match engine.cuda() {
                    Some(cuda) => Engine::on_cuda(Arc::clone(cuda), layout, Precision::F32, options),
                    None => Engine::new(device, layout, Precision::F32, options),
                })?;
                Some(Ears { engine, encoder })
            }
        };
        Ok(Sound { engine, networks, ears, windows: BTreeMap::new() })
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

    /// The vector of a speaker in a recording at the conditioning's rate; none where no decoder asks for it.
    pub(crate) fn speaker_vector(&mut self, samples: &[f32]) -> Result<Option<Vec<f32>>, SpeakError> {
        let Some(Ears { engine, encoder }) = &mut self.ears else { return Ok(None) };
        let (from, to) = (FrontEnd::Conditioning.sample_rate(), FrontEnd::Speaker.sample_rate());
        let samples = Resampler::new(from, to).resample(samples);
        let (mut features, channels) = (Vec::new(), FrontEnd::Speaker.channels());
        let frames = MelExtractor::new(FrontEnd::Speaker).compute(&samples, &mut features);
        instance_normalize(&mut features, channels);
        let mut tape = Tape::new(Arc::clone(engine.layout()), Precision::F32);
        let input = tape.input([1, frames, channels], DType::F32);
        let vector = encoder.vector(&mut tape, input);
        run(engine, tape, &[(input, &features)], &[], vector).map(Some)
    }

    /// The decoder's sizes; none where there is no decoder.
    pub(crate) fn decoder_sizes(&self) -> Option<&DecoderSizes> {
        match &self.networks {
            Networks::Decoded(decoder) => Some(decoder.sizes()),
            Networks::Early { .. } => None,
        }
    }

    /// A speaker vector that fits the decoder.
    pub(crate) fn fitting<'v>(&self, speaker: Option<&'v [f32]>) -> Result<&'v [f32], SpeakError> {
        let wanted = self.decoder_sizes().map_or(0, |sizes| sizes.speaker);
        speaker.filter(|vector| vector.len() == wanted).ok_or(SpeakError::Speaker { wanted })
    }

    /// Takes memory for all windows at once: each that is made later would move what the others were recorded with.
    pub(crate) fn reserve_windows(&mut self) -> Result<(), SpeakError> {
        let Networks::Decoded(decoder) = &self.networks else { return Ok(()) };
        if self.windows.is_empty() {
            let (tape, _) = Window::tape(&self.engine, decoder, largest_window(decoder.sizes()));
            let plan = self.engine.plan_of(&tape);
            self.engine.reserve([&plan])?;
        }
        Ok(())
    }

    /// The samples of utterances, each with its speaker's vector. Where programs are recorded they become sound together.
    pub(crate) fn sounds(
        &mut self,
        utterances: &[(&Spoken, Option<&[f32]>)],
        mel_stats: &[f32],
    ) -> Result<Vec<Vec<f32>>, SpeakError> {
        // One of the utterance's own length would be recorded for nothing.
        if self.engine.cuda().is_some()
            && let Some(sizes) = self.decoder_sizes().cloned()
        {
            let mut all = Vec::with_capacity(utterances.len());
            for &(spoken, speaker) in utterances {
                all.push((&spoken.latents[..], self.fitting(speaker)?));
            }
            self.reserve_windows()?;
            return in_windows(self, &sizes, &all);
        }
        utterances.iter().map(|(spoken, speaker)| self.sound_of(spoken, *speaker, mel_stats)).collect()
    }

    /// The samples of what was said.
    pub(crate) fn sound(
        &mut self,
        spoken: &Spoken,
        speaker: Option<&[f32]>,
        mel_stats: &[f32],
    ) -> Result<Vec<f32>, SpeakError> {
        Ok(self.sounds(&[(spoken, speaker)], mel_stats)?.pop().unwrap_or_default())
    }

    /// The same by a program of the utterance's length.
    fn sound_of(
        &mut self,
        spoken: &Spoken,
        speaker: Option<&[f32]>,
        mel_stats: &[f32],
    ) -> Result<Vec<f32>, SpeakError> {
        let mut tape = Tape::new(Arc::clone(self.engine.layout()), Precision::F32);
        match &self.networks {
            Networks::Decoded(decoder) => {
                let (sizes, speaker) = (decoder.sizes(), self.fitting(speaker)?);
                let rows = spoken.latents.len() / sizes.latent;
                if sizes.frames_of(rows) == 0 {
                    return Ok(Vec::new());
                }
                let latents = tape.input([1, rows, sizes.latent], DType::F32);
                let vector = tape.input([1, sizes.speaker], DType::F32);
                let z = decoder.stretch(&mut tape, latents);
                let wave = decoder.wave(&mut tape, z, vector);
                run(&mut self.engine, tape, &[(latents, &spoken.latents), (vector, speaker)], &[], wave)
            }
            Networks::Early { dvae, inverter } => {
                if spoken.codes.is_empty() {
                    return Ok(Vec::new());
                }
                let codes = tape.input([1, spoken.codes.len()], DType::I32);
                let mel = dvae.decode(&mut tape, codes);
                // START is a code of the GPT's that a poor model may say, and none of the DVAE's.
                let most = i32::try_from(dvae.sizes().codes).unwrap_or(i32::MAX) - 1;
                let said: Vec<i32> = spoken.codes.iter().map(|&code| code.min(most)).collect();
                let mut mel = run(&mut self.engine, tape, &[], &[(codes, &said)], mel)?;
                for frame in mel.chunks_exact_mut(mel_stats.len()) {
                    frame.iter_mut().zip(mel_stats).for_each(|(value, stat)| *value *= stat);
                }
                Ok(inverter.invert(&mel))
            }
        }
    }
}

impl FrameDecoder for Sound {
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

/// An engine with the weights of what was declared.
fn opened(
    source: &dyn Source,
    declare: Declare<'_>,
    open: impl FnOnce(Arc<Layout>, EngineOptions) -> Result<Engine, Error>,
) -> Result<Engine, SpeakError> {
    let (layout, released) = declare.finish();
    let options = EngineOptions { initial: Initial::Zeros, ..EngineOptions::default() };
    let mut engine = open(layout, options)?;
    let ids: Vec<_> = released.iter().map(|one| one.id).collect();
    engine.fill_parameters(&ids, |number, out| fill(source, &released[number], out))?;
    Ok(engine)
}

/// Runs a tape once and gives one of its values. Texts are of all lengths, so nothing is kept of it.
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
