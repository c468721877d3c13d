//! The decoder stage: a window of the GPT's states and a speaker's vector, made the sound of that window. Mels pull the sound
//! into shape; judges that are trained along pull it towards being real.

use super::clips::{Clip, Clips};
use super::latents::Latents;
use super::{Kind, Stage, Submitted, Validation};
use crate::beside::position;
use crate::error::TrainError;
use crate::machine::Machine;
use crate::model::{DECODER, Model, SPEAKER};
use crate::share::Share;
use myxtts_data::record::{RecordSource, WAVEFORM};
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

/// The decoder being trained.
pub struct DecoderStage {
    settings: DecoderSettings,
    recipe: Recipe,
    share: Share,
    engine: Engine,
    released: Vec<Released>,
    source: Arc<dyn RecordSource>,
    clips: Arc<Clips>,
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
        sides: (&[u32], &[u32]),
        model: &Model,
    ) -> Result<DecoderStage, TrainError> {
        let clips = Arc::new(Clips::load(&settings, &*source, latents, sides)?);
        DecoderStage::replica(Share::WHOLE, settings, recipe, machine, source, clips, model)
    }

    /// As `new`, for one of several replicas: it learns from its own rows of every batch. The norms of its speaker
    /// encoder take their statistics over these rows alone, and so do the running ones that are kept of the first.
    pub fn replica(
        share: Share,
        settings: DecoderSettings,
        recipe: Recipe,
        machine: Machine,
        source: Arc<dyn RecordSource>,
        clips: Arc<Clips>,
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
        let mut make = |what| {
            let parts = Parts { decoder: &decoder, speakers: &speaker, judges: &judges, who, known_speaker };
            ready(&mut engine, &settings, &recipe, parts, what, &share)
        };
        let (judged, plain, measure) = (make(What::Judged)?, make(What::Plain)?, make(What::Measured)?);
        Ok(DecoderStage { settings, recipe, share, engine, released, source, clips, plain, judged, measure })
    }

    /// The rows of a step: which clip, from which latent, and which clip its speaker is heard by.
    fn drawn(&self, step: u64, row: usize) -> (usize, usize, usize) {
        let seed = Seed::new(self.settings.seed).derive("decoder").with(step).with(row as u64);
        let clip = seed.below(0, self.clips.train.len() as u64) as usize;
        let room = self.clips.train[clip].latents.len() / self.settings.decoder.latent - self.settings.window;
        let start = seed.below(1, room as u64) as usize;
        let others = &self.clips.by_speaker[self.clips.train[clip].speaker as usize];
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
    share: &Share,
) -> Result<Ready, TrainError> {
    let mut tape = Tape::new(engine.layout().clone(), engine.precision());
    let share = if what == What::Measured { &Share::WHOLE } else { share };
    share.begin(&mut tape);
    let rows = share.rows(settings.rows as u32)? as usize;
    let count = settings.decoder.samples_of(settings.window);
    let latents = tape.input([rows, settings.window, settings.decoder.latent], DType::F32);
    let speaker = tape.input([rows, settings.heard, settings.speaker.mels], DType::F32);
    let wave = tape.input([rows, count, 1], DType::F32);
    let dtype = tape.dtype();
    let [given, features, real] = [latents, speaker, wave]
        .map(|value| if dtype == DType::F32 { value } else { tape.cast(value, dtype) });
    let note = |tape: &mut Tape, slot, value| {
        let part = share.part(tape, value);
        tape.note(slot, part);
    };
    let statistics = match known_speaker || what == What::Measured {
        true => Statistics::Running,
        false => Statistics::Batch,
    };
    let voice = speakers.hear(&mut tape, features, statistics).vector;
    let z = decoder.stretch(&mut tape, given);
    let made = decoder.wave(&mut tape, z, voice);
    let (distance, written) = mel_distance(&mut tape, made, wave, settings.decoder.wave_rate);
    note(&mut tape, 0, distance);
    let asked = who.filter(|_| what != What::Measured).map(|table| {
        let table = tape.master(table);
        let targets = tape.input([rows], DType::I32);
        // Both of length 1: a table that could grow would tell vectors apart that hardly differ, and leave them so.
        let (people, width) = (tape.shape(table).dim(0), settings.speaker.result);
        let table = tape.l2_normalize(table);
        let table = tape.reshape(table, [1, people, width]);
        let vectors = if dtype == DType::F32 { voice } else { tape.cast(voice, DType::F32) };
        let vectors = tape.reshape(vectors, [1, rows, width]);
        let cosines = tape.matmul(vectors, table, (false, true));
        let logits = tape.scale(cosines, SHARPNESS);
        let logits = tape.reshape(logits, [rows, people]);
        let told = tape.cross_entropy(logits, targets, 0.0);
        note(&mut tape, 4, told.loss);
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
            note(&mut tape, 1, judged);
            note(&mut tape, 2, deceived);
            note(&mut tape, 3, features);
            // Two sums: one takes four at most.
            let game = tape.weighted_sum(&[(judged, 1.0), (deceived, 1.0), (features, FEATURE_WEIGHT)]);
            parts.push((game, 1.0));
        }
        let loss = tape.weighted_sum(&parts);
        let loss = share.part(&mut tape, loss);
        tape.backward(loss, Backward { recompute: Recompute::Marked, accumulate: false });
        share.reduce(&mut tape);
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
        vec![
            format!(
                "decoder of {} channels, judges and speaker encoder beside it: {:.1} M trained numbers",
                decoder.channels,
                self.engine.layout().trained_count() as f64 / 1e6
            ),
            format!(
                "{} clips, {rows} windows of {:.2} s in a batch; memory {:.2} GiB",
                self.clips.train.len(),
                decoder.samples_of(*window) as f64 / decoder.wave_rate as f64,
                self.engine.memory().total() as f64 / (1u64 << 30) as f64
            ),
        ]
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let own = self.share.rows(self.settings.rows as u32)? as usize;
        let first = self.share.rank() as usize * own;
        let drawn: Vec<_> = (first..first + own).map(|row| self.drawn(step, row)).collect();
        let seed = Seed::new(self.settings.seed).derive("heard").with(step);
        let rows: Vec<_> = drawn
            .iter()
            .enumerate()
            .map(|(i, &(clip, start, other))| {
                (&self.clips.train[clip], start, &self.clips.train[other], seed.at((first + i) as u64))
            })
            .collect();
        let records = rows.iter().map(|row| row.0.record).collect();
        let judged = self.is_judged(step);
        self.put(if judged { &self.judged } else { &self.plain }, &rows)?;
        let ready = if judged { &mut self.judged } else { &mut self.plain };
        let ticket = self.engine.submit(&mut ready.program, control)?;
        Ok(Submitted { ticket, rows: own as u64, records })
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
        if self.clips.held_out.is_empty() {
            return Ok(None);
        }
        let rows = self.settings.rows;
        let (mut sum, mut passes) = (0.0, 0.0);
        for from in (0..self.clips.held_out.len()).step_by(rows) {
            // The last pass is filled up from the start.
            let row = |i: usize| {
                let clip = &self.clips.held_out[(from + i) % self.clips.held_out.len()];
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
        (self.clips.train.len() / self.settings.rows).max(1) as u64
    }

    fn clip(&self, record: u32) -> String {
        self.source.id(record as usize)
    }

    fn position(&self, step: u64) -> Value {
        // Which window a step takes follows from its number and the clips there are.
        let rows = position(&*self.source, WAVEFORM);
        let mut hasher = blake3::Hasher::new();
        for clip in &self.clips.train {
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
