//! What is no number in the data: the step is left out, the clip named, and a budget of such steps ends the run.

use myxtts_data::record::{Column, DVAE_MEL, RecordError, RecordSource};
use myxtts_model::dvae::DvaeSizes;
use myxtts_run::config::{Machine as Found, Sources};
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::{Plan, Stage as Kind};
use myxtts_tensor::Mode;
use myxtts_tensor::engine::Arena;
use myxtts_train::session::{Ended, News, Session, Watcher};
use myxtts_train::stages::Stage;
use myxtts_train::stages::dvae::{DvaeSettings, DvaeStage};
use myxtts_train::{Machine, Model, TrainError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Clips of something like mels, one of which holds a NaN.
struct Clips {
    poisoned: Option<usize>,
}

const CLIPS: usize = 6;
const FRAMES: usize = 40;

impl RecordSource for Clips {
    fn columns(&self) -> &[Column] {
        &[DVAE_MEL]
    }

    fn len(&self) -> usize {
        CLIPS
    }

    fn rows(&self, _record: usize, _column: usize) -> u32 {
        FRAMES as u32
    }

    fn speaker(&self, _record: usize) -> u32 {
        0
    }

    fn language(&self, _record: usize) -> u32 {
        0
    }

    fn speakers(&self) -> &[String] {
        static NAMES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
        NAMES.get_or_init(|| vec!["one".into()])
    }

    fn languages(&self) -> &[String] {
        self.speakers()
    }

    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }

    fn read(&self, record: usize, _column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let out: &mut [f32] = bytemuck::cast_slice_mut(out);
        let rows = (out.len() / 80).min(FRAMES - first as usize);
        for (i, x) in out[..rows * 80].iter_mut().enumerate() {
            let at = (first as usize * 80 + i) as f32;
            *x = -6.0 + (at * 0.37 + record as f32).sin() * 3.0;
            if self.poisoned == Some(record) {
                *x = f32::NAN;
            }
        }
        Ok(rows as u32)
    }

    fn fingerprint(&self) -> [u8; 32] {
        [7; 32]
    }
}

#[derive(Default)]
struct Said(Vec<String>);

impl Watcher for Said {
    fn stage(&mut self, _: &'static str, _: u64, _: u64, _: &[String]) {}
    fn step(&mut self, _: &News) {}
    fn say(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn end(&mut self) {}
}

/// Trains a few steps; how it ended, what was said, the events, and whether weights are numbers.
fn trained(poisoned: Option<usize>, budget: u64) -> (Result<Ended, TrainError>, Vec<String>, String, bool) {
    let runs = tempfile::tempdir().unwrap();
    let mut plan = Plan::resolve(&Sources::of(Found::detect())).unwrap();
    (plan.training.bad_steps_in_a_row, plan.training.bad_step_budget) = (budget, budget);
    plan.training.checkpoint_every = 0;
    plan.training.dvae_steps = Some(8);
    let recipe = plan.recipe(Kind::Dvae, false);
    let folder = RunFolder::create(runs.path(), Some("guarded"), &plan).unwrap();
    let settings = DvaeSettings {
        sizes: DvaeSizes { hidden: 8, blocks: 1, codes: 8, code_width: 8, ..DvaeSizes::v2() },
        rows: 2,
        frames: 16,
        balance: 1.0,
        mode: Mode::Captured,
        feeding: Default::default(),
        seed: 3,
    };
    let records: Vec<u32> = (0..CLIPS as u32).collect();
    let mut model = Model::default();
    // Of a model that was made of whole clips: the statistics of these would be no numbers.
    model.set("mel_stats", &[80], &[5.0; 80]);
    let source = Arc::new(Clips { poisoned });
    let sides = (&records[..], &[][..]);
    let mut stage = DvaeStage::new(settings, recipe, Machine::CPU, source, sides, &mut model).unwrap();
    if poisoned.is_some() {
        // What the beginning takes from the data is put right, so that only the steps meet the clip.
        let healthy = Arc::new(Clips { poisoned: None });
        let settings = DvaeSettings {
            sizes: DvaeSizes { hidden: 8, blocks: 1, codes: 8, code_width: 8, ..DvaeSizes::v2() },
            rows: 2,
            frames: 16,
            balance: 1.0,
            mode: Mode::Captured,
            feeding: Default::default(),
            seed: 3,
        };
        let other = DvaeStage::new(settings, recipe, Machine::CPU, healthy, sides, &mut model).unwrap();
        for arena in [Arena::Weights, Arena::Average] {
            let weights = other.engine().read_arena(arena).unwrap();
            stage.engine_mut().write_arena(arena, &weights).unwrap();
        }
    }
    let mut said = Said::default();
    let mut session = Session {
        folder: &folder,
        plan: &plan,
        store: folder.checkpoint_store().unwrap(),
        events: folder.event_log().unwrap(),
        board: folder.tensorboard(None).unwrap(),
        stop: Arc::new(AtomicBool::new(false)),
        watcher: &mut said,
    };
    let ended = session.run(&mut stage, &recipe, 0, None);
    drop(session);
    let numbers = stage.engine().read_arena(Arena::Weights).unwrap().iter().all(|x| x.is_finite());
    let events = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
    if let Err(TrainError::BadSteps { saved, .. }) = &ended {
        assert!(saved.is_file(), "the batch was not saved");
    }
    (ended, said.0, events, numbers)
}

#[test]
fn a_clip_that_is_no_number_is_named_and_costs_its_steps_alone() {
    let (ended, said, events, numbers) = trained(Some(3), 100);
    assert_eq!(ended.unwrap(), Ended::Done);
    assert!(numbers, "the weights were hurt");
    assert!(events.contains("bad_step") && events.contains("clip-3"), "{events}");
    assert!(said.iter().any(|line| line.contains("clip-3")), "{said:?}");
}

#[test]
fn a_budget_of_bad_steps_ends_the_run_with_the_batch_saved() {
    let (ended, _, _, numbers) = trained(Some(3), 0);
    let error = ended.unwrap_err();
    assert!(matches!(error, TrainError::BadSteps { .. }), "{error}");
    assert!(error.to_string().contains("clip-3"), "{error}");
    assert!(numbers, "the weights were hurt");
}

#[test]
fn sound_clips_are_never_called_bad() {
    let (ended, said, events, numbers) = trained(None, 0);
    assert_eq!(ended.unwrap(), Ended::Done);
    assert!(numbers && !events.contains("bad_step"), "{said:?}");
}
