//! The states of the trained GPT over every record's own codes: the input that the decoder is trained on.

use super::gpt::fill::{Filler, GptBatch};
use crate::compute_device::ComputeDevice;
use crate::error::TrainError;
use crate::feed::{BatchCost, field};
use crate::job_control::{JobControl, check_stop};
use crate::model::Model;
use crate::overlay::{CODES, WithCodes};
use crate::stages::latent_file::LatentFile;
use half::bf16;
use myxtts_data::batch::{Order, Part, Plan as Batches, Rows as BatchRows, Settings, Tail};
use myxtts_data::loader::{FailureBudget, HostSlab, Loader, Options as LoaderOptions};
use myxtts_data::record::{CONDITIONING_MEL, RecordSource, TOKENS};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::{Declare, Gpt, GptShape, Masks};
use myxtts_tensor::engine::Upload;
use myxtts_tensor::{Control, Engine, EngineOptions, Program, Training, Value};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

/// Settings for computing the latents of all clips.
#[derive(Clone, Copy)]
pub struct LatentSettings<'a> {
    /// Mel frames of conditioning.
    pub frames: u32,
    /// The seed of the run.
    pub seed: u64,
    /// The vocabulary of the texts.
    pub tokenizer: &'a Tokenizer,
    /// Number of bad records that are tolerated.
    pub failures: FailureBudget,
    /// Folder of the temporary file.
    pub folder: &'a Path,
}

/// Computes the states of all records. A record has none if it does not fit the model, or if its states have NaN or Inf.
pub(crate) fn latents_of(
    source: &Arc<WithCodes>,
    model: &Model,
    machine: ComputeDevice,
    LatentSettings { frames, seed, tokenizer, failures, folder }: LatentSettings<'_>,
    JobControl { progress, stop }: JobControl<'_>,
) -> Result<LatentFile, TrainError> {
    let missing = || TrainError::Missing { stage: "decoder", what: "a GPT", earlier: "gpt" };
    let sizes = model.gpt_sizes(tokenizer)?.ok_or_else(missing)?;
    let mut declare = Declare::new(0.0, &|_| false);
    let gpt = Gpt::declare(&mut declare, sizes.clone());
    let (layout, released) = declare.finish();
    let options = EngineOptions { training: Training::None, ..EngineOptions::default() };
    let mut engine = Engine::new(machine.device, layout, machine.precision, options)?;
    if let Some(name) = model.fill(&mut engine, &released)?.into_iter().next() {
        return Err(TrainError::UnusableModel(format!(
            "the model's GPT lacks {name}: import or train it again"
        )));
    }
    let stats = model.mel_stats(sizes.conditioning.mels);
    let settings = Settings {
        seed: myxtts_run::seed::Seed::new(seed).derive("latents"),
        rows: BatchRows::Fixed(8),
        tail: Tail::Short,
        order: Order::Fixed,
        frame_unit: 32,
        length: CODES,
        max_frames: Some(sizes.max_audio as u32),
        max_tokens: Some(sizes.max_text as u32),
        parts: vec![Part::whole(TOKENS), Part::whole(CODES), Part::companion(CONDITIONING_MEL, frames)],
        ..Settings::default()
    };
    let batches = Arc::new(Batches::new(&**source, 0..source.len() as u32, settings)?);
    let records: Arc<dyn RecordSource> = source.clone();
    let until = Some(batches.batches_per_epoch());
    let options = LoaderOptions { until, budget: failures, ..LoaderOptions::default() };
    let slabs = HostSlab::pool(options.depth + 2, batches.slab_bytes(1)?);
    let loader = Loader::start(records, batches.clone(), &batches.state(0), options, slabs)?;
    // Not `model.masks`: these are the states that speaking gives the decoder, and speaking has one set of masks (see
    // `Masks`), whatever the GPT was trained with.
    let masks = Masks::Corrected;
    let mut filler =
        Filler::new(sizes.clone(), (masks, frames, stats), (engine.layout().clone(), engine.precision()));
    let uploader = engine.uploader(Upload::WithStep)?;
    let mut slot = uploader.slot(filler.slot_bytes(&batches, 1)?)?;
    let mut programs: HashMap<GptShape, (Program, Value)> = HashMap::new();
    let width = sizes.width;
    let mut all = LatentFile::create(folder, width, source.len())?;
    let mut rounded = Vec::new();
    let mut silent = Vec::new();
    progress.start("latents", source.len() as u64);
    for batch in loader {
        check_stop(stop).inspect_err(|_| progress.finish())?;
        let mut batch = batch?;
        let info = batch.info().clone();
        let (length, GptBatch { shape, .. }) =
            filler.fill(batch.bytes(), &info, slot.bytes()?, &mut BatchCost::default())?;
        let (program, made) = match programs.entry(shape) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (mut tape, inputs, _) = filler.tape(shape);
                let made = gpt.latents(&mut tape, &inputs);
                tape.keep(made);
                entry.insert((engine.load(tape)?, made))
            }
        };
        uploader.send(&mut slot, length)?;
        engine.take(program, &mut slot)?;
        engine.run(program, &Control::default())?;
        let states = engine.read(program, *made)?;
        let records: &[i32] = bytemuck::cast_slice(field(batch.bytes(), &info, "record"));
        for (row, &record) in records.iter().enumerate() {
            let Ok(record) = usize::try_from(record) else { continue };
            let count = (source.codes(record).len() + 1).min(shape.mel);
            let own = &states[row * shape.mel * width..][..count * width];
            if own.iter().any(|x| !x.is_finite()) {
                silent.push(source.id(record));
                continue;
            }
            rounded.clear();
            rounded.extend(own.iter().map(|&x| bf16::from_f32(x)));
            all.append(record, &rounded)?;
        }
        progress.advance(u64::from(info.rows_valid));
    }
    progress.finish();
    if !silent.is_empty() {
        progress.say(&format!(
            "left out of the decoder stage, because their GPT states have NaN or Inf: {}; check these clips, and \
             the other clips of their speakers, which condition them",
            super::list_names(&silent)
        ));
    }
    Ok(all)
}
