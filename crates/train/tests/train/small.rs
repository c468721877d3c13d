//! Tiny stages on synthetic clips, whose steps take almost no time; and runs of one such stage.

use half::bf16;
use myxtts_data::batch::Rows;
use myxtts_data::loader::FailureBudget;
use myxtts_data::problem::{Problem, ProblemKind, Severity};
use myxtts_data::record::{COLUMNS, Column, Dtype, RecordError, RecordSource, TOKENS, WAVEFORM};
use myxtts_data::utterance::Origin;
use myxtts_model::decoder::{DecoderSizes, Residual};
use myxtts_model::discriminator::{DiscriminatorSizes, Layer};
use myxtts_model::dvae::DvaeSizes;
use myxtts_model::speaker::{SpeakerLayer, SpeakerSizes};
use myxtts_model::{GptSizes, Masks};
use myxtts_run::config::{HostResources, Sources};
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Plan, Recipe, StageKind};
use myxtts_run::progress::{Progress, StepProgress};
use myxtts_tensor::engine::Arena;
use myxtts_tensor::{Device, Mode};
use myxtts_train::align::Aligned;
use myxtts_train::evaluate::listener::Listener;
use myxtts_train::feed::FeedSettings;
use myxtts_train::overlay::WithCodes;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::samples::Samples;
use myxtts_train::session::{Session, StageEnd, StageOutcome};
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::clips::Clips as DecoderClips;
use myxtts_train::stages::decoder::{DecoderSettings, DecoderStage};
use myxtts_train::stages::dvae::{DvaeSettings, DvaeStage};
use myxtts_train::stages::gpt::{GptSettings, GptStage, Regularization};
use myxtts_train::stages::latent_file::LatentFile;
use myxtts_train::stages::{self, Stage};
use myxtts_train::{ComputeDevice, Model, TrainError};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use super::tiny;

pub const CLIPS: usize = 6;
const FRAMES: usize = 40;
const CODES: usize = 10;

/// Synthetic clips of two speakers. One column of one clip may be NaN.
#[derive(Clone, Copy, Default)]
pub struct Clips {
    pub poisoned: Option<(usize, Column)>,
    /// Whether every clip has its own speaker.
    pub alone: bool,
    /// A clip that is damaged once the flag is set: a stage reads every clip when it is built.
    pub damaged: Option<(usize, &'static AtomicBool)>,
    /// The only column of that clip that is damaged; every one where it is `None`.
    pub damaged_column: Option<Column>,
    /// Number of reads until the disk fails.
    pub reads_left: Option<&'static AtomicI64>,
    /// Number of validation clips, the last ones; one if it is 0.
    pub validation: usize,
    /// Number of clips, the first ones, that are four times as long as the others.
    pub long: usize,
}

impl Clips {
    pub fn poisoned(record: usize, column: Column) -> Clips {
        Clips { poisoned: Some((record, column)), ..Clips::default() }
    }
}

impl RecordSource for Clips {
    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn len(&self) -> usize {
        CLIPS
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        let frames = if record < self.long { 4 * FRAMES } else { FRAMES };
        match COLUMNS[column] {
            TOKENS => 7,
            WAVEFORM => (frames * 256 * 24_000 / 22_050) as u32,
            _ => frames as u32,
        }
    }

    fn speaker(&self, record: usize) -> u32 {
        if self.alone { record as u32 } else { record as u32 % 2 }
    }

    fn language(&self, _record: usize) -> u32 {
        0
    }

    fn speakers(&self) -> &[String] {
        static NAMES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
        let names = NAMES.get_or_init(|| (0..CLIPS).map(|i| format!("speaker-{i}")).collect());
        &names[..if self.alone { CLIPS } else { 2 }]
    }

    fn languages(&self) -> &[String] {
        &self.speakers()[..1]
    }

    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }

    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let is_damaged = self.damaged_column.is_none_or(|bad| bad == COLUMNS[column]);
        if is_damaged
            && self.damaged.is_some_and(|(bad, since)| bad == record && since.load(Ordering::Relaxed))
        {
            return Err(RecordError::Bad(Problem {
                kind: ProblemKind::DamagedRecord,
                severity: Severity::Error,
                id: Some(self.id(record)),
                origin: Origin { file: "clips".into(), line: None },
                detail: "its checksum does not match".to_owned(),
            }));
        }
        if self.reads_left.is_some_and(|left| left.fetch_sub(1, Ordering::Relaxed) <= 0) {
            let source = std::io::Error::other("the disk is gone");
            return Err(RecordError::Io { id: self.id(record), source });
        }
        let described = COLUMNS[column];
        let there = self.rows(record, column).saturating_sub(first) as usize;
        let rows = (out.len() / described.row_bytes()).min(there);
        for (i, bytes) in
            out[..rows * described.row_bytes()].chunks_exact_mut(described.dtype.size()).enumerate()
        {
            let at = first as usize * described.width as usize + i;
            let wave = (at as f32 * 0.37 + record as f32).sin();
            match described.dtype {
                Dtype::I16 => bytes.copy_from_slice(&((wave * 9000.0) as i16).to_le_bytes()),
                Dtype::I32 => bytes.copy_from_slice(&((at + record) as i32 % 9 + 1).to_le_bytes()),
                Dtype::F32 => {
                    let poisoned = self.poisoned == Some((record, described));
                    let x = if poisoned { f32::NAN } else { -6.0 + 3.0 * wave };
                    bytes.copy_from_slice(&x.to_le_bytes());
                }
            }
        }
        Ok(rows as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        [7; 32]
    }
}

/// Settings of a run that keeps few files.
pub fn plan(kind: StageKind, steps: u64) -> Plan {
    let mut plan = Plan::resolve(&Sources::for_host(HostResources::detect())).unwrap();
    plan.training.checkpoint_every = 0;
    plan.training.validate_every = Some(0);
    match kind {
        StageKind::Dvae => plan.training.dvae_steps = Some(steps),
        StageKind::Gpt => plan.training.gpt_steps = Some(steps),
        StageKind::Decoder => plan.training.decoder_steps = Some(steps),
    }
    plan
}

/// Settings of a GPT for these clips.
pub fn gpt_settings(accumulate: u64) -> GptSettings {
    // A head of 32 channels: fewer have no kernel on a GPU.
    let mut sizes = GptSizes::of(1, 32, 1, 24, 8);
    (sizes.max_text, sizes.max_audio, sizes.start_text) = (30, 20, 23);
    GptSettings {
        sizes,
        rows: Rows::Fixed(2),
        frames: 24,
        masks: Masks::Corrected,
        accumulate,
        mode: Mode::Captured,
        feeding: Default::default(),
        balance: 1.0,
        order: Default::default(),
        lengths: Default::default(),
        conditioning: Default::default(),
        start_delay: None,
        seed: 3,
        memory_limit: None,
        freeze_layers: 0,
        lora_rank: None,
        regularization: Default::default(),
    }
}

/// Settings of a DVAE with a few thousand parameters.
pub fn dvae_settings() -> DvaeSettings {
    DvaeSettings {
        sizes: DvaeSizes { hidden: 8, blocks: 1, codes: 32, code_width: 8, ..DvaeSizes::v2() },
        rows: 2,
        frames: 16,
        mode: Mode::Captured,
        feeding: Default::default(),
        balance: 1.0,
        order: Default::default(),
        seed: 3,
        memory_limit: None,
        token_targets: None,
        mels: None,
    }
}

/// A DVAE of a run from its beginning, on one device.
pub fn dvae_stage(
    settings: DvaeSettings,
    plan: &Plan,
    source: Arc<dyn RecordSource>,
    split: RecordSplit<'_>,
    machine: ComputeDevice,
    model: &Model,
) -> Result<DvaeStage, TrainError> {
    let recipe = plan.recipe(StageKind::Dvae, false);
    DvaeStage::new(ReplicaSlice::WHOLE, settings, recipe, machine, source, split, model)
}

/// A GPT that starts from a model: all of it is trained, or adapters of the given rank.
pub fn fine_tuned_gpt(plan: &Plan, lora_rank: Option<usize>, machine: ComputeDevice) -> Box<dyn Stage> {
    let mut model = Model::default();
    model.set("mel_stats", &[80], &[5.0; 80]);
    stage(StageKind::Gpt, plan, Clips::default(), 1, ComputeDevice::CPU).finish(&mut model, false).unwrap();
    let settings = GptSettings { lora_rank, ..gpt_settings(1) };
    gpt_stage(settings, plan.recipe(StageKind::Gpt, true), Clips::default(), machine, &model)
}

/// A GPT with an acoustic head, whose rows are joined from segments of clips. `budget` is the share of records that may be bad.
pub fn joining_gpt(clips: Clips, budget: f64, steps: u64) -> Box<dyn Stage> {
    // A language, and three words of one letter. Two words are a segment, and two segments a row.
    let aligned = Aligned {
        tokens: vec![6, 7, 0, 7, 0, 7],
        at_code: vec![1, 1, 1, 1, 3, 5, 5, 5, 5, 5],
        words: vec![(1, 0), (3, 4), (5, 5)],
    };
    let alignments = (0..CLIPS as u32 - 1).map(|record| (record, aligned.clone())).collect();
    let feeding =
        FeedSettings { failures: FailureBudget { rate: budget, probation: 0 }, ..FeedSettings::default() };
    let regularization = Regularization {
        recombination: 1.0,
        acoustic_weight: 1.0,
        alignments: Some(Arc::new(alignments)),
        ..Regularization::default()
    };
    let settings = GptSettings { feeding, regularization, ..gpt_settings(1) };
    let mut model = Model::default();
    model.set("mel_stats", &[80], &[5.0; 80]);
    let recipe = plan(StageKind::Gpt, steps).recipe(StageKind::Gpt, false);
    gpt_stage(settings, recipe, clips, ComputeDevice::CPU, &model)
}

fn gpt_stage(
    settings: GptSettings,
    recipe: Recipe,
    clips: Clips,
    machine: ComputeDevice,
    model: &Model,
) -> Box<dyn Stage> {
    let records: Vec<u32> = (0..CLIPS as u32 - 1).collect();
    let sides = RecordSplit { train: &records, validation: &[CLIPS as u32 - 1] };
    let codes = (0..CLIPS).map(|i| (0..CODES).map(|j| ((i + j) % 8) as i32).collect()).collect();
    let source = Arc::new(WithCodes::new(Arc::new(clips), codes));
    Box::new(GptStage::new(ReplicaSlice::WHOLE, settings, recipe, machine, source, sides, model).unwrap())
}

/// A stage on these clips. With `accumulate`, a GPT step has that many batches.
pub fn stage(
    kind: StageKind,
    plan: &Plan,
    clips: Clips,
    accumulate: u64,
    machine: ComputeDevice,
) -> Box<dyn Stage> {
    let recipe = plan.recipe(kind, false);
    let records: Vec<u32> = (0..CLIPS as u32).collect();
    let (train, validation) = records.split_at(CLIPS - clips.validation.max(1));
    let sides = RecordSplit { train, validation };
    let mut model = Model::default();
    let source = Arc::new(clips);
    match kind {
        StageKind::Dvae => {
            Box::new(dvae_stage(dvae_settings(), plan, source, sides, machine, &model).unwrap())
        }
        StageKind::Gpt => {
            model.set("mel_stats", &[80], &[5.0; 80]);
            gpt_stage(gpt_settings(accumulate), recipe, clips, machine, &model)
        }
        StageKind::Decoder => {
            let layers = [1, 2, 2, 2].map(|stride| SpeakerLayer { blocks: 1, channels: 8, stride }).to_vec();
            let residuals = vec![Residual { taps: 3, dilations: vec![1] }];
            let layer = Layer { channels: 8, taps: 5, stride: 3, groups: 1 };
            let discriminators = DiscriminatorSizes {
                periods: vec![2],
                period_layers: vec![layer],
                scales: 1,
                scale_layers: vec![layer],
            };
            let settings = DecoderSettings {
                decoder: DecoderSizes { residuals, ..tiny::decoder_sizes() },
                speaker: SpeakerSizes { mels: 64, layers, reduction: 4, attention: 8, result: 16 },
                discriminators,
                rows: 2,
                window: 2,
                speaker_frames: 32,
                // Discriminators join after half of the steps.
                discriminators_from: 0.5,
                mel_weight: 45.0,
                mode: Mode::Captured,
                feeding: Default::default(),
                balance: 1.0,
                order: Default::default(),
                seed: 3,
                memory_limit: None,
            };
            let latent = |i: usize, j: usize| bf16::from_f32(((i * 7 + j) as f32 * 0.61).sin());
            let mut latents = LatentFile::create(&std::env::temp_dir(), tiny::WIDTH, CLIPS).unwrap();
            for i in 0..CLIPS {
                let own: Vec<bf16> = (0..(CODES + 1) * tiny::WIDTH).map(|j| latent(i, j)).collect();
                latents.append(i, &own).unwrap();
            }
            let clips = Arc::new(DecoderClips::load(&settings, &*source, latents, sides).unwrap());
            Box::new(
                DecoderStage::new(ReplicaSlice::WHOLE, settings, recipe, machine, source, clips, &model)
                    .unwrap(),
            )
        }
    }
}

/// Every bit that a checkpoint would contain of a stage.
pub fn everything(stage: &dyn Stage) -> Vec<Vec<u32>> {
    let engine = stage.engine();
    let mut all: Vec<Vec<u32>> = [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average]
        .into_iter()
        .filter(|&arena| engine.holds(arena))
        .map(|arena| engine.read_arena(arena).unwrap().iter().map(|x| x.to_bits()).collect())
        .collect();
    all.push(vec![engine.state().unwrap().steps as u32]);
    all
}

/// The messages of a run, and the step at which it is asked to stop.
struct Said {
    lines: Mutex<Vec<String>>,
    until: u64,
    stop: Arc<AtomicBool>,
}

impl Progress for Said {
    fn step(&self, progress: &StepProgress) {
        if progress.step >= self.until {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
    fn say(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
    }
}

/// Runs a stage in the folder `run` of `runs`, from its last checkpoint if there is one, and asks it to stop after step
/// `until`; returns the messages too.
pub fn run_until(
    runs: &Path,
    plan: &Plan,
    stage: &mut dyn Stage,
    until: u64,
) -> (Result<StageEnd, TrainError>, Vec<String>) {
    run_with_samples(runs, plan, stage, until, None)
}

/// As [`run_until`], with samples during training.
pub fn run_with_samples(
    runs: &Path,
    plan: &Plan,
    stage: &mut dyn Stage,
    until: u64,
    samples: Option<&Samples<'_>>,
) -> (Result<StageEnd, TrainError>, Vec<String>) {
    let (finished, said) = run_finished(runs, plan, stage, until, samples);
    (finished.map(|finished| finished.ended), said)
}

/// As [`run_with_samples`], with the outcome of the stage.
pub fn run_finished(
    runs: &Path,
    plan: &Plan,
    stage: &mut dyn Stage,
    until: u64,
    samples: Option<&Samples<'_>>,
) -> (Result<StageOutcome, TrainError>, Vec<String>) {
    let stop = Arc::new(AtomicBool::new(false));
    let said = Said { lines: Mutex::default(), until, stop: stop.clone() };
    let finished = run_with_progress(runs, plan, stage, &said, stop, samples);
    (finished, said.lines.into_inner().unwrap())
}

/// As [`run_finished`], with the caller's `progress`; setting `stop` ends it.
pub fn run_with_progress(
    runs: &Path,
    plan: &Plan,
    stage: &mut dyn Stage,
    progress: &dyn Progress,
    stop: Arc<AtomicBool>,
    samples: Option<&Samples<'_>>,
) -> Result<StageOutcome, TrainError> {
    // Written last: without it a run has not begun.
    let folder = match runs.join("run/plan.json").exists() {
        true => RunFolder::resume(runs, "run").unwrap().0,
        false => RunFolder::create(runs, Some("run"), plan).unwrap(),
    };
    let recipe: Recipe = plan.recipe(stage.kind(), false);
    let mut session = Session::open(&folder, plan, stop, progress).unwrap();
    session.listener = Listener::of(&plan.training).unwrap();
    let last = session.last_of(stages::name(stage.kind())).unwrap();
    session.run(stage, &recipe, 0, last, samples)
}

/// Runs a stage to its end.
pub fn run(runs: &Path, plan: &Plan, stage: &mut dyn Stage) -> (Result<StageEnd, TrainError>, Vec<String>) {
    run_until(runs, plan, stage, u64::MAX)
}

/// The events of a kind that the run wrote.
pub fn events(runs: &Path, kind: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(runs.join("run/events.jsonl")).unwrap_or_default();
    let whole = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    whole.filter(|event| event["kind"] == kind).collect()
}

/// The CPU, and the first GPU if there is one; otherwise prints which test skips it and why.
pub fn machines(test: &str) -> Vec<ComputeDevice> {
    let mut all = vec![ComputeDevice::CPU];
    match ComputeDevice::choose(Some(Device::Cuda(0))) {
        Ok(machine) => all.push(machine),
        Err(reason) => println!("{test}: skipped on CUDA, no device: {reason}"),
    }
    all
}
