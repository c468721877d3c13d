//! Previewed batches are those of training.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use myxtts_data::batch::Step;
use myxtts_data::record::{COLUMNS, Column, RecordError, RecordSource, TOKENS};
use myxtts_data::tokenizer::{self, Tokenizer, TrainOptions};
use myxtts_run::config::{Flag, HostResources, Sources};
use myxtts_run::plan::{Plan, StageKind};
use myxtts_run::progress::Silent;
use myxtts_tensor::Control;
use myxtts_text::Cleaner;
use myxtts_train::ComputeDevice;
use myxtts_train::job_control::JobControl;
use myxtts_train::preview::Preview;
use myxtts_train::replica_slice::Replicas;
use myxtts_train::stage_context::StageContext;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::gpt::AugmentedRow;
use myxtts_train::training_data::Corpus;

use super::small::Clips;

const CLIPS: usize = 18;

/// The vocabulary of the texts.
fn vocabulary() -> Tokenizer {
    let options = TrainOptions { vocab_size: 64, ..Default::default() };
    tokenizer::train([("en", "hello world, this is a voice")], &options).unwrap()
}

/// Clips of many lengths: the longest are six times the shortest. Their texts are the first tokens of one text.
struct Uneven {
    text: Vec<i32>,
}

impl Uneven {
    fn new(tokenizer: &Tokenizer) -> Uneven {
        Uneven { text: tokenizer.encode("a is a he is a lo is a is", "en", Cleaner::Default).unwrap().ids }
    }
}

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
        Clips::default().read(record % 6, column, 0, out)?;
        if COLUMNS[column] == TOKENS {
            let text = self.text.iter().skip(first as usize);
            out.as_chunks_mut::<4>().0.iter_mut().zip(text).for_each(|(to, token)| *to = token.to_le_bytes());
        }
        Ok(rows as u32)
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
fn records(source: &dyn RecordSource, step: &Step<'_>, companions: bool) -> Vec<u32> {
    let rows: Vec<(u32, u32)> = (0..step.rows()).filter_map(|row| step.row(row)).collect();
    let own = rows.iter().map(|&(record, _)| record);
    let heard =
        rows.iter().map(|&(record, time)| step.companion(record, time, source.speaker(record as usize), 0));
    let mut all = Vec::new();
    for record in own.chain(heard.filter(|_| companions)) {
        if !companions || !all.contains(&record) {
            all.push(record);
        }
    }
    all
}

/// Compares the preview of a stage with the batches of its first steps. Returns the number of rows that are joined from segments
/// of clips, and of those with a clip that is in the batch for no other reason.
fn same(kind: StageKind, set: &[&str], steps: u64) -> (usize, usize) {
    let plan = plan(set);
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = vocabulary();
    let corpus = Corpus {
        source: Arc::new(Uneven::new(&tokenizer)),
        train: (2..CLIPS as u32).collect(),
        validation: vec![0, 1],
        tokenizer,
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
    let mut preview = preview.unwrap();
    let job = JobControl { progress: &Silent, stop: &AtomicBool::new(false) };
    let recipe = plan.recipe(kind, false);
    let not_shown = preview.augment(&recipe, Some(&corpus.tokenizer), &corpus.train, job).unwrap();
    assert_eq!(not_shown, None);
    let (mut joined, mut further) = (0, 0);
    for step in 0..steps {
        let taken = stage.submit(step, &Control::default()).unwrap();
        stage.wait(taken.ticket).unwrap();
        let mut expected: Vec<u32> = Vec::new();
        for part in 0..preview.of_step {
            let number = step * preview.of_step + part;
            let mut all = records(&*corpus.source, &preview.train.step(number), kind == StageKind::Gpt);
            for row in preview.augmented(number).unwrap().unwrap_or_default() {
                joined += usize::from(row.is_joined);
                let before = all.len();
                for (record, _) in row.segments {
                    if !all.contains(&record) {
                        all.push(record);
                    }
                }
                further += usize::from(all.len() > before);
            }
            expected.extend(all);
        }
        assert_eq!(taken.records, expected, "step {step} of {kind:?} with {set:?}");
    }
    (joined, further)
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

/// With little speech training joins segments of clips, hides codes and removes texts: batches were shown as without that, and
/// their records did not name the clips that were joined.
#[test]
fn batches_were_shown_without_the_clips_that_are_joined() {
    let little = ["training.recombination=0.7", "training.code_masking=0.45", "training.text_dropout=0.1"];
    let (joined, further) = same(StageKind::Gpt, &[&little[..], &["training.gpt_steps=40"]].concat(), 40);
    assert!(joined > 20 && further > 10, "{joined} rows are joined, {further} with another clip");
    let accumulated = ["training.gradient_accumulation_steps=2", "training.gpt_steps=40"];
    assert!(same(StageKind::Gpt, &[&little[..], &accumulated].concat(), 6).0 > 0);
}

/// The texts that the GPT gets and the codes it does not see, against the shares of the settings.
#[test]
fn previewed_rows_have_the_texts_and_hidden_codes_of_the_settings() {
    let settings = ["training.recombination=0.7", "training.code_masking=0.45", "training.text_dropout=0.1"];
    let plan = plan(&[&settings[..], &["training.gpt_steps=400", "data.batch_size=4"]].concat());
    let tokenizer = vocabulary();
    let source = Arc::new(Uneven::new(&tokenizer));
    let train: Vec<u32> = (0..CLIPS as u32).collect();
    let split = RecordSplit { train: &train, validation: &[] };
    let replicas = Replicas { machine: ComputeDevice::CPU, count: 1 };
    let preview = || Preview::new(StageKind::Gpt, &plan, replicas, source.clone(), split).unwrap();
    let job = JobControl { progress: &Silent, stop: &AtomicBool::new(false) };
    let recipe = plan.recipe(StageKind::Gpt, false);
    let rows = |preview: &Preview| -> Vec<_> {
        (0..100).flat_map(|number| preview.augmented(number).unwrap().unwrap()).collect()
    };
    let mut whole = preview();
    whole.augment(&recipe, Some(&tokenizer), &train, job).unwrap();
    let all = rows(&whole);
    let codes = |row: &AugmentedRow| row.segments.iter().map(|(_, codes)| codes.len()).sum::<usize>();
    let share = |part: usize, of: usize| part as f64 / of as f64;
    let hidden = share(all.iter().map(|row| row.hidden).sum(), all.iter().map(codes).sum());
    assert!((0.4..0.5).contains(&hidden), "{hidden} of the codes are hidden");
    let lost = share(all.iter().filter(|row| row.lost_text).count(), all.len());
    assert!((0.05..0.15).contains(&lost), "{lost} of the rows have no text");
    assert!(all.iter().all(|row| !row.lost_text || row.tokens.len() == 2));
    assert!(all.iter().any(|row| row.is_joined));
    // Without the vocabulary words are not known, and that is said.
    let mut unknown = preview();
    let note = unknown.augment(&recipe, None, &train, job).unwrap().unwrap();
    assert!(note.contains("70 % of the rows"), "{note}");
    assert!(rows(&unknown).iter().all(|row| !row.is_joined && codes(row) > 0));
}
