//! The states of the trained GPT over every record's own codes: what the decoder learns to make sound of.

use crate::beside::{CODES, WithCodes};
use crate::error::TrainError;
use crate::machine::Machine;
use crate::model::Model;
use half::bf16;
use myxtts_data::batch::{Order, Part, Plan as Batches, Rows as BatchRows, Settings, Tail};
use myxtts_data::loader::{HostSlab, Loader, Options as LoaderOptions};
use myxtts_data::record::{CONDITIONING_MEL, RecordSource, TOKENS};
use myxtts_data::tokenizer::Tokenizer;
use myxtts_model::sequence::{frame_lengths, repeat_frames};
use myxtts_model::{Condition, Declare, Gpt, GptInputs, GptShape, Masks, Rows};
use myxtts_run::progress::Progress;
use myxtts_tensor::{Control, Engine, EngineOptions, Program, Tape, Training, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// States of one record `[codes + 1, width]`: row i is the one that predicted code i, the last the one that predicted the end.
/// Rounded to bf16, which is half the memory and as exact as the GPU that made them.
pub type Latents = Vec<bf16>;

/// The states of all records; empty where a record does not fit the model or its states are no numbers.
pub fn latents_of(
    source: &Arc<WithCodes>,
    model: &Model,
    machine: Machine,
    (frames, seed, tokenizer): (u32, u64, &Tokenizer),
    (progress, stop): (&dyn Progress, &AtomicBool),
) -> Result<Vec<Latents>, TrainError> {
    let missing = || TrainError::Missing { stage: "decoder", what: "a GPT", earlier: "gpt" };
    let sizes = model.gpt_sizes(tokenizer).ok_or_else(missing)?;
    let mut declare = Declare::new(0.0, &|_| false);
    let gpt = Gpt::declare(&mut declare, sizes.clone());
    let (layout, released) = declare.finish();
    let options = EngineOptions { training: Training::None, ..EngineOptions::default() };
    let mut engine = Engine::new(machine.device, layout, machine.precision, options)?;
    if let Some(name) = model.fill(&mut engine, &released)?.into_iter().next() {
        return Err(TrainError::NoData(format!("the model's GPT lacks {name}: import or train it again")));
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
    let options = LoaderOptions { until: Some(batches.batches_per_epoch()), ..LoaderOptions::default() };
    let slabs = HostSlab::pool(options.depth + 2, batches.slab_bytes(1)?);
    let loader = Loader::start(records, batches.clone(), &batches.state(0), options, slabs)?;
    let mut programs: HashMap<GptShape, (Program, GptInputs, Value)> = HashMap::new();
    let mut all = vec![Latents::new(); source.len()];
    let width = sizes.width;
    let mut silent = Vec::new();
    progress.start("latents", source.len() as u64);
    for batch in loader {
        super::heed(stop).inspect_err(|_| progress.finish())?;
        let mut batch = batch?;
        let layout = batch.info().layout.clone();
        let rung = layout.rung();
        let (text, mel) = Masks::Corrected.places(rung.tokens as usize, rung.frames as usize);
        let shape = GptShape { batch: layout.rows() as usize, frames: frames as usize, text, mel };
        let (program, inputs, made) = match programs.entry(shape) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut tape = Tape::new(engine.layout().clone(), engine.precision());
                let inputs = GptInputs::new(&mut tape, &sizes, shape, Masks::Corrected);
                let made = gpt.latents(&mut tape, &inputs);
                tape.keep(made);
                entry.insert((engine.load(tape)?, inputs, made))
            }
        };
        let bytes = batch.bytes();
        let field = |name: &str| {
            let field = layout.field(name).unwrap_or_else(|| panic!("a batch has no field {name}"));
            &bytes[field.offset..field.offset + field.bytes]
        };
        let ints = |name: &str| -> &[i32] { bytemuck::cast_slice(field(name)) };
        let rows = Rows {
            text: ints("tokens"),
            text_lengths: ints("tokens_rows"),
            codes: ints("codes"),
            code_lengths: ints("codes_rows"),
            prompts: &[],
        };
        let sequences = Masks::Corrected.sequences(&sizes, &rows)?;
        let mut mels: Vec<f32> = bytemuck::cast_slice(field("companion_conditioning_mel")).to_vec();
        for frame in mels.chunks_exact_mut(stats.len()) {
            frame.iter_mut().zip(&stats).for_each(|(x, s)| *x /= s);
        }
        let heard = ints("companion_conditioning_mel_rows");
        if let Condition::Mels { mels: input, lengths: Some(lengths) } = inputs.condition {
            repeat_frames(&mut mels, stats.len(), heard);
            let (own, with_latents) = frame_lengths(&sizes, heard);
            engine.write_i32(program, lengths.frames, &own)?;
            engine.write_i32(program, lengths.with_latents, &with_latents)?;
            engine.write(program, input, &mels)?;
        }
        engine.write_i32(program, inputs.text_in, &sequences.text_in)?;
        engine.write_i32(program, inputs.mel_in, &sequences.mel_in)?;
        engine.write_i32(program, inputs.key_mask, &sequences.key_mask)?;
        engine.run(program, &Control::default())?;
        let states = engine.read(program, *made)?;
        for (row, &record) in ints("record").iter().enumerate() {
            let Ok(record) = usize::try_from(record) else { continue };
            let count = (source.codes(record).len() + 1).min(mel);
            let own = &states[row * mel * width..][..count * width];
            if own.iter().any(|x| !x.is_finite()) {
                silent.push(source.id(record));
                continue;
            }
            all[record] = own.iter().map(|&x| bf16::from_f32(x)).collect();
        }
        progress.advance(u64::from(batch.info().rows_valid));
    }
    progress.finish();
    if !silent.is_empty() {
        progress.say(&format!(
            "left out of the decoder, since the GPT's states over them are no numbers: {}; look at these clips, and at \
             the others of their speakers, which they are heard by",
            super::named(&silent)
        ));
    }
    Ok(all)
}
