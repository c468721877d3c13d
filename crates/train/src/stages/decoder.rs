//! The decoder stage: generates the waveform of a window from the GPT's states and a speaker vector. The mel distance shapes
//! the audio; discriminators trained at the same time make it sound natural.

mod batch;
mod fill;
pub mod forecast;
mod step;

use super::clips::Clips;
use super::{ClipOrder, Stage, StageCore, StageKind, Submitted, Validation};
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::feed::{BatchCost, Feed, FeedSettings, Measured};
use crate::model::{DECODER, Model, SPEAKER};
use crate::overlay::position;
use crate::replica_slice::ReplicaSlice;
use batch::{BadClips, BatchSampler};
use fill::RowBuffers;
use myxtts_data::loader::{Notes, Quarantine};
use myxtts_data::record::{RecordSource, WAVEFORM};
use myxtts_model::decoder::{Decoder, DecoderSizes};
use myxtts_model::discriminator::{DiscriminatorSizes, Discriminators};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerSizes};
use myxtts_model::{Declare, Released};
use myxtts_run::memory_size::memory_size;
use myxtts_run::plan::Recipe;
use myxtts_tensor::engine::{OpTime, Ticket, Upload};
use myxtts_tensor::{Control, Engine, EngineOptions, Init, Layout, Mode, ParameterId, Report, Training};
use serde_json::{Value, json};
use std::sync::Arc;
use step::{Parts, ProgramKind, Ready};

/// HiFi-GAN's weight of the mel distance, relative to the discriminators' loss.
pub const MEL_WEIGHT: f64 = 45.0;

/// Settings of the decoder stage.
#[derive(Clone, Debug)]
pub struct DecoderSettings {
    /// Sizes of the decoder.
    pub decoder: DecoderSizes,
    /// Sizes of the speaker encoder.
    pub speaker: SpeakerSizes,
    /// Sizes of the discriminators.
    pub discriminators: DiscriminatorSizes,
    /// Windows per batch.
    pub rows: usize,
    /// GPT latents per window.
    pub window: usize,
    /// Mel frames that the speaker vector is computed from.
    pub speaker_frames: usize,
    /// Share of the steps, 0 to 1, after which the discriminators join: before that, every generated waveform is easy to
    /// tell from a real one.
    pub discriminators_from: f64,
    /// Weight of the mel distance once the discriminators have joined.
    pub mel_weight: f64,
    /// Temperature of the balance between speakers and languages.
    pub balance: f64,
    /// The order of clips.
    pub order: ClipOrder,
    /// Whether steps are captured as graphs or launched kernel by kernel.
    pub mode: Mode,
    /// How batches get to the device.
    pub feeding: FeedSettings,
    /// Seed of all random streams.
    pub seed: u64,
    /// Limit of device memory, in bytes.
    pub memory_limit: Option<u64>,
}

/// Name prefix of the speaker encoder's parameters.
const SPEAKER_ENCODER: &str = "hifigan_decoder.speaker_encoder.";

/// The decoder in training.
pub struct DecoderStage {
    settings: DecoderSettings,
    slice: ReplicaSlice,
    recipe: Recipe,
    engine: Engine,
    released: Vec<Released>,
    source: Arc<dyn RecordSource>,
    clips: Arc<Clips>,
    plain: Ready,
    adversarial: Ready,
    measure: Ready,
    /// Batches, and the records in each.
    feed: Option<Feed<Vec<u32>>>,
    /// Bad clips that were replaced.
    notes: Notes,
    /// Bad clips of the validation set: counted in each validation, noted once.
    bad_validation: Quarantine,
}

/// The networks, with the table of speakers if the speaker encoder is trained to classify them.
struct Networks {
    decoder: Decoder,
    speaker: SpeakerEncoder,
    discriminators: Discriminators,
    who: Option<ParameterId>,
    known_speaker: bool,
}

impl Networks {
    /// The networks and their parameters, for a corpus of `people` speakers.
    fn declare(
        settings: &DecoderSettings,
        recipe: &Recipe,
        known_speaker: bool,
        people: usize,
    ) -> (Networks, Arc<Layout>, Vec<Released>) {
        // A speaker encoder of the model was trained on more voices than this corpus has, so it stays frozen.
        let trained = move |name: &str| !(known_speaker && name.contains("speaker_encoder"));
        let mut declare = Declare::new(recipe.weight_decay as f32, &trained);
        let decoder = Decoder::declare(&mut declare, &settings.decoder);
        let speaker = SpeakerEncoder::declare(&mut declare, &settings.speaker);
        let discriminators = Discriminators::declare(&mut declare, &settings.discriminators, "judges.");
        // Trained by the audio loss only, a speaker encoder would give similar voices the same vector: it also classifies
        // speakers.
        let who = (!known_speaker && people > 1).then(|| {
            let bound = 1.0 / (settings.speaker.result as f32).sqrt();
            declare.same("judges.speakers", &[people, settings.speaker.result], Init::Uniform(bound), false)
        });
        let (layout, released) = declare.finish();
        (Networks { decoder, speaker, discriminators, who, known_speaker }, layout, released)
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            decoder: &self.decoder,
            speakers: &self.speaker,
            discriminators: &self.discriminators,
            who: self.who,
            known_speaker: self.known_speaker,
        }
    }
}

/// The options of the stage's engine.
fn options(settings: &DecoderSettings, recipe: &Recipe) -> EngineOptions {
    let training = match recipe.ema_decay {
        Some(_) => Training::AdamWithAverage,
        None => Training::Adam,
    };
    EngineOptions { training, mode: settings.mode, seed: settings.seed, ..EngineOptions::default() }
}

impl DecoderStage {
    /// Builds the stage on `source` and `clips`, the GPT's latents of its records. It trains on its slice of every batch.
    /// Batch norms of a speaker encoder in training use the statistics of these rows only; the running statistics of the
    /// first replica are kept.
    pub fn new(
        slice: ReplicaSlice,
        settings: DecoderSettings,
        recipe: Recipe,
        machine: ComputeDevice,
        source: Arc<dyn RecordSource>,
        clips: Arc<Clips>,
        model: &Model,
    ) -> Result<DecoderStage, TrainError> {
        let known_speaker = model.has(SPEAKER);
        let (networks, layout, released) =
            Networks::declare(&settings, &recipe, known_speaker, source.speakers().len());
        let options = options(&settings, &recipe);
        let mut engine = Engine::new(machine.device, layout, machine.precision, options)?;
        if model.has(DECODER) || known_speaker {
            model.fill(&mut engine, &released)?;
        }
        super::start_average(&mut engine, recipe.ema_decay.is_some())?;
        let mut make = |what| {
            let parts = networks.parts();
            step::ready(&mut engine, &settings, &recipe, parts, what, &slice)
        };
        let (adversarial, plain, measure) =
            (make(ProgramKind::Adversarial)?, make(ProgramKind::Plain)?, make(ProgramKind::Measured)?);
        let bad_validation = Quarantine::new(settings.feeding.failures);
        Ok(DecoderStage {
            settings,
            slice,
            recipe,
            engine,
            released,
            source,
            clips,
            plain,
            adversarial,
            measure,
            feed: None,
            notes: Notes::default(),
            bad_validation,
        })
    }

    /// The feed, positioned before step `step`.
    fn feed(&mut self, step: u64) -> Result<&mut Feed<Vec<u32>>, TrainError> {
        if self.feed.as_ref().is_none_or(|feed| feed.upcoming() != step) {
            self.feed = None;
            let own = self.slice.rows(self.settings.rows as u32)? as usize;
            let mut sampler = BatchSampler {
                clips: Arc::clone(&self.clips),
                source: Arc::clone(&self.source),
                inputs: self.plain.inputs.clone(),
                slice: self.slice.rank() as usize * own..(self.slice.rank() as usize + 1) * own,
                quarantine: Quarantine::new(self.settings.feeding.failures),
                notes: self.notes.clone(),
            };
            let bytes = sampler.inputs.image.bytes();
            let maker = Box::new(move |step, into: &mut [u8], _: &mut BatchCost| {
                Ok((bytes, sampler.fill(step, into)?))
            });
            let feeding = self.settings.feeding;
            self.feed = Some(feeding.start("feed decoder", &self.engine, bytes, step, maker)?);
        }
        Ok(self.feed.as_mut().expect("started above"))
    }

    fn is_adversarial(&self, step: u64) -> bool {
        step as f64 >= self.settings.discriminators_from * self.recipe.steps as f64
    }
}

impl StageCore for DecoderStage {
    fn kind(&self) -> StageKind {
        StageKind::Decoder
    }

    fn described(&self) -> Vec<String> {
        let DecoderSettings { decoder, window, rows, .. } = &self.settings;
        let mut lines = vec![
            format!(
                "decoder of {} channels, with discriminators and speaker encoder: {:.1} M trained parameters",
                decoder.channels,
                self.engine.layout().trained_count() as f64 / 1e6
            ),
            format!(
                "{} clips, {rows} windows of {:.2} s per batch; memory {}, and a temporary file of {} for the \
                 GPT's states",
                self.clips.train.len(),
                decoder.samples_of(*window) as f64 / decoder.wave_rate as f64,
                memory_size(self.engine.memory().total() as u64),
                memory_size(self.clips.latents.file_bytes())
            ),
        ];
        if let Some(&first) = self.clips.left_out.first() {
            let (count, id) = (self.clips.left_out.len(), self.clip(first));
            lines.push(format!(
                "{count} clips are left out, such as {id}: shorter than a window, or too long for the GPT"
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

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let [mel, discriminator, generator, features] = [0, 1, 2, 3].map(|i| f64::from(report.notes[i]));
        let mut numbers = vec![("mel", mel)];
        if self.plain.inputs.who.is_some() {
            numbers.push(("who", f64::from(report.notes[4])));
        }
        if discriminator != 0.0 {
            numbers.extend([
                ("discriminator", discriminator),
                ("generator", generator),
                ("feature_matching", features),
            ]);
        }
        numbers
    }

    fn objective(&self, step: u64) -> u64 {
        // Discriminators optimise more than the mel distance, and no score here measures that: once they have joined, the
        // last weights are the best.
        if step > 0 && self.is_adversarial(step - 1) { step } else { 0 }
    }

    fn is_averaged(&self, parameter: ParameterId) -> bool {
        // Running statistics of batch norms belong to the weights, not to their averages: the two must not be mixed.
        let of_speaker = |tensor: &&Released| tensor.name.starts_with(SPEAKER_ENCODER);
        !self.released.iter().filter(of_speaker).any(|tensor| tensor.id == parameter)
    }

    fn epoch_steps(&self) -> u64 {
        (self.clips.train.len() / self.settings.rows).max(1) as u64
    }

    fn clip(&self, record: u32) -> String {
        self.source.id(record as usize)
    }

    fn position(&self, step: u64) -> Value {
        // The windows of a step depend only on its number and on the clips.
        let rows = position(&*self.source, WAVEFORM);
        let mut hasher = blake3::Hasher::new();
        for clip in &self.clips.train {
            hasher.update(&clip.record.to_le_bytes());
            hasher.update(&self.source.rows(clip.record as usize, rows).to_le_bytes());
        }
        let balance = self.settings.balance;
        let mut position =
            json!({ "step": step, "clips": hasher.finalize().to_string(), "balance": balance });
        if !self.settings.order.shuffled {
            position["order"] = json!("fixed");
        }
        position
    }

    fn finish(&self, model: &mut Model, average: bool) -> Result<(), TrainError> {
        let named = |part: &str| -> Vec<Released> {
            self.released.iter().filter(|tensor| tensor.name.starts_with(part)).cloned().collect()
        };
        let (decoder, speaker) = (named("hifigan_decoder.waveform_decoder."), named(SPEAKER_ENCODER));
        model.take(
            DECODER,
            json!({ "channels": self.settings.decoder.channels }),
            &self.engine,
            &decoder,
            average,
        )?;
        model.take(SPEAKER, json!({ "result": self.settings.speaker.result }), &self.engine, &speaker, false)
    }
}

impl Stage for DecoderStage {
    fn core(&self) -> &dyn StageCore {
        self
    }

    fn core_mut(&mut self) -> &mut dyn StageCore {
        self
    }

    fn submit(&mut self, step: u64, control: &Control) -> Result<Submitted, TrainError> {
        let waiting = self.slice.waits_for_batch();
        let mut fed = self.feed(step)?.next_batch()?;
        drop(waiting);
        let adversarial = self.is_adversarial(step);
        let ready = if adversarial { &mut self.adversarial } else { &mut self.plain };
        let first = if ready.program.has_run() { None } else { self.slice.first_run() };
        self.engine.take(&ready.program, &mut fed.slot)?;
        let mut measured = Measured::default();
        if let Some(feed) = &mut self.feed {
            measured = feed.measured();
            feed.give_back(fed.slot);
        }
        let ticket = self.engine.submit(&mut ready.program, control)?;
        drop(first);
        // Not the number of records: those include reference clips.
        let rows = self.slice.rows(self.settings.rows as u32)?;
        let shape = [rows as usize, usize::from(adversarial), self.settings.window];
        let (rows, records) = (u64::from(rows), fed.what);
        let waited = measured.last_wait;
        Ok(Submitted { ticket, rows, records, shape, waited, fed: measured, notes: self.notes.take() })
    }

    fn replay(
        &mut self,
        [_, adversarial, _]: [usize; 3],
        control: &Control,
    ) -> Result<Option<Ticket>, TrainError> {
        let ready = if adversarial > 0 { &mut self.adversarial } else { &mut self.plain };
        Ok(Some(self.engine.submit(&mut ready.program, control)?))
    }

    fn profile(
        &mut self,
        [_, adversarial, _]: [usize; 3],
        control: &Control,
    ) -> Result<Vec<OpTime>, TrainError> {
        let ready = if adversarial > 0 { &mut self.adversarial } else { &mut self.plain };
        Ok(self.engine.profile(&mut ready.program, control)?)
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        if self.clips.held_out.is_empty() {
            return Ok(None);
        }
        let (settings, held_out) = (&self.settings, &self.clips.held_out);
        let (uploader, step) = (self.engine.uploader(Upload::WithStep)?, self.engine.state()?.steps);
        let inputs = self.measure.inputs.clone();
        let mut slot = uploader.slot(inputs.image.bytes())?;
        let (mut sum, mut passes) = (0.0, 0.0);
        self.bad_validation.restart();
        for from in (0..held_out.len()).step_by(settings.rows) {
            let (mut rows, mut bad) = (RowBuffers::default(), BadClips::default());
            for row in 0..settings.rows {
                bad.begin_row();
                // The last pass is filled up from the start; a bad clip is replaced by the next one.
                let mut next = (0..held_out.len()).map(|i| &held_out[(from + row + i) % held_out.len()]);
                loop {
                    let Some(clip) = next.next() else { return Err(bad.no_substitute(step, row)) };
                    let start = (clip.rows - settings.window) / 2;
                    if bad.is_read(clip, rows.push_target(&self.clips, &*self.source, clip, start))? {
                        if bad.is_read(clip, rows.push_reference(settings, &*self.source, clip, 0))? {
                            break;
                        }
                        rows.pop_target(settings);
                    }
                }
            }
            bad.count(&mut self.bad_validation, step, settings.rows as u64, &self.notes)?;
            inputs.write(&rows, slot.bytes()?);
            uploader.send(&mut slot, inputs.image.bytes())?;
            self.engine.take(&self.measure.program, &mut slot)?;
            let ticket = self.engine.submit(&mut self.measure.program, &Control::default())?;
            sum += f64::from(self.engine.wait(ticket)?.loss);
            passes += 1.0;
        }
        let mel = sum / passes;
        Ok(Some(Validation { score: mel, loss: mel, numbers: vec![("mel", mel)] }))
    }
}
