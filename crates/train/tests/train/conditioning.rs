//! Conditioning that a device computes equals the conditioning that batches would carry: to the bit if mels are resident,
//! up to rounding if they are computed from waveforms.

use crate::small;
use crate::synthetic::{CODES, COUNT, VOCABULARY, Voices, codes};
use myxtts_data::audio::wav::encode_pcm16;
use myxtts_data::batch::Rows;
use myxtts_data::cache::AudioOverlay;
use myxtts_data::features::{Extractor, Recipe as Features};
use myxtts_data::mel::{FrontEnd, MelExtractor};
use myxtts_data::record::{CONDITIONING_MEL, Column, DVAE_MEL, RecordError, RecordSource, TOKENS};
use myxtts_data::tokenizer::{TrainOptions, train};
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_model::{GptSizes, Masks};
use myxtts_run::config::{HostResources, Sources};
use myxtts_run::plan::{Plan, Recipe, StageKind};
use myxtts_tensor::{Control, Device, Mode, Report};
use myxtts_train::align::Alignments;
use myxtts_train::bad_records::BadRecords;
use myxtts_train::feed::{Depth, FeedSettings};
use myxtts_train::overlay::WithCodes;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::replica_slice::Replicas;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::dvae::{DvaeSettings, MelDevice, TokenTargets};
use myxtts_train::stages::gpt::{Conditioning, GptForecast, GptSettings, GptStage};
use myxtts_train::stages::{Stage, StageCore};
use myxtts_train::{ComputeDevice, Model};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn settings(conditioning: Conditioning, masks: Masks) -> GptSettings {
    let mut sizes = GptSizes::of(1, 32, 2, VOCABULARY, CODES);
    (sizes.conditioning.blocks, sizes.perceiver.latents, sizes.perceiver.depth) = (1, 4, 1);
    (sizes.max_text, sizes.max_audio) = (40, 40);
    (sizes.start_text, sizes.stop_text) = (1, 2);
    GptSettings {
        sizes,
        rows: Rows::Fixed(6),
        // Longer than some clips, shorter than others.
        frames: 9,
        masks,
        accumulate: 1,
        mode: Mode::Captured,
        feeding: FeedSettings {
            depth: Some(Depth { min: 3, max: 3, bytes: 1 << 24 }),
            ..FeedSettings::default()
        },
        conditioning,
        start_delay: Some(Duration::from_millis(1)),
        lengths: Default::default(),
        balance: 1.0,
        order: Default::default(),
        seed: 7,
        memory_limit: None,
        freeze_layers: 0,
        lora_rank: None,
        regularization: Default::default(),
    }
}

/// Training records and validation records.
fn sides() -> (Vec<u32>, Vec<u32>) {
    ((0..36).collect(), (36..40).collect())
}

fn recipe() -> Recipe {
    Plan::resolve(&Sources::for_host(HostResources::detect())).unwrap().recipe(StageKind::Gpt, false)
}

/// A stage after some steps with one source of conditioning, and their reports.
fn trained(
    source: Arc<dyn RecordSource>,
    conditioning: Conditioning,
    masks: Masks,
) -> (GptStage, Vec<Report>) {
    let source = Arc::new(WithCodes::new(source, (0..COUNT).map(codes).collect()));
    let mut model = Model::default();
    let stats: Vec<f32> = (0..80).map(|band| 2.0 + band as f32 * 0.03).collect();
    model.set("mel_stats", &[80], &stats);
    let ((train, held_out), settings) = (sides(), settings(conditioning, masks));
    let mut stage = GptStage::new(
        ReplicaSlice::WHOLE,
        settings,
        recipe(),
        ComputeDevice::CPU,
        source,
        RecordSplit { train: &train, validation: &held_out },
        &model,
    )
    .unwrap();
    let mut reports = Vec::new();
    for step in 0..8 {
        let control = Control { rate: 1e-3, seed: 5 + step, ..Control::default() };
        let queued = stage.submit(step, &control).unwrap();
        reports.push(stage.wait(queued.ticket).unwrap());
    }
    let held_out = stage.validate().unwrap().unwrap();
    assert!(held_out.score.is_finite());
    (stage, reports)
}

/// As [`trained`]: reports, the stage's description, and its position in the data.
fn learnt(
    source: Arc<dyn RecordSource>,
    conditioning: Conditioning,
    masks: Masks,
) -> (Vec<Report>, Vec<String>, serde_json::Value) {
    let (stage, reports) = trained(source, conditioning, masks);
    (reports, stage.described(), stage.position(8))
}

#[test]
fn resident_mels_equal_those_that_batches_carry() {
    for masks in [Masks::Corrected, Masks::Coqui] {
        let all = Conditioning::Resident { at_most: 1.0 };
        let fed = learnt(Arc::new(Voices { broken: None }), Conditioning::Batch, masks);
        let kept = learnt(Arc::new(Voices { broken: None }), all, masks);
        let bits = |reports: &[Report]| {
            reports.iter().map(|r| (r.loss.to_bits(), r.norm.to_bits())).collect::<Vec<_>>()
        };
        assert_eq!(bits(&fed.0), bits(&kept.0), "{masks:?}");
        assert!(kept.1.iter().any(|line| line.contains("resident on the device")), "{:?}", kept.1);
        assert!(!fed.1.iter().any(|line| line.contains("resident on the device")), "{:?}", fed.1);
        assert_eq!(fed.2, kept.2, "a run can resume with the other source");
    }
    // Too much for the device: batches carry them.
    let none = Conditioning::Resident { at_most: 0.0 };
    let (_, said, _) = learnt(Arc::new(Voices { broken: None }), none, Masks::Corrected);
    assert!(!said.iter().any(|line| line.contains("resident on the device")), "{said:?}");
}

/// Clips whose mels, for conditioning and for the DVAE, come from audio files.
struct Sung([Vec<Vec<f32>>; 2]);

impl Sung {
    /// Writes the clips to `folder`, `times` as long as the shortest; returns them with their utterances.
    fn in_folder(folder: &Path, times: usize) -> (Sung, Vec<Utterance>) {
        let mut extractors = [FrontEnd::Conditioning, FrontEnd::Dvae].map(MelExtractor::new);
        let (mut mels, mut utterances) = ([Vec::new(), Vec::new()], Vec::new());
        for clip in 0..COUNT {
            let tone = |i: usize| {
                let t = i as f32 / 22_050.0;
                let pitch = 90.0 + 11.0 * clip as f32;
                (0.4 * (std::f32::consts::TAU * pitch * t).sin() + 0.2 * (40.0 * pitch * t * t).sin())
                    * (0.3 + 0.7 * (9.0 * t).cos())
            };
            // Multiples of what 16 bits can represent, so that the file has exactly these samples.
            let samples: Vec<f32> = (0..times * (1300 + 190 * (clip % 13)))
                .map(|i| (tone(i) * 32_768.0).round() / 32_768.0)
                .collect();
            let audio = folder.join(format!("{clip}.wav"));
            std::fs::write(&audio, encode_pcm16(&samples, 22_050)).unwrap();
            let decoded = myxtts_data::audio::decode(&audio).unwrap().clip.samples;
            for (extractor, mels) in extractors.iter_mut().zip(&mut mels) {
                let mut mel = Vec::new();
                extractor.compute(&decoded, &mut mel);
                mels.push(mel);
            }
            utterances.push(Utterance {
                id: format!("clip-{clip}"),
                origin: Origin { file: audio.clone(), line: None },
                audio,
                text: "a".into(),
                speaker: "one".into(),
                language: "en".into(),
            });
        }
        (Sung(mels), utterances)
    }
}

impl RecordSource for Sung {
    fn columns(&self) -> &[Column] {
        &[TOKENS, CONDITIONING_MEL, DVAE_MEL]
    }

    fn len(&self) -> usize {
        COUNT
    }

    fn rows(&self, record: usize, column: usize) -> u32 {
        match column {
            0 => Voices { broken: None }.rows(record, 0),
            _ => (self.0[column - 1][record].len() / 80) as u32,
        }
    }

    fn speaker(&self, record: usize) -> u32 {
        // One speaker has a single clip, which conditions itself.
        u32::from(record == 5)
    }

    fn language(&self, _record: usize) -> u32 {
        0
    }

    fn speakers(&self) -> &[String] {
        static NAMES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
        NAMES.get_or_init(|| vec!["one".into(), "other".into()])
    }

    fn languages(&self) -> &[String] {
        &self.speakers()[..1]
    }

    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }

    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        if column == 0 {
            return Voices { broken: None }.read(record, 0, first, out);
        }
        let from: &[u8] = bytemuck::cast_slice(&self.0[column - 1][record][first as usize * 80..]);
        let bytes = from.len().min(out.len());
        out[..bytes].copy_from_slice(&from[..bytes]);
        Ok((bytes / CONDITIONING_MEL.row_bytes()) as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        [11; 32]
    }
}

/// Clips in a folder, with mels and with waveforms.
fn with_sound(folder: &Path, times: usize) -> (Arc<dyn RecordSource>, Arc<AudioOverlay>) {
    let (sung, utterances) = Sung::in_folder(folder, times);
    let source: Arc<dyn RecordSource> = Arc::new(sung);
    let features = Features { trim_db: None, min_seconds: 0.0, ..Features::default() };
    let tokenizer = train([("en", "a"), ("en", "ab ab")], &TrainOptions::default()).unwrap();
    let extractor = Extractor::new(features, tokenizer);
    let waveforms =
        AudioOverlay::new(source.clone(), utterances, AudioOverlay::audio_extractor(&extractor).unwrap())
            .unwrap();
    (source, Arc::new(waveforms))
}

#[test]
fn mels_computed_on_a_device_equal_those_of_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (source, waveforms) = with_sound(folder.path(), 1);
    for masks in [Masks::Corrected, Masks::Coqui] {
        let fed = learnt(source.clone(), Conditioning::Batch, masks);
        let sound = Conditioning::Waveforms { device: Device::Cpu, waveforms: waveforms.clone() };
        let made = learnt(source.clone(), sound, masks);
        for (step, (a, b)) in fed.0.iter().zip(&made.0).enumerate() {
            assert!(a.good && b.good);
            assert!((a.loss - b.loss).abs() < 2e-4 * a.loss, "{masks:?}, step {step}: {} {}", a.loss, b.loss);
            assert!((a.norm - b.norm).abs() < 2e-3 * a.norm, "{masks:?}, step {step}: {} {}", a.norm, b.norm);
        }
        assert!(made.1.iter().any(|line| line.contains("computed on cpu")), "{:?}", made.1);
        assert!(made.1.iter().any(|line| line.contains("3 batches are ready")), "{:?}", made.1);
        assert_eq!(fed.2, made.2, "a run can resume with the other source");
    }
}

#[test]
fn a_missing_device_leaves_batches_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (sung, _) = Sung::in_folder(folder.path(), 1);
    let source: Arc<dyn RecordSource> = Arc::new(sung);
    let gone = Conditioning::Waveforms { device: Device::Cuda(63), waveforms: source.clone() };
    let (reports, said, _) = learnt(source.clone(), gone, Masks::Corrected);
    let (fed, ..) = learnt(source, Conditioning::Batch, Masks::Corrected);
    assert_eq!(reports.last().unwrap().loss.to_bits(), fed.last().unwrap().loss.to_bits());
    assert!(said.iter().any(|line| line.contains("cannot prepare batches")), "{said:?}");
}

/// Computing conditioning takes memory in addition to the model: as much as forecast before there was a stage.
#[test]
fn conditioning_on_the_device_is_in_the_forecast() {
    let folder = tempfile::tempdir().unwrap();
    let (source, waveforms) = with_sound(folder.path(), 1);
    let (train, held_out) = sides();
    let coded = WithCodes::new(source.clone(), (0..COUNT).map(codes).collect());
    let planned = |conditioning: Conditioning, memory: u64| {
        let settings = settings(conditioning, Masks::Corrected);
        let sides = RecordSplit { train: &train, validation: &held_out };
        GptForecast::new(
            settings,
            recipe(),
            Replicas { machine: ComputeDevice::CPU, count: 1 },
            &coded,
            sides,
        )
        .on_memory_of(memory)
        .planned(6, 1)
        .unwrap()
    };
    let fed = planned(Conditioning::Batch, u64::MAX);
    let resident = Conditioning::Resident { at_most: 1.0 / 16.0 };
    let sound = Conditioning::Waveforms { device: Device::Cpu, waveforms };
    let table = 4 * 80 * (0..COUNT).map(|record| u64::from(source.rows(record, 1))).sum::<u64>();
    for (conditioning, least) in [(resident.clone(), table), (sound, 1)] {
        let (stage, _) = trained(source.clone(), conditioning.clone(), Masks::Corrected);
        let beside = stage.held() - stage.engine().memory().total() as u64;
        assert!(beside > least, "{conditioning:?}: {beside} of {least} bytes");
        assert_eq!(planned(conditioning, u64::MAX) - fed, beside);
        assert!(fed >= stage.engine().memory().total() as u64);
    }
    // If it would exceed its share, batches carry it.
    assert_eq!(planned(resident.clone(), 16 * table), fed);
    assert!(planned(resident, 17 * table) > fed);
    let (stage, _) = trained(source, Conditioning::Batch, Masks::Corrected);
    assert_eq!(stage.held(), stage.engine().memory().total() as u64);
    // On another device it takes no memory of the model's device.
    let away =
        Conditioning::Waveforms { device: Device::Cuda(1), waveforms: Arc::new(Voices { broken: None }) };
    assert_eq!(planned(away, u64::MAX), fed);
}

/// A DVAE after some steps with one source of mels: reports, description, position in the data, and validation.
fn dvae_learnt(
    source: &Arc<dyn RecordSource>,
    mels: Option<MelDevice>,
    spoken: Option<TokenTargets>,
) -> (Vec<Report>, Vec<String>, serde_json::Value, f64) {
    let feeding =
        FeedSettings { depth: Some(Depth { min: 3, max: 3, bytes: 1 << 24 }), ..FeedSettings::default() };
    // Longer than some clips, shorter than others.
    let settings =
        DvaeSettings { rows: 4, frames: 64, mels, token_targets: spoken, feeding, ..small::dvae_settings() };
    let (train, held_out) = sides();
    let plan = small::plan(StageKind::Dvae, 8);
    let (model, sides) = (Model::default(), RecordSplit { train: &train, validation: &held_out });
    let mut stage =
        small::dvae_stage(settings, &plan, source.clone(), sides, ComputeDevice::CPU, &model).unwrap();
    let mut reports = Vec::new();
    for step in 0..8 {
        let control = Control { rate: 1e-3, seed: step, ..Control::default() };
        stage.between(step).unwrap();
        let queued = stage.submit(step, &control).unwrap();
        reports.push(stage.wait(queued.ticket).unwrap());
    }
    let score = stage.validate().unwrap().unwrap().score;
    (reports, stage.described(), stage.position(8), score)
}

/// The delay was printed, and no test would have noticed a model that starts at once.
#[test]
fn the_first_step_waits_for_the_start_delay() {
    let delay = Duration::from_secs(3);
    let source = Arc::new(WithCodes::new(Arc::new(Voices { broken: None }), (0..COUNT).map(codes).collect()));
    let mut model = Model::default();
    model.set("mel_stats", &[80], &[2.0; 80]);
    let (train, held_out) = sides();
    let sides = RecordSplit { train: &train, validation: &held_out };
    let settings =
        GptSettings { start_delay: Some(delay), ..settings(Conditioning::Batch, Masks::Corrected) };
    let cpu = ComputeDevice::CPU;
    let mut gpt =
        GptStage::new(ReplicaSlice::WHOLE, settings, recipe(), cpu, source.clone(), sides, &model).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, waveforms) = with_sound(folder.path(), 12);
    let mels = Some(MelDevice { device: Device::Cpu, waveforms, start_delay: delay });
    let feeding =
        FeedSettings { depth: Some(Depth { min: 3, max: 3, bytes: 1 << 24 }), ..FeedSettings::default() };
    let settings = DvaeSettings { rows: 4, frames: 64, mels, feeding, ..small::dvae_settings() };
    let plan = small::plan(StageKind::Dvae, 8);
    let mut dvae = small::dvae_stage(settings, &plan, source, sides, cpu, &Model::default()).unwrap();
    let stages: [&mut dyn Stage; 2] = [&mut gpt, &mut dvae];
    for stage in stages {
        let mut took = |step| {
            let began = std::time::Instant::now();
            let queued = stage.submit(step, &Control::default()).unwrap();
            let took = began.elapsed();
            stage.wait(queued.ticket).unwrap();
            took
        };
        let (first, second) = (took(0), took(1));
        assert!(first >= delay && second < delay, "{first:?} {second:?}");
    }
}

#[test]
fn a_dvae_learns_the_same_from_mels_computed_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let (source, waveforms) = with_sound(folder.path(), 12);
    let letters = "a b c d e f g h i j k l m n o p q r s t u v w x y z";
    let tokenizer = train([("en", letters)], &TrainOptions::default()).unwrap();
    let (records, _) = sides();
    let codes_of = |record: u32| source.rows(record as usize, 2) as usize / 4;
    let mut bad = BadRecords::new("alignment", 0.0, records.len());
    let alignments =
        Alignments::of(&*source, &records, &tokenizer, &codes_of, &mut bad, &Default::default()).unwrap();
    assert!(alignments.rate().is_some(), "no clip was aligned");
    let spoken = TokenTargets {
        weight: 1.0,
        vocabulary: tokenizer.vocabulary_size(),
        alignments: Arc::new(alignments),
    };
    for spoken in [None, Some(spoken)] {
        let fed = dvae_learnt(&source, None, spoken.clone());
        let start_delay = Duration::from_millis(1);
        let on = |device| Some(MelDevice { device, waveforms: waveforms.clone(), start_delay });
        let made = dvae_learnt(&source, on(Device::Cpu), spoken.clone());
        for (step, (a, b)) in fed.0.iter().zip(&made.0).enumerate() {
            assert!(a.good && b.good);
            assert!((a.loss - b.loss).abs() < 1e-3 * a.loss, "step {step}: {} {}", a.loss, b.loss);
            assert!((a.norm - b.norm).abs() < 1e-2 * a.norm, "step {step}: {} {}", a.norm, b.norm);
            if spoken.is_some() {
                assert!(a.notes[5] > 0.0, "some codes have a token");
                assert_eq!(a.notes[5], b.notes[5], "the same codes have token targets, at step {step}");
            }
        }
        assert!((fed.3 - made.3).abs() < 1e-2 * fed.3, "{} {}", fed.3, made.3);
        assert!(made.1.iter().any(|line| line.contains("mels are computed on cpu")), "{:?}", made.1);
        assert_eq!(fed.2, made.2, "a run can resume with the other source");
        // A missing device leaves batches unchanged.
        let gone = dvae_learnt(&source, on(Device::Cuda(63)), spoken);
        let bits = |of: &[Report]| of.iter().map(|report| report.loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&gone.0), bits(&fed.0));
        assert!(gone.1.iter().any(|line| line.contains("cannot prepare batches")), "{:?}", gone.1);
    }
}
