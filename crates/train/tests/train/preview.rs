//! Previewed batches are those of training.

use std::sync::Arc;

use myxtts_data::batch::Step;
use myxtts_data::record::{COLUMNS, Column, RecordError, RecordSource, TOKENS};
use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_run::config::{Flag, HostResources, Sources};
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::Silent;
use myxtts_tensor::Control;
use myxtts_train::ComputeDevice;
use myxtts_train::preview::Preview;
use myxtts_train::replica_slice::Replicas;
use myxtts_train::stage_context::StageContext;
use myxtts_train::training_data::Corpus;

use super::small::Clips;

const CLIPS: usize = 18;

/// Clips of many lengths: the longest are six times the shortest.
struct Uneven;

impl RecordSource for Uneven {
    fn columns(&self) -> &[Column] {
        &COLUMNS
    }
    fn len(&self) -> usize {
        CLIPS
    }
    fn rows(&self, record: usize, column: usize) -> u32 {
        match COLUMNS[column] {
            TOKENS => 4 + (record as u32 * 5) % 9,
            _ => 16 + 16 * (record as u32 * 7 % CLIPS as u32 / 3),
        }
    }
    fn speaker(&self, record: usize) -> u32 {
        u32::from(record.is_multiple_of(5))
    }
    fn language(&self, _: usize) -> u32 {
        0
    }
    fn speakers(&self) -> &[String] {
        static NAMES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
        NAMES.get_or_init(|| vec!["often".into(), "rarely".into()])
    }
    fn languages(&self) -> &[String] {
        &self.speakers()[..1]
    }
    fn id(&self, record: usize) -> String {
        format!("clip-{record}")
    }
    fn read(&self, record: usize, column: usize, first: u32, out: &mut [u8]) -> Result<u32, RecordError> {
        let rows =
            (out.len() / COLUMNS[column].row_bytes()).min((self.rows(record, column) - first) as usize);
        let out = &mut out[..rows * COLUMNS[column].row_bytes()];
        // Those clips are shorter: without this, the rest would be stale memory.
        out.fill(0);
        Clips::default().read(record % 6, column, 0, out).map(|_| rows as u32)
    }
    fn fingerprint(&self) -> [u8; 32] {
        [5; 32]
    }
}

fn plan(set: &[&str]) -> Plan {
    let common = ["model.preset=tiny", "data.batch_size=2", "training.dvae_steps=1"];
    let command_line = common.iter().chain(set).map(|text| Flag::Set((*text).to_owned())).collect();
    Plan::resolve(&Sources { command_line, ..Sources::for_host(HostResources::detect()) }).unwrap()
}

/// The records of a batch, each once: those of its rows, then those that condition them.
fn records(step: &Step<'_>, companions: bool) -> Vec<u32> {
    let rows: Vec<(u32, u32)> = (0..step.rows()).filter_map(|row| step.row(row)).collect();
    let own = rows.iter().map(|&(record, _)| record);
    let heard =
        rows.iter().map(|&(record, time)| step.companion(record, time, Uneven.speaker(record as usize), 0));
    let mut all = Vec::new();
    for record in own.chain(heard.filter(|_| companions)) {
        if !companions || !all.contains(&record) {
            all.push(record);
        }
    }
    all
}

/// Compares the preview of a stage with the batches of its first steps.
fn same(kind: StageKind, set: &[&str], steps: u64) {
    let plan = plan(set);
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer::train(
        [("en", "hello world, this is a voice")],
        &TrainOptions { vocab_size: 64, ..Default::default() },
    );
    let corpus = Corpus {
        source: Arc::new(Uneven),
        train: (2..CLIPS as u32).collect(),
        validation: vec![0, 1],
        tokenizer: tokenizer.unwrap(),
        sentences: Vec::new(),
        data_side: None,
    };
    let context = StageContext::of(&plan, &corpus, ComputeDevice::CPU, folder.path(), &Silent);
    let mut model = context.untrained(kind).unwrap();
    let mut stage = context.stage(kind, &plan.recipe(kind, false), &mut model).unwrap();
    let preview = Preview::new(
        kind,
        &plan,
        Replicas { machine: ComputeDevice::CPU, count: 1 },
        corpus.source.clone(),
        corpus.split(),
    );
    let preview = preview.unwrap();
    for step in 0..steps {
        let taken = stage.submit(step, &Control::default()).unwrap();
        stage.wait(taken.ticket).unwrap();
        let mut expected: Vec<u32> = Vec::new();
        for part in 0..preview.of_step {
            expected
                .extend(records(&preview.train.step(step * preview.of_step + part), kind == StageKind::Gpt));
        }
        assert_eq!(taken.records, expected, "step {step} of {kind:?} with {set:?}");
    }
}

#[test]
fn two_hundred_steps_take_the_records_that_inspect_shows() {
    same(StageKind::Gpt, &[], 200);
}

#[test]
fn every_kind_of_batches_is_previewed_as_it_is_trained() {
    same(StageKind::Dvae, &["data.dvae_batch_size=3"], 6);
    same(StageKind::Dvae, &["data.shuffle=false"], 3);
    same(
        StageKind::Gpt,
        &["data.frame_budget=1000", "data.quadratic_frames=100", "data.worst_batch_first=true"],
        12,
    );
    same(StageKind::Gpt, &["training.gradient_accumulation_steps=2", "data.shuffle=false"], 4);
    same(StageKind::Gpt, &["data.buckets=1", "data.balance_temperature=1", "training.seed=9"], 6);
}
