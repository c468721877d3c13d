//! Converts a batch of records to the bytes of the GPT's inputs: ahead of the training loop, and for passes over a trained
//! GPT.

use super::acoustic_targets::{AcousticTargets, BadRow, BatchTargets};
use super::augment::{Augmented, Augmenter, whole_rows};
use super::conditioning_engine::{ConditioningEngine, HasMelInput, SharedEngine};
use super::conditioning_feed::ConditioningKind;
use super::conditioning_input::ConditioningInput;
use super::shuffled::{shift, shuffled};
use crate::error::TrainError;
use crate::feed::{BatchCost, Maker, field, maker_of};
use crate::stages::clips;
use crate::stages::prompts::prompts;
use myxtts_data::batch::{BatchInfo, Plan as Batches, Rung};
use myxtts_data::loader::{Options as LoaderOptions, Quarantine};
use myxtts_data::record::RecordSource;
use myxtts_model::sequence::{frame_lengths, repeat_frames};
use myxtts_model::{Condition, GptInputs, GptShape, GptSizes, GptTargets, Masks, Rows};
use myxtts_tensor::engine::InputLayout;
use myxtts_tensor::parameters::Layout;
use myxtts_tensor::{Precision, Tape};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// What the loop needs to know about a batch.
pub(in crate::stages) struct GptBatch {
    pub shape: GptShape,
    pub rows: u64,
    /// Every record in it, each once: those of its rows, those that condition them, and those that segments of joined rows are
    /// from.
    pub records: Vec<u32>,
    /// Number of clips that targets of the acoustic head were read from, and the rows where one was bad.
    heard: (u64, Vec<BadRow>),
    /// Number of valid targets of text, codes and alignment head.
    pub targets: [f32; 3],
    /// The input of its conditioning, if a device computes it.
    pub(super) mel_input: Option<ConditioningInput>,
    /// Whether rows have each other's texts; false if that was not requested or is not possible.
    pub(super) is_shuffled: bool,
}

impl HasMelInput for GptBatch {
    fn take_mel_input(&mut self) -> Option<ConditioningInput> {
        self.mel_input.take()
    }
}

/// Converts batches of records to inputs of the GPT.
#[derive(Clone)]
pub(in crate::stages) struct Filler {
    pub sizes: GptSizes,
    pub masks: Masks,
    pub frames: u32,
    /// Divisors of mels, per band.
    pub stats: Vec<f32>,
    pub layout: Arc<Layout>,
    pub precision: Precision,
    /// What the records have instead of conditioning mels.
    pub(super) kind: ConditioningKind,
    /// The engine that computes conditioning; `None` if batches carry it.
    pub(super) engine: Option<SharedEngine>,
    /// Whether rows get the texts of other rows, if a batch has several.
    pub(super) shuffle_texts: bool,
    /// Whether there are targets of the alignment head.
    pub(super) aligned: bool,
    /// Mel values per code that the acoustic head has to predict; 0 without such a head.
    pub(super) acoustic_channels: usize,
    /// Reads the targets of the acoustic head.
    pub(super) acoustic: Option<Arc<AcousticTargets>>,
    /// Augments training batches; `None` for validation and latents.
    pub(super) augmenter: Option<Arc<Augmenter>>,
    images: HashMap<GptShape, (InputLayout, GptInputs, GptTargets)>,
}

impl Filler {
    pub fn new(
        sizes: GptSizes,
        (masks, frames, stats): (Masks, u32, Vec<f32>),
        (layout, precision): (Arc<Layout>, Precision),
    ) -> Filler {
        Filler {
            sizes,
            masks,
            frames,
            stats,
            layout,
            precision,
            kind: ConditioningKind::Mels,
            engine: None,
            aligned: false,
            acoustic_channels: 0,
            acoustic: None,
            augmenter: None,
            shuffle_texts: false,
            images: HashMap::new(),
        }
    }

    /// The shape of the inputs of a batch.
    pub fn shape(&self, rows: u32, rung: Rung) -> GptShape {
        let (text, mel) = self.masks.positions(rung.tokens as usize, rung.frames as usize);
        GptShape { batch: rows as usize, frames: self.frames as usize, text, mel }
    }

    /// A tape with only the inputs of a shape.
    pub fn tape(&self, shape: GptShape) -> (Tape, GptInputs, GptTargets) {
        let mut tape = Tape::new(self.layout.clone(), self.precision);
        let inputs = GptInputs::new(&mut tape, &self.sizes, shape, self.masks);
        let mut targets = GptTargets::new(&mut tape, shape);
        if self.aligned {
            targets.add_spoken(&mut tape, shape);
        }
        if self.acoustic_channels > 0 {
            targets.add_acoustic(&mut tape, shape, self.acoustic_channels);
        }
        (tape, inputs, targets)
    }

    /// Bytes of the inputs of a shape.
    pub fn bytes(&self, shape: GptShape) -> usize {
        InputLayout::new(&self.tape(shape).0).bytes()
    }

    /// Bytes of the inputs of the largest batch of a plan.
    pub fn slot_bytes(&self, batches: &Batches, ranks: u32) -> Result<usize, TrainError> {
        let layouts = batches.layouts(ranks)?;
        let bytes = layouts.iter().map(|layout| self.bytes(self.shape(layout.rows(), layout.rung())));
        Ok(bytes.max().unwrap_or(0))
    }

    /// Writes the inputs of a batch, and returns their number of bytes.
    pub fn fill(
        &mut self,
        bytes: &[u8],
        info: &BatchInfo,
        into: &mut [u8],
        made: &mut BatchCost,
    ) -> Result<(usize, GptBatch), TrainError> {
        let layout = &info.layout;
        let shape = self.shape(layout.rows(), layout.rung());
        if !self.images.contains_key(&shape) {
            let (tape, inputs, targets) = self.tape(shape);
            self.images.insert(shape, (InputLayout::new(&tape), inputs, targets));
        }
        let (image, inputs, targets) = &self.images[&shape];
        let ints = |name: &str| -> &[i32] { bytemuck::cast_slice(field(bytes, info, name)) };
        let (mut text, mut text_lengths) = (ints("tokens"), ints("tokens_rows"));
        let valid = info.rows_valid as usize;
        let moved = match self.shuffle_texts {
            true => shift(text, text_lengths, valid).map(|by| shuffled(text, text_lengths, valid, by)),
            false => None,
        };
        if let Some((moved, lengths)) = &moved {
            (text, text_lengths) = (moved, lengths);
        }
        let prompts = prompts(info);
        let mut rows = Rows {
            text,
            text_lengths,
            codes: ints("codes"),
            code_lengths: ints("codes_rows"),
            prompts: &prompts,
        };
        let heard = targets.acoustic.and(self.acoustic.as_deref());
        let Augmentation { augmented, targets: mels, heard, blank } =
            self.augmentation(info.step, ints("record"), &rows, heard.map(|heard| (heard, shape.mel)))?;
        if let Some(augmented) = &augmented {
            rows = augmented.rows(&prompts);
        }
        let lengths = without(rows.code_lengths, &blank);
        rows.code_lengths = &lengths;
        let mut sequences = self.masks.sequences(&self.sizes, &rows)?;
        if let Some(augmenter) = &self.augmenter {
            augmenter.mask(info.step, ints("record"), &mut sequences.mel_in);
        }
        let counted = |targets: &[i32]| targets.iter().filter(|&&target| target >= 0).count() as f32;
        let mut aligned = 0.0;
        if let Some(spoken) = targets.spoken {
            let answers = match &augmented {
                Some(augmented) => augmented.alignment_targets(&self.sizes, &sequences),
                None => vec![-1; sequences.mel_targets.len()],
            };
            aligned = counted(&answers);
            image.write_i32(into, spoken, &answers);
        }
        if let (Some(value), Some(mels)) = (targets.acoustic, &mels) {
            image.write_divided(into, value, mels, &self.stats);
        }
        let mut mel_input = None;
        if let Condition::Mels { mels: input, lengths } = inputs.condition {
            let (name, valid_frames) =
                ("companion_conditioning_mel", ints("companion_conditioning_mel_rows"));
            let held = field(bytes, info, name);
            match self.kind {
                ConditioningKind::Mels => {
                    image.write_divided(into, input, bytemuck::cast_slice(held), &self.stats);
                    if lengths.is_some() {
                        let window = &mut into[image.range(input)];
                        let frame = window.len() / (shape.batch * shape.frames);
                        repeat_frames(window, frame, valid_frames);
                    }
                }
                kind => {
                    let mut own = self.conditioning_input(shape.batch, image.range(input), made)?;
                    match kind {
                        ConditioningKind::RowIndices { silence } => {
                            own.write_mel_indices(ints(name), silence)?
                        }
                        _ => own.write_waveforms(held, valid_frames)?,
                    }
                    if lengths.is_some() {
                        own.repeat(valid_frames)?;
                    }
                    mel_input = Some(own);
                }
            }
            if let Some(lengths) = lengths {
                let (frames, with_latents) = frame_lengths(&self.sizes, valid_frames);
                image.write_i32(into, lengths.frames, &frames);
                image.write_i32(into, lengths.with_latents, &with_latents);
            }
        }
        for (value, data) in [
            (inputs.text_in, &sequences.text_in),
            (inputs.mel_in, &sequences.mel_in),
            (inputs.key_mask, &sequences.key_mask),
            (targets.text, &sequences.text_targets),
            (targets.mel, &sequences.mel_targets),
        ] {
            image.write_i32(into, value, data);
        }
        let joined = augmented.as_ref().map(Augmented::sources).unwrap_or_default();
        let records = clips(&[ints("record"), ints("companion"), &joined]);
        let targets = [counted(&sequences.text_targets), counted(&sequences.mel_targets), aligned];
        let (rows, is_shuffled) = (u64::from(info.rows_valid), moved.is_some());
        Ok((image.bytes(), GptBatch { shape, rows, records, heard, targets, mel_input, is_shuffled }))
    }

    /// Augments the rows of a batch, and reads their targets of the acoustic head for a number of positions where there is one.
    /// A row joined from a clip that cannot be read stays whole; a row whose own clip cannot be read is blank.
    fn augmentation(
        &self,
        batch: u64,
        records: &[i32],
        rows: &Rows<'_>,
        heard: Option<(&AcousticTargets, usize)>,
    ) -> Result<Augmentation, TrainError> {
        let augment = |whole: &[usize]| {
            self.augmenter.as_ref().map(|augmenter| augmenter.rows(batch, records, rows, whole))
        };
        let mut made = Augmentation { augmented: augment(&[]), ..Augmentation::default() };
        let Some((acoustic, positions)) = heard else { return Ok(made) };
        let read = |augmented: &Option<Augmented>| -> Result<(u64, BatchTargets), TrainError> {
            let whole;
            let segments = match augmented {
                Some(augmented) => augmented.segments(),
                None => {
                    whole = whole_rows(records, rows.code_lengths);
                    &whole
                }
            };
            Ok((segments.iter().map(|row| row.len() as u64).sum(), acoustic.of(segments, positions)?))
        };
        let (count, mut targets) = read(&made.augmented)?;
        made.heard = (count, std::mem::take(&mut targets.bad));
        if !made.heard.1.is_empty() {
            let whole: Vec<usize> = made.heard.1.iter().map(|bad| bad.row).collect();
            made.augmented = augment(&whole);
            targets = read(&made.augmented)?.1;
            made.blank = targets.bad.iter().map(|bad| bad.row).collect();
        }
        made.targets = Some(targets.mels);
        Ok(made)
    }

    /// The slot for the conditioning input of a batch, as soon as it may be written.
    fn conditioning_input(
        &self,
        rows: usize,
        range: Range<usize>,
        made: &mut BatchCost,
    ) -> Result<ConditioningInput, TrainError> {
        let Some(engine) = &self.engine else {
            return Err(TrainError::Feed("no device computes the conditioning of these batches".into()));
        };
        ConditioningEngine::wait_for_input(engine, rows, range, made)
    }

    /// Makes the batches of a plan in their order, from batch `first` on.
    pub fn maker(
        mut self,
        source: Arc<dyn RecordSource>,
        batches: &Arc<Batches>,
        first: u64,
        options: LoaderOptions,
    ) -> Result<Maker<GptBatch>, TrainError> {
        // The loader does not read these clips: bad ones are counted here, in the order of batches.
        let mut quarantine = Quarantine::new(options.budget).with_remedy("rows with its audio are left out");
        let notes = options.notes.clone();
        maker_of(source, batches, first, options, move |bytes, info, into, made| {
            let filled = self.fill(bytes, info, into, made)?;
            let (read, bad) = &filled.1.heard;
            let bad = bad.iter().map(|bad| (bad.record, &bad.problem));
            quarantine.count(info.step, *read, bad, &notes)?;
            Ok(filled)
        })
    }
}

/// The rows of a batch after augmentation.
#[derive(Default)]
struct Augmentation {
    /// `None` where nothing is augmented.
    augmented: Option<Augmented>,
    /// Targets of the acoustic head; `None` without one.
    targets: Option<Vec<f32>>,
    /// Number of clips that these were read from, and the rows where one was bad.
    heard: (u64, Vec<BadRow>),
    /// Rows that have no targets.
    blank: Vec<usize>,
}

/// The lengths with 0 for some rows: what has no codes has no targets.
fn without(lengths: &[i32], blank: &[usize]) -> Vec<i32> {
    let length = |(row, &length): (usize, &i32)| if blank.contains(&row) { 0 } else { length };
    lengths.iter().enumerate().map(length).collect()
}
