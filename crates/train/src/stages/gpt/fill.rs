//! A batch of records made what the GPT's inputs hold, byte for byte, away from the loop that trains.

use super::conditioner::{Given, Kind};
use crate::error::TrainError;
use crate::feed::{Maker, field, maker_of};
use crate::stages::clips;
use crate::stages::prompts::prompts;
use myxtts_data::batch::{BatchInfo, Plan as Batches, Rung};
use myxtts_data::cache::sounds::SOUND_OVERLAP;
use myxtts_data::loader::Options as LoaderOptions;
use myxtts_data::record::RecordSource;
use myxtts_model::sequence::{frame_lengths, repeat_frames};
use myxtts_model::{Condition, GptInputs, GptShape, GptSizes, GptTargets, Masks, Rows};
use myxtts_tensor::engine::Image;
use myxtts_tensor::parameters::Layout;
use myxtts_tensor::{Precision, Tape};
use std::collections::HashMap;
use std::sync::Arc;

/// What the loop has to know of a batch that was made.
#[derive(Clone, Debug)]
pub(super) struct GptBatch {
    pub shape: GptShape,
    pub rows: u64,
    pub records: Vec<u32>,
    /// Targets of text and of codes that count.
    pub targets: [f32; 2],
    /// What its conditioning is made of where a device makes it.
    pub given: Option<Given>,
}

/// Makes batches of records inputs of the GPT.
#[derive(Clone)]
pub(super) struct Filler {
    pub sizes: GptSizes,
    pub masks: Masks,
    pub frames: u32,
    /// Divides mels, band by band.
    pub stats: Vec<f32>,
    pub layout: Arc<Layout>,
    pub precision: Precision,
    /// What the records hold in the place of conditioning mels.
    pub kind: Kind,
    images: HashMap<GptShape, (Image, GptInputs, GptTargets)>,
}

impl Filler {
    pub fn new(
        sizes: GptSizes,
        (masks, frames, stats): (Masks, u32, Vec<f32>),
        (layout, precision): (Arc<Layout>, Precision),
    ) -> Filler {
        Filler { sizes, masks, frames, stats, layout, precision, kind: Kind::Mels, images: HashMap::new() }
    }

    /// The shape of the inputs of a batch.
    pub fn shape(&self, rows: u32, rung: Rung) -> GptShape {
        let (text, mel) = self.masks.places(rung.tokens as usize, rung.frames as usize);
        GptShape { batch: rows as usize, frames: self.frames as usize, text, mel }
    }

    /// A tape that has the inputs of a shape and nothing else yet.
    pub fn tape(&self, shape: GptShape) -> (Tape, GptInputs, GptTargets) {
        let mut tape = Tape::new(self.layout.clone(), self.precision);
        let inputs = GptInputs::new(&mut tape, &self.sizes, shape, self.masks);
        let targets = GptTargets::new(&mut tape, shape);
        (tape, inputs, targets)
    }

    /// Bytes of the inputs of a shape.
    pub fn bytes(&self, shape: GptShape) -> usize {
        Image::of(&self.tape(shape).0).bytes()
    }

    /// Writes the inputs of a batch, and says how many bytes they are.
    fn fill(
        &mut self,
        bytes: &[u8],
        info: &BatchInfo,
        into: &mut [u8],
    ) -> Result<(usize, GptBatch), TrainError> {
        let layout = &info.layout;
        let shape = self.shape(layout.rows(), layout.rung());
        if !self.images.contains_key(&shape) {
            let (tape, inputs, targets) = self.tape(shape);
            self.images.insert(shape, (Image::of(&tape), inputs, targets));
        }
        let (image, inputs, targets) = &self.images[&shape];
        let ints = |name: &str| -> &[i32] { bytemuck::cast_slice(field(bytes, info, name)) };
        let rows = Rows {
            text: ints("tokens"),
            text_lengths: ints("tokens_rows"),
            codes: ints("codes"),
            code_lengths: ints("codes_rows"),
            prompts: &prompts(info),
        };
        let sequences = self.masks.sequences(&self.sizes, &rows)?;
        let mut given = None;
        if let Condition::Mels { mels: input, lengths } = inputs.condition {
            let (name, heard) = ("companion_conditioning_mel", ints("companion_conditioning_mel_rows"));
            match self.kind {
                Kind::Mels => {
                    let mut mels: Vec<f32> = bytemuck::cast_slice(field(bytes, info, name)).to_vec();
                    for frame in mels.chunks_exact_mut(self.stats.len()) {
                        frame.iter_mut().zip(&self.stats).for_each(|(x, s)| *x /= s);
                    }
                    if lengths.is_some() {
                        repeat_frames(&mut mels, self.stats.len(), heard);
                    }
                    image.write(into, input, &mels);
                }
                Kind::Places { silence } => {
                    let places = ints(name).iter().map(|&place| if place < 0 { silence } else { place });
                    given = Some(Given {
                        places: places.collect(),
                        sound: Vec::new(),
                        ..given_for(image, input, shape)
                    });
                }
                Kind::Sound => {
                    let silence = (shape.batch * shape.frames) as i32;
                    let place =
                        |at: usize| match (at % shape.frames) < heard[at / shape.frames].max(0) as usize {
                            true => at as i32,
                            false => silence,
                        };
                    let mut sound: Vec<f32> = bytemuck::cast_slice(field(bytes, info, name)).to_vec();
                    let row = sound.len() / shape.batch;
                    let hop = row / (shape.frames + SOUND_OVERLAP as usize);
                    for (row, &heard) in sound.chunks_exact_mut(row).zip(heard) {
                        // What stands behind the end was written for mels.
                        let sounding = match heard {
                            0 => 0,
                            heard => (heard.max(0) as usize + SOUND_OVERLAP as usize) * hop,
                        };
                        row[sounding..].fill(0.0);
                    }
                    sound.resize(sound.len() + row, 0.0);
                    let places = (0..shape.batch * shape.frames).map(place).collect();
                    given = Some(Given { places, sound, ..given_for(image, input, shape) });
                }
            }
            if let (Some(given), true) = (&mut given, lengths.is_some()) {
                repeat_frames(&mut given.places, 1, heard);
            }
            if let Some(lengths) = lengths {
                let (frames, with_latents) = frame_lengths(&self.sizes, heard);
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
        let records = clips(&[ints("record"), ints("companion")]);
        let targets = [&sequences.text_targets, &sequences.mel_targets]
            .map(|targets| targets.iter().filter(|&&target| target >= 0).count() as f32);
        Ok((image.bytes(), GptBatch { shape, rows: u64::from(info.rows_valid), records, targets, given }))
    }

    /// Makes the batches of a plan in their order, from batch `first` on.
    pub fn maker(
        mut self,
        source: Arc<dyn RecordSource>,
        batches: &Arc<Batches>,
        first: u64,
        options: LoaderOptions,
    ) -> Result<Maker<GptBatch>, TrainError> {
        maker_of(source, batches, first, options, move |bytes, info, into| self.fill(bytes, info, into))
    }
}

/// Nothing yet, for the conditioning of a batch of this shape.
fn given_for(image: &Image, input: myxtts_tensor::Value, shape: GptShape) -> Given {
    let (places, sound) = (Vec::new(), Vec::new());
    Given { places, sound, rows: shape.batch, range: image.range(input) }
}
