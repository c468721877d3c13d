//! The decoder stage: a window of the GPT's states and a speaker's vector, made the sound of that window. Mels pull the sound
//! into shape; judges that are trained along pull it towards being real.

use super::clips::{Clips, Row};
use super::latents::Latents;
use super::{Kind, Stage, Submitted, Validation};
use crate::beside::position;
use crate::error::TrainError;
use crate::feed::{Feed, Feeding, Made, Measured};
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
use myxtts_tensor::engine::{Image, Ticket, Upload};
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::ops::mel::{Log, Mel, Scale};
use myxtts_tensor::ops::stft::{Spectrum, Stft, Window};
use myxtts_tensor::{
    Backward, Control, DType, Engine, EngineOptions, Init, Mode, ParameterId, Program, Recompute, Report,
    Tape, Training, Value as Node,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

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
    /// The temperature that speakers and languages are balanced by.
    pub balance: f64,
    /// Recorded, or kernel by kernel.
    pub mode: Mode,
    /// How batches come to the device.
    pub feeding: Feeding,
    /// Every draw comes from it.
    pub seed: u64,
}

/// HiFi-GAN's weights of the two losses beside the judges'.
const MEL_WEIGHT: f32 = 45.0;
const FEATURE_WEIGHT: f32 = 1.0;
/// What cosines are multiplied with: between -1 and 1 they could not say what is certain.
const SHARPNESS: f32 = 16.0;
/// How much nearer than all others the right speaker has to be. Without it the answer is certain long before voices are
/// far apart, and then a vocoder's own sound moves a vector more than another speaker does.
const MARGIN: f32 = 0.5;

struct Ready {
    program: Program,
    inputs: Inputs,
}

/// The inputs every program has, at the same places in all of them.
#[derive(Clone)]
struct Inputs {
    image: Image,
    latents: Node,
    speaker: Node,
    wave: Node,
    /// Where the speaker encoder is to learn who speaks.
    who: Option<Asked>,
}

/// Whose each window is, and what is taken from the cosine of the right answer.
#[derive(Clone, Copy)]
struct Asked {
    targets: Node,
    margins: Node,
    people: usize,
}

/// The decoder being trained.
pub struct DecoderStage {
    settings: DecoderSettings,
    share: Share,
    recipe: Recipe,
    engine: Engine,
    released: Vec<Released>,
    source: Arc<dyn RecordSource>,
    clips: Arc<Clips>,
    plain: Ready,
    judged: Ready,
    measure: Ready,
    /// Batches, and the records in each.
    feed: Option<Feed<Vec<u32>>>,
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

    /// As `new`, for one of several replicas: it learns from its own rows of every batch. The norms of a speaker encoder
    /// that is trained take their statistics over these rows alone; the running ones that are kept are the first's.
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
        Ok(DecoderStage {
            settings,
            share,
            recipe,
            engine,
            released,
            source,
            clips,
            plain,
            judged,
            measure,
            feed: None,
        })
    }

    /// The feed, standing before step `step`.
    fn feed(&mut self, step: u64) -> Result<&mut Feed<Vec<u32>>, TrainError> {
        if self.feed.as_ref().is_none_or(|feed| feed.upcoming() != step) {
            self.feed = None;
            let (clips, inputs) = (Arc::clone(&self.clips), self.plain.inputs.clone());
            let bytes = inputs.image.bytes();
            let own = self.share.rows(self.settings.rows as u32)? as usize;
            let slice = self.share.rank() as usize * own..(self.share.rank() as usize + 1) * own;
            let maker = Box::new(move |step, into: &mut [u8], made: &mut Made| {
                let began = Instant::now();
                let rows = clips.drawn(step, slice.clone());
                inputs.fill(&clips.settings, &rows, into);
                made.filling = began.elapsed();
                let own: Vec<i32> = rows.iter().map(|row| row.0.record as i32).collect();
                let heard: Vec<i32> = rows.iter().map(|row| row.2.record as i32).collect();
                Ok((inputs.image.bytes(), super::clips(&[&own, &heard])))
            });
            let feeding = self.settings.feeding;
            self.feed = Some(feeding.start("feed decoder", &self.engine, bytes, step, maker)?);
        }
        Ok(self.feed.as_mut().expect("started above"))
    }

    fn is_judged(&self, step: u64) -> bool {
        step as f64 >= self.settings.judged_from * self.recipe.steps as f64
    }
}

impl Inputs {
    fn fill(&self, settings: &DecoderSettings, rows: &[Row<'_>], into: &mut [u8]) {
        let DecoderSettings { decoder, window, heard, .. } = settings;
        let count = decoder.samples_of(*window);
        let (mut latents, mut wave, mut speaker) = (Vec::new(), Vec::new(), Vec::new());
        for &(clip, start, other, draw) in rows {
            let from = &clip.latents[start * decoder.latent..][..window * decoder.latent];
            latents.extend(from.iter().map(|x| x.to_f32()));
            // Where the latents begin, at the rate of the waveform.
            let first = start * decoder.code_samples * decoder.wave_rate / decoder.code_rate;
            wave.extend((first..first + count).map(|i| clip.wave.get(i).copied().unwrap_or(0.0)));
            speaker.extend(window_of(&other.heard, settings.speaker.mels, *heard, draw));
        }
        self.image.write(into, self.latents, &latents);
        self.image.write(into, self.wave, &wave);
        self.image.write(into, self.speaker, &speaker);
        if let Some(Asked { targets, margins, people }) = self.who {
            let speakers: Vec<i32> = rows.iter().map(|row| row.0.speaker as i32).collect();
            self.image.write_i32(into, targets, &speakers);
            let taken = speakers.iter().flat_map(|&own| {
                (0..people).map(move |other| if other as i32 == own { -MARGIN * SHARPNESS } else { 0.0 })
            });
            self.image.write(into, margins, &taken.collect::<Vec<f32>>());
        }
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
    let asked = who.map(|table| {
        let people = engine.layout().get(table).shape.dim(0);
        let targets = tape.input([rows], DType::I32);
        let margins = tape.input([rows, people], DType::F32);
        Asked { targets, margins, people }
    });
    let inputs = Inputs { image: Image::of(&tape), latents, speaker, wave, who: asked };
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
    // An encoder that is asked who speaks learns that alone, as those of the releases did: what sound asks of it as well
    // would draw voices together that the decoder cannot tell apart yet.
    let heard = if who.is_some() { tape.detach(voice) } else { voice };
    let made = decoder.wave(&mut tape, z, heard);
    let (distance, written) = mel_distance(&mut tape, made, wave, settings.decoder.wave_rate);
    note(&mut tape, 0, distance);
    let told = who.zip(asked).filter(|_| what != What::Measured).map(|(table, asked)| {
        let table = tape.master(table);
        let Asked { targets, margins, people } = asked;
        // Both of length 1: a table that could grow would tell vectors apart that hardly differ, and leave them so.
        let table = tape.l2_normalize(table);
        let table = tape.reshape(table, [1, people, settings.speaker.result]);
        let vectors = if dtype == DType::F32 { voice } else { tape.cast(voice, DType::F32) };
        let vectors = tape.reshape(vectors, [1, rows, settings.speaker.result]);
        let cosines = tape.matmul(vectors, table, (false, true));
        let logits = tape.scale(cosines, SHARPNESS);
        let logits = tape.reshape(logits, [rows, people]);
        let logits = tape.add(logits, margins);
        let told = tape.cross_entropy(logits, targets, 0.0);
        note(&mut tape, 4, told.loss);
        told.loss
    });
    if what == What::Measured {
        tape.tell(distance);
    } else {
        let mut parts = vec![(distance, MEL_WEIGHT)];
        parts.extend(told.map(|told| (told, 1.0)));
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
    Ok(Ready { program, inputs })
}

/// Points, hop and bands of the mels that sound is compared by: with one length of window alone, clicks or hum would go
/// unheard. The longest has bands of 21 Hz, narrow enough to see the harmonics of a low voice: with wider ones any pitch is
/// as good as the right one.
const RESOLUTIONS: [(usize, usize, usize); 3] = [(512, 128, 40), (1024, 256, 80), (2048, 512, 160)];

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
                self.clips.train.len(),
                decoder.samples_of(*window) as f64 / decoder.wave_rate as f64,
                self.engine.memory().total() as f64 / (1u64 << 30) as f64
            ),
        ];
        if let Some(&first) = self.clips.left_out.first() {
            let (count, id) = (self.clips.left_out.len(), self.clip(first));
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
        let mut fed = self.feed(step)?.next_batch()?;
        let judged = self.is_judged(step);
        let ready = if judged { &mut self.judged } else { &mut self.plain };
        self.engine.take(&ready.program, &mut fed.slot)?;
        let mut measured = Measured::default();
        if let Some(feed) = &mut self.feed {
            measured = feed.measured();
            feed.give_back(fed.slot);
        }
        let ticket = self.engine.submit(&mut ready.program, control)?;
        // Not the clips that are named: those that speakers are heard by are among them.
        let rows = self.share.rows(self.settings.rows as u32)?;
        let shape = [rows as usize, usize::from(judged), self.settings.window];
        let (rows, records) = (u64::from(rows), fed.what);
        let waited = measured.last_wait;
        Ok(Submitted { ticket, rows, records, shape, waited, fed: measured, notes: Vec::new() })
    }

    fn replay(
        &mut self,
        [_, judged, _]: [usize; 3],
        control: &Control,
    ) -> Result<Option<Ticket>, TrainError> {
        let ready = if judged > 0 { &mut self.judged } else { &mut self.plain };
        Ok(Some(self.engine.submit(&mut ready.program, control)?))
    }

    fn numbers(&self, report: &Report) -> Vec<(&'static str, f64)> {
        let [mel, judged, deceived, features] = [0, 1, 2, 3].map(|i| f64::from(report.notes[i]));
        let mut numbers = vec![("mel", mel)];
        if self.plain.inputs.who.is_some() {
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
        let uploader = self.engine.uploader(Upload::InTurn)?;
        let inputs = self.measure.inputs.clone();
        let mut slot = uploader.slot(inputs.image.bytes())?;
        let (mut sum, mut passes) = (0.0, 0.0);
        for from in (0..self.clips.held_out.len()).step_by(rows) {
            // The last pass is filled up from the start.
            let row = |i: usize| {
                let clip = &self.clips.held_out[(from + i) % self.clips.held_out.len()];
                let room = clip.latents.len() / self.settings.decoder.latent - self.settings.window;
                (clip, room / 2, clip, 0)
            };
            inputs.fill(&self.settings, &(0..rows).map(row).collect::<Vec<_>>(), slot.bytes()?);
            uploader.send(&mut slot, inputs.image.bytes())?;
            self.engine.take(&self.measure.program, &mut slot)?;
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
        let balance = self.settings.balance;
        json!({ "step": step, "clips": hasher.finalize().to_string(), "balance": balance })
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
