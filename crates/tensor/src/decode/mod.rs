//! Decoding a GPT on CUDA, many sequences at once: bf16 weights and caches, a step recorded as one graph, codes drawn on
//! the device.
//!
//! A *slot* has keys and values of its own. A *row* is the place of a slot in the batch of a step: the host says which slot
//! has which row, and what becomes of a slot depends neither on its row nor on the other rows.
//!
//! | buffer | shape | type |
//! |---|---|---|
//! | keys, values | `[layers, slots, heads, room, head size]` | bf16 |
//! | the residual stream, queries | `[rows, width]` | f32 |
//! | codes, latents | `[steps, rows]`, `[steps, rows, width]` | i32, f32 |
//!
//! Sums are f32, as are norms, softmax and what is handed out.

mod buffers;
mod prompt;
mod queue;
mod sizes;

pub use prompt::SlotPrompt;
pub use sizes::{DecodeSizes, MOST_ROWS, Weight};

use crate::cuda::Cuda;
use crate::cuda::graph::Graph;
use crate::engine::Engine;
use crate::error::Error;
use crate::parameters::ParameterId;
use buffers::Buffers;
use sizes::{Place, Places};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most steps that are queued without looking.
pub const MOST_STEPS: usize = 32;

/// Steps of one recording: starting a recording costs the device a few microseconds.
const RECORDED_STEPS: usize = 8;

/// A row of the batch as kernels see it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Row {
    /// Whose keys and values; negative: nobody's.
    pub slot: i32,
    /// Rows of the slot before this one.
    pub position: i32,
    /// Codes of the slot before this one.
    pub place: i32,
    /// The code before this one, or START.
    pub code: i32,
    /// Codes that were drawn since the rows were given.
    pub emitted: i32,
    /// 0 while it goes on; see the constants.
    pub status: i32,
    /// Keys of the slot from this row on are written by the step itself.
    pub fresh: i32,
    /// The row of the batch that says the same without its text, by which this one is guided; or a constant.
    pub pair: i32,
}

impl Row {
    /// A row of nobody.
    pub const EMPTY: Row =
        Row { slot: -1, position: 0, place: 0, code: 0, emitted: 0, status: 0, fresh: 0, pair: Row::ALONE };
    /// A row that nothing guides.
    pub const ALONE: i32 = -1;
    /// A row that another is guided by.
    pub const GUIDES: i32 = -2;
    /// STOP was drawn.
    pub const STOPPED: i32 = 1;
    /// The slot's limit is reached.
    pub const AT_LIMIT: i32 = 2;
    /// No logit is a number.
    pub const NO_NUMBERS: i32 = 3;
}

/// How the codes of a slot are drawn; the rules are those of the model crate's sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotSampling {
    /// What logits are divided by.
    pub temperature: f32,
    /// The share of the most likely codes that are drawn from.
    pub top_p: f32,
    /// How much less likely codes become that were said.
    pub penalty: f32,
    /// How many of the most likely codes are drawn from; 0 for all, of which the device takes the first 2048.
    pub top_k: usize,
    /// How far logits are moved away from those of the row's pair.
    pub guidance: f32,
    /// Always the most likely code.
    pub greedy: bool,
    /// The slot ends after so many codes.
    pub limit: usize,
    /// Codes that count as said from the beginning.
    pub said: Vec<usize>,
    /// A number in 0 .. 1 for each draw.
    pub uniforms: Vec<f64>,
}

/// What some steps have made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advanced<'a> {
    /// The rows as they are now; `emitted` says how many codes each has got.
    pub rows: &'a [Row],
    /// `[steps, rows]`.
    pub codes: &'a [i32],
    /// The states that predicted them `[steps, rows, width]`.
    pub latents: &'a [f32],
}

struct InFlight {
    batch: usize,
    steps: usize,
}

/// A GPT on a CUDA device.
pub struct Decoder {
    cuda: Arc<Cuda>,
    sizes: DecodeSizes,
    places: Places,
    buffers: Buffers,
    /// Recordings by rows and steps; 0 steps are those of a prompt.
    graphs: BTreeMap<(usize, usize), Graph>,
    /// Numbers of rows whose kernels have run once: a recording must not be what loads them.
    warm: Vec<(usize, bool)>,
    in_flight: Option<InFlight>,
    recording: bool,
    /// By slot: the voice whose keys and values are in its first rows.
    voices: Vec<Option<Arc<[f32]>>>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({:?})", self.sizes)
    }
}

impl Decoder {
    /// Takes memory for weights, caches and a step.
    pub fn new(cuda: Arc<Cuda>, sizes: DecodeSizes) -> Result<Decoder, Error> {
        sizes.check()?;
        if cuda.capability().0 < 8 {
            return Err(Error::Unsupported(format!("{} has no bf16: speak in f32", cuda.name())));
        }
        cuda.bind()?;
        let places = Places::new(&sizes);
        let buffers = Buffers::new(&cuda, &sizes, &places)?;
        let (graphs, warm, in_flight) = (BTreeMap::new(), Vec::new(), None);
        let voices = vec![None; sizes.slots];
        Ok(Decoder { cuda, sizes, places, buffers, graphs, warm, in_flight, recording: true, voices })
    }

    /// Its sizes.
    pub fn sizes(&self) -> &DecodeSizes {
        &self.sizes
    }

    /// The device.
    pub fn cuda(&self) -> &Arc<Cuda> {
        &self.cuda
    }

    /// Bytes it holds on the device.
    pub fn bytes(&self) -> usize {
        self.buffers.bytes()
    }

    /// Whether steps are recorded and replayed (the default), or queued kernel by kernel.
    pub fn set_recording(&mut self, recording: bool) {
        self.recording = recording;
    }

    /// Forgets the recorded steps; they are recorded again. CUPTI sees the kernels of recordings that were made while it
    /// looked.
    pub fn record_again(&mut self) -> Result<(), Error> {
        self.cuda.bind()?;
        self.cuda.synchronize()?;
        self.graphs.clear();
        Ok(())
    }

    /// Fills a matrix, a norm's factors or a table.
    pub fn write_weight(&mut self, which: Weight, data: &[f32]) -> Result<(), Error> {
        self.cuda.bind()?;
        self.voices.fill(None);
        match self.places.of(which) {
            Place::Product(product) => {
                assert_eq!(data.len(), product.features * product.inputs, "{which:?} has another size");
                self.buffers.write_matrix(&self.cuda, &product, data)
            }
            Place::Norm(at) | Place::Table(at) => {
                assert_eq!(data.len(), self.rows_of(which) * self.sizes.width, "{which:?} has another size");
                self.buffers.write_floats(&self.cuda, at, data)
            }
        }
    }

    /// Fills what is added behind a matrix or a norm's factors.
    pub fn write_bias(&mut self, which: Weight, data: &[f32]) -> Result<(), Error> {
        self.cuda.bind()?;
        self.voices.fill(None);
        let (at, len) = self.bias_of(which)?;
        assert_eq!(data.len(), len, "the bias of {which:?} has another size");
        self.buffers.write_floats(&self.cuda, at, data)
    }

    /// Rows of a norm or a table.
    fn rows_of(&self, which: Weight) -> usize {
        match which {
            Weight::AudioTable => self.sizes.vocabulary,
            Weight::AudioPositions => self.sizes.places,
            Weight::TextTable => self.sizes.text_vocabulary,
            Weight::TextPositions => self.sizes.text_places,
            _ => 1,
        }
    }

    /// Where what is added lies, and how long it is.
    fn bias_of(&self, which: Weight) -> Result<(usize, usize), Error> {
        match self.places.of(which) {
            Place::Product(product) => Ok((product.bias, product.features)),
            Place::Norm(at) => Ok((at + self.sizes.width, self.sizes.width)),
            Place::Table(_) => Err(Error::Unsupported(format!("{which:?} has no bias"))),
        }
    }

    /// As `write_weight`, with what an engine on the same device has. Says whether it could: not where the engine is elsewhere,
    /// nor where rows have to be padded.
    pub fn copy_weight(&mut self, which: Weight, from: &Engine, id: ParameterId) -> Result<bool, Error> {
        let place = self.places.of(which);
        let count = match place {
            Place::Product(product) if product.stride() != product.inputs => return Ok(false),
            Place::Product(product) => product.features * product.inputs,
            Place::Norm(_) | Place::Table(_) => self.rows_of(which) * self.sizes.width,
        };
        let Some(from) = from.parameter_on(&self.cuda, id, count) else { return Ok(false) };
        self.cuda.bind()?;
        self.voices.fill(None);
        match place {
            Place::Product(product) => {
                self.round(self.buffers.rounded.address() + 2 * product.matrix as u64, from, count)?;
            }
            Place::Norm(at) | Place::Table(at) => self.buffers.copy_floats(&self.cuda, at, from, count)?,
        }
        Ok(true)
    }

    /// As `write_bias`, with what an engine on the same device has.
    pub fn copy_bias(&mut self, which: Weight, from: &Engine, id: ParameterId) -> Result<bool, Error> {
        let (at, count) = self.bias_of(which)?;
        let Some(from) = from.parameter_on(&self.cuda, id, count) else { return Ok(false) };
        self.cuda.bind()?;
        self.voices.fill(None);
        self.buffers.copy_floats(&self.cuda, at, from, count)?;
        Ok(true)
    }

    /// How the next codes of a slot are drawn.
    pub fn set_sampling(&mut self, slot: usize, sampling: &SlotSampling) -> Result<(), Error> {
        assert!(self.in_flight.is_none(), "steps are still on their way");
        assert!(slot < self.sizes.slots);
        self.cuda.bind()?;
        self.buffers.write_sampling(&self.cuda, &self.sizes, slot, sampling)
    }

    /// Queues `steps` steps of these rows. What came of them is asked for by `finish`.
    pub fn advance(&mut self, rows: &[Row], steps: usize) -> Result<(), Error> {
        assert!(self.in_flight.is_none(), "steps are still on their way");
        assert!((1..=MOST_STEPS).contains(&steps) && !rows.is_empty() && rows.len() <= MOST_ROWS);
        for row in rows {
            assert!(row.slot < self.sizes.slots as i32 && row.emitted == 0 && row.code >= 0);
            assert!(row.pair < rows.len() as i32 && row.fresh == row.position);
            assert!((row.code as usize) < self.sizes.vocabulary && (row.place as usize) < self.sizes.places);
        }
        self.cuda.bind()?;
        let batch = bucket(rows.len());
        let mut all = rows.to_vec();
        all.resize(batch, Row::EMPTY);
        self.buffers.send_rows(&self.cuda, &all)?;
        self.run_steps(batch, steps)?;
        self.buffers.receive(&self.cuda, batch, steps, self.sizes.width)?;
        self.in_flight = Some(InFlight { batch, steps });
        Ok(())
    }

    /// Waits for the steps that were queued; none if none were.
    pub fn finish(&mut self) -> Result<Option<Advanced<'_>>, Error> {
        let Some(InFlight { batch, steps }) = self.in_flight.take() else { return Ok(None) };
        self.cuda.bind()?;
        self.cuda.synchronize()?;
        Ok(Some(self.buffers.received(batch, steps, self.sizes.width)))
    }

    /// The rows a batch of so many is computed with.
    pub fn batch_for(rows: usize) -> usize {
        bucket(rows)
    }
}

/// Few numbers of rows are recorded: the next power of two.
fn bucket(rows: usize) -> usize {
    rows.next_power_of_two().min(MOST_ROWS)
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // Nothing may be freed that a kernel still uses.
        if self.cuda.bind().is_ok() {
            let _ = self.cuda.synchronize();
        }
    }
}
