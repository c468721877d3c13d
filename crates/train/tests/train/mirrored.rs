//! Replicas: several replicas learn what one device learns, they stay bit-identical, and a run can resume with another
//! number of them.

use crate::small::Clips;
use crate::synthetic::{CODES, COUNT, Tones, VOCABULARY, Voices, codes};
use myxtts_data::batch::Rows;
use myxtts_model::dvae::DvaeSizes;
use myxtts_model::presets::{Networks, TextIds};
use myxtts_model::speaker::{SpeakerEncoder, SpeakerLayer, SpeakerSizes};
use myxtts_model::{Declare, GptSizes, Masks};
use myxtts_run::config::{HostResources, Sources};
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Plan, Preset, Recipe, StageKind};
use myxtts_run::progress::{Progress, StepProgress};
use myxtts_tensor::engine::Arena;
use myxtts_tensor::{Control, Device, Engine, EngineOptions, Mode, Precision, Report};
use myxtts_train::feed::FeedSettings;
use myxtts_train::mirrored::{Build, Mirrored};
use myxtts_train::overlay::WithCodes;
use myxtts_train::replica_slice::ReplicaSlice;
use myxtts_train::session::{Session, StageEnd};
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::Stage;
use myxtts_train::stages::clips::Clips as DecoderClips;
use myxtts_train::stages::decoder::{DecoderSettings, DecoderStage};
use myxtts_train::stages::dvae::{DvaeSettings, DvaeStage};
use myxtts_train::stages::gpt::{GptSettings, GptStage};
use myxtts_train::stages::latent_file::LatentFile;
use myxtts_train::{ComputeDevice, Model, TrainError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn plan(steps: u64) -> Plan {
    let mut plan = Plan::resolve(&Sources::for_host(HostResources::detect())).unwrap();
    plan.training.gpt_steps = Some(steps);
    plan.training.dvae_steps = Some(steps);
    plan.training.decoder_steps = Some(steps);
    (plan.training.checkpoint_every, plan.training.validate_every) = (0, Some(0));
    plan.training.learning_rate = Some(1e-4);
    plan.training.dropout = Some(0.1);
    plan.training.label_smoothing = Some(0.05);
    plan
}

/// Builds a GPT replica.
fn gpt(recipe: Recipe, accumulate: u64, broken: Option<usize>) -> Build {
    let mut sizes = GptSizes::of(1, 32, 2, VOCABULARY, CODES);
    (sizes.conditioning.blocks, sizes.perceiver.latents, sizes.perceiver.depth) = (1, 4, 1);
    (sizes.max_text, sizes.max_audio) = (40, 40);
    (sizes.start_text, sizes.stop_text) = (1, 2);
    let settings = GptSettings {
        sizes,
        rows: Rows::Fixed(12),
        frames: 8,
        masks: Masks::Corrected,
        accumulate,
        mode: Mode::Captured,
        feeding: FeedSettings::default(),
        lengths: Default::default(),
        balance: 1.0,
        order: Default::default(),
        conditioning: Default::default(),
        start_delay: None,
        seed: 7,
        memory_limit: None,
        freeze_layers: 0,
        lora_rank: None,
        regularization: Default::default(),
    };
    let source = Arc::new(WithCodes::new(Arc::new(Voices { broken }), (0..COUNT).map(codes).collect()));
    Arc::new(move |machine, slice| {
        let (train, held_out): (Vec<u32>, Vec<u32>) = ((0..36).collect(), (36..40).collect());
        let sides = RecordSplit { train: &train, validation: &held_out };
        let (settings, source) = (settings.clone(), source.clone());
        Ok(Box::new(GptStage::new(slice, settings, recipe, machine, source, sides, &Model::default())?))
    })
}

/// One stage, or several replicas of it.
pub fn made(build: &Build, replicas: usize) -> Result<Box<dyn Stage>, TrainError> {
    match replicas {
        1 => build(ComputeDevice::CPU, ReplicaSlice::WHOLE),
        n => Ok(Box::new(Mirrored::new(&vec![ComputeDevice::CPU; n], build)?)),
    }
}

/// Runs steps as the training loop does.
fn steps(stage: &mut dyn Stage, recipe: &Recipe, range: std::ops::Range<u64>) -> Vec<Report> {
    let mut reports = Vec::new();
    for step in range {
        if stage.due(step) {
            stage.between(step).unwrap();
        }
        let control = Control {
            rate: recipe.schedule.at(step) as f32,
            clip: recipe.clip.unwrap_or(0.0) as f32,
            average: 0.5,
            seed: 99 + step,
            ..Control::default()
        };
        let queued = stage.submit(step, &control).unwrap();
        // Rows are those of the whole batch; records include the conditioning clips.
        assert!(queued.rows > 0 && !queued.records.is_empty());
        reports.push(stage.wait(queued.ticket).unwrap());
    }
    reports
}

fn furthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn assert_near(alone: &[Report], together: &[Report], most: f32, label: &str) {
    for (step, (a, b)) in alone.iter().zip(together).enumerate() {
        assert!(a.good && b.good, "{label}: step {step}");
        assert!((a.loss - b.loss).abs() <= most * a.loss.abs().max(1.0), "{label}: step {step}: {a:?} {b:?}");
        assert!(
            (a.norm - b.norm).abs() <= 10.0 * most * a.norm.max(1.0),
            "{label}: step {step}: {a:?} {b:?}"
        );
        for (x, y) in a.notes.iter().zip(b.notes) {
            assert!((x - y).abs() <= most * x.abs().max(1.0), "{label}: step {step}: {a:?} {b:?}");
        }
    }
}

#[test]
fn several_replicas_learn_what_one_learns_from_the_whole_batch() {
    let recipe = plan(20).recipe(StageKind::Gpt, false);
    assert!(recipe.dropout > 0.0 && recipe.label_smoothing > 0.0 && recipe.ema_decay.is_some());
    for (accumulate, count) in [(1, 20), (2, 5)] {
        let build = gpt(recipe, accumulate, None);
        let mut alone = made(&build, 1).unwrap();
        let expected = steps(&mut *alone, &recipe, 0..count);
        assert!(count < 20 || expected[19].loss < expected[0].loss, "nothing was learnt");
        let weights = alone.engine().read_arena(Arena::Weights).unwrap();
        for replicas in if accumulate == 1 { vec![2, 3, 4] } else { vec![2] } {
            let mut together = made(&build, replicas).unwrap();
            let found = steps(&mut *together, &recipe, 0..count);
            let label = format!("{replicas} replicas, {accumulate} batches a step");
            assert_near(&expected, &found, 1e-5, &label);
            let apart = furthest(&weights, &together.engine().read_arena(Arena::Weights).unwrap());
            let loss = expected.iter().zip(&found).map(|(a, b)| (a.loss - b.loss).abs()).fold(0.0, f32::max);
            println!("{label}: weights within {apart:.1e}, losses within {loss:.1e} after {count} steps");
            assert!(apart <= 1e-5, "{label}: weights differ by {apart}");
            let (a, b) = (alone.validate().unwrap().unwrap(), together.validate().unwrap().unwrap());
            assert!((a.score - b.score).abs() < 1e-5, "{label}: {a:?} {b:?}");
        }
    }
}

#[test]
fn replicas_stay_bit_identical() {
    let recipe = plan(8).recipe(StageKind::Gpt, false);
    let machines = [ComputeDevice::CPU; 3];
    let mut stage = Mirrored::new(&machines, &gpt(recipe, 1, None)).unwrap();
    steps(&mut stage, &recipe, 0..8);
    for arena in [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average] {
        let all = stage.arenas(arena).unwrap();
        assert_eq!(all.len(), 3);
        for (rank, one) in all.iter().enumerate() {
            let same = one.iter().zip(&all[0]).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && one.len() == all[0].len(), "{arena:?} of replica {rank} differs");
        }
    }
}

#[test]
fn bf16_sums_are_close_and_equal_on_all_replicas() {
    let recipe = plan(6).recipe(StageKind::Gpt, false);
    let exact = gpt(recipe, 1, None);
    let of = exact.clone();
    let rounded: Build = Arc::new(move |machine, slice| of(machine, slice.rounded(true)));
    let mut expected = Mirrored::new(&[ComputeDevice::CPU; 2], &exact).unwrap();
    let mut found = Mirrored::new(&[ComputeDevice::CPU; 2], &rounded).unwrap();
    let (a, b) = (steps(&mut expected, &recipe, 0..6), steps(&mut found, &recipe, 0..6));
    // Eight bits of each gradient remain: norms differ measurably, losses hardly.
    assert_near(&a, &b, 1e-2, "sums in bf16");
    assert!(a[0].norm != b[0].norm, "nothing was rounded");
    let all = found.arenas(Arena::Weights).unwrap();
    assert!(all[0] == all[1], "replicas differ");
    let apart = furthest(&all[0], &expected.arenas(Arena::Weights).unwrap()[0]);
    println!("sums in bf16: weights within {apart:.1e} after 6 steps");
    assert!(apart > 0.0 && apart < 1e-3, "{apart}");
}

#[test]
fn all_replicas_have_the_same_codebook() {
    let recipe = Recipe { ema_decay: None, ..plan(40).recipe(StageKind::Dvae, false) };
    let build: Build = Arc::new(move |machine, slice| {
        let settings = DvaeSettings {
            sizes: DvaeSizes { hidden: 8, blocks: 1, codes: 8, code_width: 8, ..DvaeSizes::v2() },
            rows: 6,
            frames: 16,
            mode: Mode::Captured,
            feeding: FeedSettings::default(),
            balance: 1.0,
            order: Default::default(),
            seed: 3,
            memory_limit: None,
            token_targets: None,
            mels: None,
        };
        let (records, source): (Vec<u32>, _) = ((0..6).collect(), Arc::new(Clips::default()));
        let sides = RecordSplit { train: &records, validation: &records[..2] };
        Ok(Box::new(DvaeStage::new(slice, settings, recipe, machine, source, sides, &Model::default())?))
    });
    let mut alone = made(&build, 1).unwrap();
    // Past the step where unused codes are moved, and exactly at it as a resumed run.
    let mut expected = steps(&mut *alone, &recipe, 0..20);
    let mut resumed = made(&build, 1).unwrap();
    for arena in [Arena::Weights, Arena::Moment1, Arena::Moment2] {
        resumed.engine_mut().write_arena(arena, &alone.engine().read_arena(arena).unwrap()).unwrap();
    }
    resumed.engine_mut().set_state(alone.engine().state().unwrap()).unwrap();
    assert!(alone.due(20), "no codes are moved");
    expected.extend(steps(&mut *alone, &recipe, 20..24));
    let weights = alone.engine().read_arena(Arena::Weights).unwrap();
    steps(&mut *resumed, &recipe, 20..24);
    assert!(resumed.engine().read_arena(Arena::Weights).unwrap() == weights, "a resumed run differs");
    for replicas in [2, 3] {
        let mut together = Mirrored::new(&vec![ComputeDevice::CPU; replicas], &build).unwrap();
        let found = steps(&mut together, &recipe, 0..24);
        assert_near(&expected, &found, 1e-4, &format!("{replicas} replicas"));
        let all = together.arenas(Arena::Weights).unwrap();
        assert!(all.iter().all(|one| one == &all[0]), "replicas differ");
        let apart = furthest(&weights, &all[0]);
        println!("{replicas} replicas of a DVAE: weights within {apart:.1e} after 24 steps");
        assert!(apart <= 1e-4, "{replicas} replicas: weights differ by {apart}");
    }
}

/// Builds a decoder replica, with a speaker encoder of the model or one that is trained.
pub fn decoder(recipe: Recipe, known_speaker: bool) -> Build {
    let text = TextIds { vocabulary: VOCABULARY, start: 1, stop: 2 };
    let layers = [1, 2, 2, 2].map(|stride| SpeakerLayer { blocks: 1, channels: 8, stride }).to_vec();
    let settings = DecoderSettings {
        decoder: crate::tiny::decoder_sizes(),
        speaker: SpeakerSizes { mels: 64, layers, reduction: 4, attention: 8, result: 16 },
        discriminators: Networks::of(Preset::Tiny, text).discriminators,
        rows: 4,
        window: 2,
        speaker_frames: 32,
        discriminators_from: 0.5,
        mel_weight: 45.0,
        mode: Mode::Captured,
        feeding: FeedSettings::default(),
        balance: 1.0,
        order: Default::default(),
        seed: 5,
        memory_limit: None,
    };
    let mut model = Model::default();
    if known_speaker {
        let mut declare = Declare::new(0.0, &|_| false);
        SpeakerEncoder::declare(&mut declare, &settings.speaker);
        let (layout, released) = declare.finish();
        let engine = Engine::new(Device::Cpu, layout, Precision::F32, EngineOptions::default()).unwrap();
        model.take("speaker", serde_json::json!({}), &engine, &released, false).unwrap();
    }
    let state = |record: usize| (0..6 * crate::tiny::WIDTH).map(move |i| ((record + i) as f32 * 0.3).cos());
    let mut latents = LatentFile::create(&std::env::temp_dir(), crate::tiny::WIDTH, 6).unwrap();
    for record in 0..6 {
        let own: Vec<_> = state(record).map(half::bf16::from_f32).collect();
        latents.append(record, &own).unwrap();
    }
    let records: Vec<u32> = (0..6).collect();
    let heard = DecoderClips::load(
        &settings,
        &Tones,
        latents,
        RecordSplit { train: &records[..5], validation: &records[5..] },
    )
    .unwrap();
    let heard = Arc::new(heard);
    Arc::new(move |machine, slice| {
        let (settings, heard) = (settings.clone(), heard.clone());
        Ok(Box::new(DecoderStage::new(slice, settings, recipe, machine, Arc::new(Tones), heard, &model)?))
    })
}

#[test]
fn a_decoder_and_its_discriminators_are_mirrored_too() {
    let recipe = Recipe { ema_decay: None, ..plan(3).recipe(StageKind::Decoder, false) };
    let build = decoder(recipe, true);
    let mut alone = made(&build, 1).unwrap();
    let expected = steps(&mut *alone, &recipe, 0..3);
    assert!(expected[0].notes[1] == 0.0 && expected[2].notes[1] > 0.0, "the discriminators never joined");
    let mut together = Mirrored::new(&[ComputeDevice::CPU; 2], &build).unwrap();
    assert_near(&expected, &steps(&mut together, &recipe, 0..3), 1e-4, "a decoder");
    let all = together.arenas(Arena::Weights).unwrap();
    let apart = furthest(&alone.engine().read_arena(Arena::Weights).unwrap(), &all[0]);
    println!("2 replicas of a decoder: weights within {apart:.1e} after 3 steps");
    assert!(apart <= 1e-4 && all[0] == all[1], "weights differ by {apart}");

    // A trained speaker encoder has the batch norm statistics of its own slice: results are close, and trained weights
    // equal.
    let mut together = Mirrored::new(&[ComputeDevice::CPU; 2], &decoder(recipe, false)).unwrap();
    steps(&mut together, &recipe, 0..1);
    let trained = together.core().engine().layout().trained_len();
    let all = together.arenas(Arena::Weights).unwrap();
    assert!(all[0][..trained] == all[1][..trained], "replicas differ");
}

/// Asks to stop after the given number of steps.
struct StopAt(u64, Arc<AtomicBool>);

impl Progress for StopAt {
    fn step(&self, progress: &StepProgress) {
        if progress.step == self.0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

/// Starts or resumes a run in a folder, with `replicas` replicas, up to a step or to the end; returns the weights.
fn run(
    (folder, plan): (RunFolder, Plan),
    replicas: usize,
    until: u64,
) -> (Result<StageEnd, TrainError>, Vec<f32>) {
    let recipe = plan.recipe(StageKind::Gpt, false);
    let mut stage = made(&gpt(recipe, 1, None), replicas).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let progress = StopAt(until, stop.clone());
    let mut session = Session::open(&folder, &plan, stop, &progress).unwrap();
    let last = session.last_of("gpt").unwrap();
    let ended = session.run(&mut *stage, &recipe, 0, last, None).map(|finished| finished.ended);
    (ended, stage.engine().read_arena(Arena::Weights).unwrap())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Names and sizes of the blobs in a run's checkpoints.
fn kept(folder: &Path) -> Vec<(String, u64)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            files.extend(kept(&entry.path()));
        } else if entry.path().extension().is_some_and(|end| end == "bin") {
            files.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata().unwrap().len()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_run_of_two_replicas_resumes_with_three_and_with_one() {
    let runs = tempfile::tempdir().unwrap();
    let begin = |name: &str| {
        let plan = plan(12);
        (RunFolder::create(runs.path(), Some(name), &plan).unwrap(), plan)
    };
    let (ended, whole) = run(begin("whole"), 2, 99);
    assert_eq!(ended.unwrap(), StageEnd::Done);
    let (_, single) = run(begin("single"), 1, 99);
    let (ended, _) = run(begin("stopped"), 2, 6);
    assert!(matches!(ended, Err(TrainError::Stopped { step: 6, .. })), "{ended:?}");
    for (name, replicas) in [("two", 2), ("three", 3), ("one", 1)] {
        copy(&runs.path().join("stopped"), &runs.path().join(name));
        let (ended, weights) = run(RunFolder::resume(runs.path(), name).unwrap(), replicas, 99);
        assert_eq!(ended.unwrap(), StageEnd::Done);
        let apart = furthest(&whole, &weights);
        println!("two replicas, resumed with {name}: weights within {apart:.1e}");
        assert!(apart <= if replicas == 2 { 0.0 } else { 1e-5 }, "resumed with {name}: {apart}");
    }
    assert!(furthest(&whole, &single) <= 1e-5);
    // One optimiser state for any number of replicas.
    let of = |name: &str| kept(&runs.path().join(name).join("checkpoints"));
    assert!(of("whole").len() >= 3 && of("whole") == of("single"), "{:?} {:?}", of("whole"), of("single"));
}

#[test]
fn a_failing_replica_releases_the_others_and_its_reason_is_reported() {
    let recipe = plan(20).recipe(StageKind::Gpt, false);
    // In the third slice of some batch, and in no other slice at that step.
    let mut stage = made(&gpt(recipe, 1, Some(5)), 3).unwrap();
    let failed = (0..20).find_map(|step| {
        let queued = stage.submit(step, &Control::default());
        queued.and_then(|queued| stage.wait(queued.ticket)).err()
    });
    let words = failed.expect("the failed read must be reported").to_string();
    assert!(words.contains("the disk is gone"), "{words}");
}

#[test]
fn a_replica_that_cannot_be_built_ends_all_with_its_reason() {
    let recipe = plan(2).recipe(StageKind::Gpt, false);
    let whole = gpt(recipe, 1, None);
    let made_of = whole.clone();
    let build: Build = Arc::new(move |machine, slice| match slice.rank() {
        1 => Err(TrainError::HostMemory("this one has no memory".into())),
        _ => made_of(machine, slice),
    });
    let Err(error) = made(&build, 3) else { panic!("it was made") };
    assert!(error.to_string().contains("no memory"), "{error}");
    let build: Build = Arc::new(move |machine, slice| match slice.rank() {
        2 => panic!("planted panic"),
        _ => whole(machine, slice),
    });
    let Err(error) = made(&build, 3) else { panic!("it was made") };
    assert!(error.to_string().contains("replica 2 of 3 ended"), "{error}");
    // Twelve rows, five replicas.
    let Err(error) = made(&gpt(recipe, 1, None), 5) else { panic!("it was made") };
    assert!(error.to_string().contains("12 rows") && error.to_string().contains('5'), "{error}");
}
