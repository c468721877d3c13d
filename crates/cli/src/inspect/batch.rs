//! `myxtts inspect batch`: the batch of a training step, as a table, as JSON and as an image.

mod report;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use myxtts_data::batch::{Collator, Part, Plan};
use myxtts_data::cache::Store;
use myxtts_data::dataset::split::{Clip, hold_out};
use myxtts_data::record::{DVAE_MEL, RecordSource};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_run::exit::Exit;
use myxtts_run::folder::RunFolder;
use myxtts_run::output_path::OutputPath;
use myxtts_run::plan::StageKind;
use myxtts_run::progress::Silent;
use myxtts_train::ComputeDevice;
use myxtts_train::base_model::base_vocabulary;
use myxtts_train::corpus::features::vocabulary_of;
use myxtts_train::corpus::read::{cache_in, is_cache, read_from};
use myxtts_train::corpus::{Assembly, SavedSplit};
use myxtts_train::job_control::JobControl;
use myxtts_train::overlay::CODES;
use myxtts_train::preview::{Preview, choose_settings};
use myxtts_train::replica_slice::Replicas;
use myxtts_train::run_request::RunRequest;
use myxtts_train::stages::RecordSplit;

use self::report::Report;
use super::augmented_slab::replace_augmented;
use crate::output::{errln, print, print_json};
use crate::progress::Terminal;
use crate::signal::stop_requested;

#[derive(clap::Args)]
pub struct Args {
    /// Corpus folder, or its cache folder
    #[arg(required_unless_present = "run")]
    dir: Option<PathBuf>,
    /// Use the settings of this run, including its tuned batch size, and its corpus if no other is named
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Stage whose batches are shown: gpt or dvae
    #[arg(long, value_name = "STAGE", default_value = "gpt", value_parser = crate::arguments::stage)]
    stage: StageKind,
    #[command(flatten)]
    settings: crate::settings::Settings,
    /// Training step
    #[arg(long, default_value_t = 0)]
    step: u64,
    /// Show a validation batch instead
    #[arg(long)]
    validation: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Write an image of the mels, one below the other, to a .png file
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

/// The records that batches are made of.
struct Data {
    source: Arc<dyn RecordSource>,
    train: Vec<u32>,
    validation: Vec<u32>,
    /// The vocabulary that the records were prepared with; `None` where it is not known.
    tokenizer: Option<Tokenizer>,
    /// Whether training begins with a model.
    from_model: bool,
    /// Number of devices that share every batch.
    devices: usize,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let png = args.png.as_deref().map(|path| OutputPath::check("--png", path)).transpose()?;
    let corpus = args.dir.as_deref().map(|dir| (dir, "the corpus that is read"));
    let png = png.map(|png| png.reject_inputs("--png", corpus)).transpose()?;
    let stop = stop_requested()?;
    let mut plan = args.settings.resolve()?;
    let mut run = None;
    if let Some(name) = &args.run {
        let folder = RunFolder::view(&plan.training.runs_dir, name)?;
        plan = folder.plan()?;
        run = Some(folder);
    }
    let (from_model, devices) = match &run {
        Some(run) => (RunRequest::load(run, &Terminal::new())?.from.is_some(), devices_of(run)?),
        None => (false, 1),
    };
    let data = match (&args.dir, &run) {
        (Some(corpus), _) => {
            let dir = plan.data.cache_dir.clone().unwrap_or_else(|| cache_in(corpus));
            let source: Arc<dyn RecordSource> = Arc::new(Store::open(&dir)?);
            let (train, validation) = sides(&*source, &texts(corpus, &plan.data)?, &plan);
            let tokenizer = match &plan.data.tokenizer {
                Some(file) => Some(Tokenizer::load(file)?),
                None => vocabulary_of(&dir),
            };
            Data { source, train, validation, tokenizer, from_model, devices }
        }
        // All corpora of the run, with its validation set.
        (None, Some(run)) => {
            let (base, split) = (base_vocabulary(run.path())?, SavedSplit::load(run.path(), true)?);
            let assembly =
                Assembly { base: base.as_ref(), saved_split: split.as_ref(), ..Assembly::default() };
            let corpus = assembly.assemble(&plan, &stop, &Terminal::new())?.corpus;
            let (source, tokenizer) = (corpus.source, Some(corpus.tokenizer));
            Data {
                source,
                train: corpus.train,
                validation: corpus.validation,
                tokenizer,
                from_model,
                devices,
            }
        }
        (None, None) => bail!("name a corpus, or a run with --run"),
    };
    if args.stage == StageKind::Gpt {
        let chosen = choose_settings(&mut plan, &*data.source, &data.train, data.from_model);
        chosen.iter().for_each(|note| errln!("note: {note}"));
        if run.is_none() && plan.data.frame_budget.is_some() && plan.training.multi_gpu {
            errln!(
                "note: batches of data.frame_budget are shown as on one device; on several, their number of rows is a \
                 multiple of the number of devices: --run NAME shows the batches of a run"
            );
        }
    }
    let (report, slab) = inspect(&data, &plan, &args, &stop)?;
    if let Some(png) = &png {
        let picture = report.picture(&slab)?;
        let path = png.path().display();
        png.write(&picture).with_context(|| format!("writing the image to {path}"))?;
        errln!("wrote {path}");
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.table())?;
    }
    Ok(Exit::Done)
}

/// Number of devices that a run trains on; 1 before it has begun.
fn devices_of(run: &RunFolder) -> anyhow::Result<usize> {
    let mut devices = 1;
    let reading = || format!("reading the event log of the run {}", run.name());
    run.events()
        .read_with(|event| {
            if event.kind == "strategy" {
                let named = event.fields.get("devices").and_then(|devices| devices.as_array());
                devices = named.map_or(1, Vec::len).max(1);
            }
        })
        .with_context(reading)?;
    Ok(devices)
}

/// The texts of a corpus by utterance id. A cache holds no texts: there every clip counts as a text of its own.
fn texts(dir: &Path, plan: &myxtts_run::plan::DataPlan) -> anyhow::Result<HashMap<String, String>> {
    if is_cache(dir) {
        errln!(
            "note: a cache holds no texts, so that the split differs from that of training if texts occur twice; name the \
             corpus instead"
        );
        return Ok(HashMap::new());
    }
    let corpus = read_from(dir, plan, &Silent)?;
    Ok(corpus.utterances.into_iter().map(|utterance| (utterance.id, utterance.text)).collect())
}

/// The training and validation records that a new run would have.
fn sides(
    source: &dyn RecordSource,
    texts: &HashMap<String, String>,
    plan: &myxtts_run::plan::Plan,
) -> (Vec<u32>, Vec<u32>) {
    // With a separate validation corpus, all clips of this one are trained on.
    let fraction = if plan.data.val_data.is_some() { 0.0 } else { plan.data.val_fraction };
    let ids: Vec<String> = (0..source.len()).map(|record| source.id(record)).collect();
    let clip = |(record, id)| {
        let speaker = source.speakers().get(source.speaker(record) as usize);
        Clip { id, text: texts.get(id).map_or(id, |text| text), speaker: speaker.map_or("", |name| name) }
    };
    let clips: Vec<Clip<'_>> = ids.iter().map(String::as_str).enumerate().map(clip).collect();
    let split = hold_out(&clips, fraction, plan.training.seed).split;
    let records = |side: &[usize]| side.iter().map(|&record| record as u32).collect();
    (records(&split.train), records(&split.validation))
}

/// Collates the batch of a step, as the stage would, and describes it.
fn inspect(
    data: &Data,
    plan: &myxtts_run::plan::Plan,
    args: &Args,
    stop: &AtomicBool,
) -> anyhow::Result<(Report, Vec<u8>)> {
    let split = RecordSplit { train: &data.train, validation: &data.validation };
    // The content of a batch does not depend on the device, but the number of its rows may depend on their number.
    let replicas = Replicas { machine: ComputeDevice::CPU, count: data.devices };
    let mut preview = Preview::new(args.stage, plan, replicas, data.source.clone(), split)?;
    if !args.validation {
        let recipe = plan.recipe(args.stage, data.from_model);
        let progress = Terminal::new();
        let job = JobControl { progress: &progress, stop };
        let not_shown = preview.augment(&recipe, data.tokenizer.as_ref(), &data.train, job)?;
        not_shown.iter().for_each(|note| errln!("note: {note}"));
    }
    let source = preview.source.clone();
    let (batches, of_step) = match (args.validation, &preview.validation) {
        (false, _) => (&preview.train, preview.of_step),
        (true, Some(validation)) => (validation, 1),
        (true, None) => bail!("the validation set is empty: there is no validation batch"),
    };
    let collated = |number: u64| -> anyhow::Result<(Report, Vec<u8>)> {
        let batches = Arc::new(with_mels(&*source, batches, number)?);
        let collator = Collator::new(source.clone(), batches.clone(), 0, 1)?;
        let mut slab = vec![0; collator.slab_bytes()];
        let mut info = collator.collate(number, &mut slab)?;
        slab.truncate(info.layout.bytes());
        let augmented = preview.augmented(number)?.unwrap_or_default();
        replace_augmented(&*source, &augmented, &mut info, &mut slab)?;
        Ok((Report::new(&*source, &batches, (&info, &augmented), &slab), slab))
    };
    let first = args.step * of_step;
    let further = (first + 1..first + of_step).map(|number| Ok(collated(number)?.0));
    let further = further.collect::<anyhow::Result<_>>()?;
    let (mut report, slab) = collated(first)?;
    (report.step, report.further) = (args.step, further);
    Ok((report, slab))
}

/// Number of mel frames per audio code.
pub(super) const FRAMES_PER_CODE: u32 = 4;

/// The same batches with mels in place of codes: as many frames as batch `number` has codes for.
fn with_mels(source: &dyn RecordSource, batches: &Plan, number: u64) -> anyhow::Result<Plan> {
    let frames = FRAMES_PER_CODE * batches.buckets()[batches.step(number).bucket].rung.frames;
    let mut parts = batches.settings().parts.clone();
    for part in parts.iter_mut().filter(|part| part.column == CODES) {
        *part = Part::window(DVAE_MEL, frames);
    }
    Ok(batches.with_parts(source, parts)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use myxtts_data::record::{CONDITIONING_MEL, Column, RecordError, TOKENS};

    use super::*;

    /// Ten records of 20 to 29 frames by two speakers.
    struct Ten {
        names: Vec<String>,
    }

    impl RecordSource for Ten {
        fn columns(&self) -> &[Column] {
            &[TOKENS, DVAE_MEL, CONDITIONING_MEL]
        }
        fn len(&self) -> usize {
            10
        }
        fn rows(&self, record: usize, column: usize) -> u32 {
            if column == 0 { 7 } else { 20 + record as u32 }
        }
        fn speaker(&self, record: usize) -> u32 {
            record as u32 % 2
        }
        fn language(&self, _: usize) -> u32 {
            0
        }
        fn speakers(&self) -> &[String] {
            &self.names
        }
        fn languages(&self) -> &[String] {
            &self.names
        }
        fn id(&self, record: usize) -> String {
            format!("clip-{record}")
        }
        fn read(&self, record: usize, column: usize, _: u32, out: &mut [u8]) -> Result<u32, RecordError> {
            let rows = self.rows(record, column);
            out[..self.columns()[column].row_bytes() * rows as usize].fill(1);
            Ok(rows)
        }
        fn fingerprint(&self) -> [u8; 32] {
            [0; 32]
        }
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn report(line: &str) -> (Report, Vec<u8>) {
        let args = Line::parse_from(line.split(' ')).args;
        let plan = args.settings.plan().unwrap();
        let source = Arc::new(Ten { names: vec!["ann".into(), "bob".into()] });
        let (train, validation) = sides(&*source, &HashMap::new(), &plan);
        let data = Data { source, train, validation, tokenizer: None, from_model: false, devices: 1 };
        inspect(&data, &plan, &args, &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn a_step_is_shown_as_a_table_and_as_data() {
        let (report, slab) =
            report("batch somewhere --step 1 --batch-size 5 --set data.buckets=1 --val-fraction 0");
        assert_eq!((report.frames, report.tokens, report.rows.len()), (64, 16, 5));
        assert_eq!((report.epoch, report.position, report.plan.batches_per_epoch), (Some(0), 1, 2));
        assert_eq!(slab.len(), report.bytes);
        let table = report.table();
        assert!(
            table.starts_with("step 1: epoch 0, batch 1 of 2\nshape: 5 rows x 64 frames, 16 tokens"),
            "{table}"
        );
        for row in &report.rows {
            assert!(table.contains(&row.id));
            assert_eq!(row.speaker, ["ann", "bob"][row.record as usize % 2]);
            assert_eq!(row.frames, 20 + row.record);
        }
        let json: serde_json::Value = serde_json::to_value(&report).unwrap();
        assert_eq!(json["fields"][1]["shape"], serde_json::json!([5, 64, 80]));
        assert!(report.picture(&slab).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn a_step_of_several_batches_shows_all_of_them() {
        let line = "batch somewhere --batch-size 2 --set data.worst_batch_first=true --val-fraction 0 \
                    --gradient-accumulation-steps 2 --set data.buckets=1";
        let (report, _) = report(line);
        assert_eq!((report.epoch, report.further.len()), (None, 1));
        assert_eq!(report.further[0].epoch, Some(0), "one bucket has one worst batch");
        assert!(report.table().contains("further batch of the same step"), "{}", report.table());
    }

    #[test]
    fn batches_of_the_dvae_are_windows() {
        let (report, _) =
            report("batch somewhere --stage dvae --set data.dvae_batch_size=3 --val-fraction 0");
        assert_eq!((report.rows.len(), report.frames, report.tokens), (3, 128, 0));
        assert!(report.rows.iter().all(|row| row.companion.is_none()));
    }
}
