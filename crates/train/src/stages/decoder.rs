//! The decoder stage: a window of the GPT's states and a speaker's vector, made the sound of that window. Mels pull the sound
//! into shape; judges that are trained along pull it towards being real.

use super::latents::Latents;
use super::{Kind, Stage, Submitted, Validation, clips};
use crate::beside::{floats, position, samples};
use crate::error::TrainError;
use crate::machine::Machine;
use crate::model::{DECODER, Model, SPEAKER};
use myxtts_data::record::{RecordSource, SPEAKER_MEL, WAVEFORM};
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::discriminator::{
    DiscriminatorSizes, Discriminators, deception_loss, feature_loss, judges_loss,
};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerSizes, Statistics};
use myxtts_model::{Declare, Released};
use myxtts_run::plan::Recipe;
use myxtts_run::seed::Seed;
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::ops::mel::{Log, Mel, Scale};
use myxtts_tensor::ops::stft::{Spectrum, Stft, Window};
use myxtts_tensor::{
    Backward, Control, DType, Engine, EngineOptions, Init, Mode, ParameterId, Program, Recompute, Report,
    Tape, Training, Value as Node,
};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// How the stage is set up.
#[derive(Clone, Debug)]
pub struct DecoderSettings {
    /// Sizes of the decoder.
    pub decoder: DecoderSizes,
    /// Sizes of the speaker encoder.
    pub speaker: SpeakerSizes,
    /// Sizes of the judges.
    pub judges: DiscriminatorSizes,
    /// Windows in a batch.
    pub rows: usize,
    /// Latents of a window.
    pub window: usize,
    /// Frames of the clip a speaker is heard by.
    pub heard: usize,
    /// The share of the steps after which the judges join: before, there is nothing to judge.
    pub judged_from: f64,
    /// Recorded, or kernel by kernel.
    pub mode: Mode,
    /// Every draw comes from it.
    pub seed: u64,
}

/// HiFi-GAN's weights of the two losses beside the judges'.
const MEL_WEIGHT: f32 = 45.0;
const FEATURE_WEIGHT: f32 = 1.0;
/// What cosines are multiplied with: between -1 and 1 they could not say what is certain.
const SHARPNESS: f32 = 16.0;

struct Ready {
    program: Program,
    latents: Node,
    speaker: Node,
    wave: Node,
    /// Whose each window is, where the speaker encoder is to learn to tell.
    who: Option<Node>,
}

/// One clip to learn from.
struct Clip {
    record: u32,
    latents: Latents,
    wave: Vec<f32>,
    /// Raw log-mels of the speaker's front-end.
    heard: Vec<f32>,
    speaker: u32,
}

/// The decoder being trained.
pub struct DecoderStage {
    settings: DecoderSettings,
    recipe: Recipe,
    engine: Engine,
    released: Vec<Released>,
    source: Arc<dyn RecordSource>,
    train: Vec<Clip>,
    held_out: Vec<Clip>,
    /// Records to learn from that are not: shorter than a window, or without states.
    left_out: Vec<u32>,
    /// Clips of each speaker, as numbers of `train`.
    by_speaker: Vec<Vec<usize>>,
    plain: Ready,
    judged: Ready,
    measure: Ready,
}

impl DecoderStage {
    /// The stage on `source` and the states of its records.
    pub fn new(
        settings: DecoderSettings,
        recipe: Recipe,
        machine: Machine,
        source: Arc<dyn RecordSource>,
        latents: Vec<Latents>,
        (train, validation): (&[u32], &[u32]),
        model: &Model,
    ) -> Result<DecoderStage, TrainError> {
        let known_speaker = model.has(SPEAKER);
        // A speaker encoder that came with the model knows more voices than this corpus has.
        let trained = move |name: &str| !(known_speaker && name.contains("speaker_encoder"));
        let mut declare = Declare::new(recipe.weight_decay as f32, &trained);
        let decoder = Decoder::declare(&mut declare, &settings.decoder);
        let speaker = SpeakerEncoder::declare(&mut declare, &settings.speaker);
        let judges = Discriminators::declare(&mut declare, &settings.judges, "judges.");
        // Sound alone would teach a speaker encoder that one vector serves all who sound alike: it is also asked who speaks.
        let people = source.speakers().len();
        let who = (!known_speaker && people > 1).then(|| {
            let bound = 1.0 / (settings.speaker.result as f32).sqrt();
            declare.same("judges.speakers", &[people, settings.speaker.result], Init::Uniform(bound), false)
        });
        let (layout, released) = declare.finish();
        let training = match recipe.ema_decay {
            Some(_) => Training::AdamWithAverage,
            None => Training::Adam,
        };
        let options =
            EngineOptions { training, mode: settings.mode, seed: settings.seed, ..EngineOptions::default() };
        let mut engine = Engine::new(machine.device, layout, machine.precision, options)?;
        if model.has(DECODER) || known_speaker {
            model.fill(&mut engine, &released)?;
        }
        super::start_average(&mut engine, recipe.ema_decay.is_some())?;
        let mut latents = latents;
        let mut clips = |records: &[u32]| -> Result<Vec<Clip>, TrainError> {
            let mut clips = Vec::new();
            for &record in records {
                let own = std::mem::take(&mut latents[record as usize]);
                // The last state is of the end, and stands for no sound.
                if own.len() / settings.decoder.latent <= settings.window {
                    continue;
                }
                clips.push(Clip {
                    record,
                    latents: own,
                    wave: samples(&*source, record as usize, WAVEFORM)?,
                    heard: floats(&*source, record as usize, SPEAKER_MEL)?,
                    speaker: source.speaker(record as usize),
                });
            }
            Ok(clips)
        };
        let records = train;
        let (train, held_out) = (clips(train)?, clips(validation)?);
        if train.is_empty() {
            return Err(TrainError::NoData(format!(
                "no clip is longer than the decoder's window of {} codes ({:.2} s)",
                settings.window,
                settings.window as f64 * 1024.0 / 22_050.0
            )));
        }
        let used: HashSet<u32> = train.iter().map(|clip| clip.record).collect();
        let left_out = records.iter().copied().filter(|record| !used.contains(record)).collect();
        let mut by_speaker = vec![Vec::new(); source.speakers().len()];
        for (i, clip) in train.iter().enumerate() {
            by_speaker[clip.speaker as usize].push(i);
        }
        let mut make = |what| {
            let parts = Parts { decoder: &decoder, speakers: &speaker, judges: &judges, who, known_speaker };
            ready(&mut engine, &settings, &recipe, parts, what)
        };
        let (judged, plain, measure) = (make(What::Judged)?, make(What::Plain)?, make(What::Measured)?);
        Ok(DecoderStage {
            settings,
            recipe,
            engine,
            released,
            source,
            train,
            held_out,
            left_out,
            by_speaker,
            plain,
            judged,
            measure,
        })
    }

    /// The rows of a step: which clip, from which latent, and which clip its speaker is heard by.
    fn drawn(&self, step: u64, row: usize) -> (usize, usize, usize) {
        let seed = Seed::new(self.settings.seed).derive("decoder").with(step).with(row as u64);
        let clip = seed.below(0, self.train.len() as u64) as usize;
        let room = self.train[clip].latents.len() / self.settings.decoder.latent - self.settings.window;
        let start = seed.below(1, room as u64) as usize;
        let others = &self.by_speaker[self.train[clip].speaker as usize];
        (clip, start, others[seed.below(2, others.len() as u64) as usize])
    }

    fn put(&self, ready: &Ready, rows: &[(&Clip, usize, &Clip, u64)]) -> Result<(), TrainError> {
        let DecoderSettings { decoder, window, heard, .. } = &self.settings;
        let count = decoder.samples_of(*window);
        let (mut latents, mut wave, mut speaker) = (Vec::new(), Vec::new(), Vec::new());
        for &(clip, start, other, draw) in rows {
            let from = &clip.latents[start * decoder.latent..][..window * decoder.latent];
            latents.extend(from.iter().map(|x| x.to_f32()));
            // Where the latents begin, at the rate of the waveform.
            let first = start * decoder.code_samples * decoder.wave_rate / decoder.code_rate;
            wave.extend((first..first + count).map(|i| clip.wave.get(i).copied().unwrap_or(0.0)));
            speaker.extend(window_of(&other.heard, self.settings.speaker.mels, *heard, draw));
        }
        self.engine.write(&ready.program, ready.latents, &latents)?;
        self.engine.write(&ready.program, ready.wave, &wave)?;
        self.engine.write(&ready.program, ready.speaker, &speaker)?;
        if let Some(who) = ready.who {
            let targets: Vec<i32> = rows.iter().map(|row| row.0.speaker as i32).collect();
            self.engine.write_i32(&ready.program, who, &targets)?;
        }
        Ok(())
    }

    fn is_judged(&self, step: u64) -> bool {
        step as f64 >= self.settings.judged_from * self.recipe.steps as f64
    }
}

/// A window of features, repeated where the clip is shorter, each band made mean 0 and deviation 1 over it.
pub fn window_of(features: &[f32], bands: usize, frames: usize, draw: u64) -> Vec<f32> {
    let there = (features.len() / bands).max(1);
    let start = if there > frames { (draw % (there - frames + 1) as u64) as usize } else { 0 };
    let mut window = Vec::with_capacity(frames * bands);
    for i in 0..frames {
        let at = (start + i) % there;
        window.extend((0..bands).map(|b| features.get(at * bands + b).copied().unwrap_or(0.0)));
    }
    for band in 0..bands {
        let values = || window.iter().skip(band).step_by(bands).map(|&x| f64::from(x));
        let mean = values().sum::<f64>() / frames as f64;
        let variance = values().map(|x| (x - mean).powi(2)).sum::<f64>() / frames as f64;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        for x in window.iter_mut().skip(band).step_by(bands) {
            *x = ((f64::from(*x) - mean) * scale) as f32;
        }
    }
    window
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Plain,
    Judged,
    Measured,
}

struct Parts<'a> {
    decoder: &'a Decoder,
    speakers: &'a SpeakerEncoder,
    judges: &'a Discriminators,
    who: Option<ParameterId>,
    known_speaker: bool,
}

fn ready(
    engine: &mut Engine,
    settings: &DecoderSettings,
    recipe: &Recipe,
    Parts { decoder, speakers, judges, who, known_speaker }: Parts<'_>,
    what: What,
) -> Result<Ready, TrainError> {
    let mut tape = Tape::new(engine.layout().clone(), engine.precision());
    let count = settings.decoder.samples_of(settings.window);
    let latents = tape.input([settings.rows, settings.window, settings.decoder.latent], DType::F32);
    let speaker = tape.input([settings.rows, settings.heard, settings.speaker.mels], DType::F32);
    let wave = tape.input([settings.rows, count, 1], DType::F32);
    let dtype = tape.dtype();
    let [given, features, real] = [latents, speaker, wave]
        .map(|value| if dtype == DType::F32 { value } else { tape.cast(value, dtype) });
    let statistics = match known_speaker || what == What::Measured {
        true => Statistics::Running,
        false => Statistics::Batch,
    };
    let voice = speakers.hear(&mut tape, features, statistics).vector;
    let z = decoder.stretch(&mut tape, given);
    let made = decoder.wave(&mut tape, z, voice);
    let (distance, written) = mel_distance(&mut tape, made, wave, settings.decoder.wave_rate);
    tape.note(0, distance);
    let asked = who.filter(|_| what != What::Measured).map(|table| {
        let table = tape.master(table);
        let targets = tape.input([settings.rows], DType::I32);
        // Both of length 1: a table that could grow would tell vectors apart that hardly differ, and leave them so.
        let (people, width) = (tape.shape(table).dim(0), settings.speaker.result);
        let table = tape.l2_normalize(table);
        let table = tape.reshape(table, [1, people, width]);
        let vectors = if dtype == DType::F32 { voice } else { tape.cast(voice, DType::F32) };
        let vectors = tape.reshape(vectors, [1, settings.rows, width]);
        let cosines = tape.matmul(vectors, table, (false, true));
        let logits = tape.scale(cosines, SHARPNESS);
        let logits = tape.reshape(logits, [settings.rows, people]);
        let told = tape.cross_entropy(logits, targets, 0.0);
        tape.note(4, told.loss);
        (targets, told.loss)
    });
    if what == What::Measured {
        tape.tell(distance);
    } else {
        let mut parts = vec![(distance, MEL_WEIGHT)];
        parts.extend(asked.map(|(_, told)| (told, 1.0)));
        if what == What::Judged {
            let weights = judges.weights(&mut tape);
            let fixed = weights.fixed(&mut tape);
            let copied = tape.detach(made);
            let of_real = judges.judge(&mut tape, &weights, real);
            let of_copied = judges.judge(&mut tape, &weights, copied);
            let judged = judges_loss(&mut tape, &of_real, &of_copied);
            let of_made = judges.judge(&mut tape, &fixed, made);
            let deceived = deception_loss(&mut tape, &of_made);
            let features = feature_loss(&mut tape, &of_real, &of_made);
            tape.note(1, judged);
            tape.note(2, deceived);
            tape.note(3, features);
            // Two sums: one takes four at most.
            let game = tape.weighted_sum(&[(judged, 1.0), (deceived, 1.0), (features, FEATURE_WEIGHT)]);
            parts.push((game, 1.0));
        }
        let loss = tape.weighted_sum(&parts);
        tape.backward(loss, Backward { recompute: Recompute::Marked, accumulate: false });
        let average = recipe.ema_decay.is_some();
        // HiFi-GAN's betas: a game has no use for a long memory.
        tape.update(loss, AdamW { beta1: 0.8, beta2: 0.99, average, ..AdamW::default() });
    }
    let program = engine.load(tape)?;
    for (value, data) in written {
        engine.write(&program, value, &data)?;
    }
    Ok(Ready { program, latents, speaker, wave, who: asked.map(|(targets, _)| targets) })
}

/// Points, hop and bands of the mels that sound is compared by: with one length of window alone, clicks or hum would go
/// unheard.
const RESOLUTIONS: [(usize, usize, usize); 3] = [(512, 128, 40), (1024, 256, 80), (2048, 512, 80)];

/// The mean distance of log-mels of waveforms `[rows, samples, 1]`, and what has to be written to the inputs it needs.
fn mel_distance(tape: &mut Tape, made: Node, real: Node, rate: usize) -> (Node, Vec<(Node, Vec<f32>)>) {
    let shape = tape.shape(made);
    let [made, real] = [made, real].map(|wave| {
        let wave = if tape.info(wave).dtype == DType::F32 { wave } else { tape.cast(wave, DType::F32) };
        tape.reshape(wave, [shape.dim(0), shape.dim(1)])
    });
    let (mut parts, mut written) = (Vec::new(), Vec::new());
    for (points, hop, channels) in RESOLUTIONS {
        let mel = Mel {
            stft: Stft { points, length: points, window: Window::Hann, hop },
            spectrum: Spectrum::Magnitude { epsilon: 1e-9 },
            rate: rate as f64,
            channels,
            range: (0.0, rate as f64 / 2.0),
            scale: Scale::Slaney,
            area: true,
            log: Log::Floor(1e-5),
        };
        let basis = tape.input([2 * mel.stft.bins(), points], DType::F32);
        let filters = tape.input([channels, mel.stft.bins()], DType::F32);
        written.push((basis, mel.stft.basis()));
        written.push((filters, mel.filters()));
        let [a, b] = [made, real].map(|wave| tape.mel(wave, &mel, basis, filters));
        parts.push((tape.l1_loss(a, b), 1.0 / RESOLUTIONS.len() as f32));
    }
    (tape.weighted_sum(&parts), written)
}

impl Stage for DecoderStage {
    fn kind(&self) -> Kind {
        Kind::Decoder
    }

    fn described(&self) -> Vec<String> {
        let DecoderSettings { decoder, window, rows, .. } = &self.settings;
        let mut lines = vec![
            format!(
                "decoder of {} channels, judges and speaker encoder beside it: {:.1} M trained numbers",
                decoder.channels,
                self.engine.layout().trained_count() as f64 / 1e6
            ),
            format!(
                "{} clips, {rows} windows of {:.2} s in a batch; memory {:.2} GiB",
                self.train.len(),
                decoder.samples_of(*window) as f64 / decoder.wave_rate as f64,
                self.engine.memory().total() as f64 / (1u64 << 30) as f64
            ),
        ];
        if let Some(&first) = self.left_out.first() {
            let (count, id) = (self.left_out.len(), self.clip(first));
            lines.push(format!(
                "{count} clips are left out, such as {id}: shorter than a window, or longer than the GPT takes"
            ));
        }
        lines
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let drawn: Vec<_> = (0..self.settings.rows).map(|row| self.drawn(step, row)).collect();
        let seed = Seed::new(self.settings.seed).derive("heard").with(step);
        let rows: Vec<_> = drawn
            .iter()
            .enumerate()
            .map(|(i, &(clip, start, other))| {
                (&self.train[clip], start, &self.train[other], seed.at(i as u64))
            })
            .collect();
        let own: Vec<i32> = rows.iter().map(|row| row.0.record as i32).collect();
        let heard: Vec<i32> = rows.iter().map(|row| row.2.record as i32).collect();
        let records = clips(&[&own, &heard]);
        let judged = self.is_judged(step);
        self.put(if judged { &self.judged } else { &self.plain }, &rows)?;
        let ready = if judged { &mut self.judged } else { &mut self.plain };
        let ticket = self.engine.submit(&mut ready.program, control)?;
        Ok(Submitted { ticket, rows: self.settings.rows as u64, records })
    }

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let [mel, judged, deceived, features] = [0, 1, 2, 3].map(|i| f64::from(report.notes[i]));
        let mut numbers = vec![("mel", mel)];
        if self.plain.who.is_some() {
            numbers.push(("who", f64::from(report.notes[4])));
        }
        if judged != 0.0 {
            numbers.extend([("judges", judged), ("deceived", deceived), ("features", features)]);
        }
        numbers
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        if self.held_out.is_empty() {
            return Ok(None);
        }
        let rows = self.settings.rows;
        let (mut sum, mut passes) = (0.0, 0.0);
        for from in (0..self.held_out.len()).step_by(rows) {
            // The last pass is filled up from the start.
            let row = |i: usize| {
                let clip = &self.held_out[(from + i) % self.held_out.len()];
                let room = clip.latents.len() / self.settings.decoder.latent - self.settings.window;
                (clip, room / 2, clip, 0)
            };
            self.put(&self.measure, &(0..rows).map(row).collect::<Vec<_>>())?;
            let ticket = self.engine.submit(&mut self.measure.program, &Control::default())?;
            sum += f64::from(self.engine.wait(ticket)?.loss);
            passes += 1.0;
        }
        Ok(Some(Validation { score: sum / passes, numbers: vec![("mel", sum / passes)] }))
    }

    fn epoch_steps(&self) -> u64 {
        (self.train.len() / self.settings.rows).max(1) as u64
    }

    fn clip(&self, record: u32) -> String {
        self.source.id(record as usize)
    }

    fn position(&self, step: u64) -> Value {
        // Which window a step takes follows from its number and the clips there are.
        let rows = position(&*self.source, WAVEFORM);
        let mut hasher = blake3::Hasher::new();
        for clip in &self.train {
            hasher.update(&clip.record.to_le_bytes());
            hasher.update(&self.source.rows(clip.record as usize, rows).to_le_bytes());
        }
        json!({ "step": step, "clips": hasher.finalize().to_string() })
    }

    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError> {
        let named = |part: &str| -> Vec<Released> {
            self.released.iter().filter(|tensor| tensor.name.starts_with(part)).cloned().collect()
        };
        let (decoder, speaker) =
            (named("hifigan_decoder.waveform_decoder."), named("hifigan_decoder.speaker_encoder."));
        model.take(
            DECODER,
            json!({ "channels": self.settings.decoder.channels }),
            &self.engine,
            &decoder,
            average,
        )?;
        // Its norms' running statistics are those of the weights, not of their averages: the two must not be mixed.
        model.take(SPEAKER, json!({ "result": self.settings.speaker.result }), &self.engine, &speaker, false)
    }
}
