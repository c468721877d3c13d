//! Decodes a GPT on CUDA, many sequences at once: bf16 weights and caches, a step captured as one graph, codes
//! sampled on the device.
//!
//! A *slot* holds the keys and values of one sequence. A *row* is a slot's position in the batch of a step: the
//! host decides which slot has which row, and the output of a slot depends neither on its row nor on the other
//! rows.
//!
//! | buffer | shape | type |
//! |---|---|---|
//! | keys, values | `[layers, slots, heads, room, head size]` | bf16 |
//! | the residual stream, queries | `[rows, width]` | f32 |
//! | codes, latents | `[steps, rows]`, `[steps, rows, width]` | i32, f32 |
//!
//! Sums, norms, softmax and outputs are f32.

mod buffers;
mod prompt;
mod queue;
mod sizes;

pub use prompt::SlotPrompt;
pub use sizes::{DecodeSizes, MAX_ROWS, Weight};

use crate::cuda::Cuda;
use crate::cuda::graph::Graph;
use crate::engine::Engine;
use crate::error::Error;
use crate::parameters::ParameterId;
use buffers::Buffers;
use sizes::{WeightLocation, WeightOffsets};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of steps queued without reading back.
pub const MAX_STEPS: usize = 32;

/// Steps per captured graph: launching a graph costs the device a few microseconds.
const CAPTURED_STEPS: usize = 8;

/// State of a row of the batch, as the kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Row {
    /// Slot whose keys and values it uses; negative for an empty row.
    pub slot: i32,
    /// Number of rows of the slot before this one.
    pub position: i32,
    /// Number of codes of the slot before this one; in a prompt, the index of the row's voice vector.
    pub code_index: i32,
    /// The previous code, or START.
    pub code: i32,
    /// Codes sampled since the rows were sent.
    pub emitted: i32,
    /// 0 while it is running; otherwise one of the status constants.
    pub status: i32,
    /// Keys of the slot from this row on are written by the step itself.
    pub fresh: i32,
    /// Row of the batch that holds the same sequence without its text, for classifier-free guidance; or a constant.
    pub pair: i32,
}

impl Row {
    /// A row without a slot.
    pub const EMPTY: Row = Row {
        slot: -1,
        position: 0,
        code_index: 0,
        code: 0,
        emitted: 0,
        status: 0,
        fresh: 0,
        pair: Row::UNGUIDED,
    };
    /// `pair` of a row without guidance.
    pub const UNGUIDED: i32 = -1;
    /// `pair` of a row that guides another one.
    pub const GUIDE: i32 = -2;
    /// `status` after STOP was sampled.
    pub const STOPPED: i32 = 1;
    /// `status` at the slot's code limit.
    pub const AT_LIMIT: i32 = 2;
    /// `status` if all logits are NaN.
    pub const ALL_NAN: i32 = 3;
}

/// Sampling parameters of a slot; the rules are those of the model crate's sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotSampling {
    /// Divisor of the logits.
    pub temperature: f32,
    /// Probability mass of the most likely codes that are sampled from.
    pub top_p: f32,
    /// Repetition penalty for codes emitted before.
    pub penalty: f32,
    /// Number of most likely codes that are sampled from; 0 for all, of which the device uses the first 2048.
    pub top_k: usize,
    /// Guidance strength: how far logits move away from those of the row's pair.
    pub guidance: f32,
    /// Always take the most likely code.
    pub greedy: bool,
    /// The slot ends after this many codes.
    pub limit: usize,
    /// Codes that count as emitted from the beginning.
    pub seen_codes: Vec<usize>,
    /// One uniform number in 0 .. 1 for each code that can be sampled.
    pub uniforms: Vec<f64>,
}

/// Outputs of the finished steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutputs<'a> {
    /// The rows after the steps; `emitted` is the number of codes each has produced.
    pub rows: &'a [Row],
    /// `[steps, rows]`.
    pub codes: &'a [i32],
    /// The states that predicted them, `[steps, rows, width]`.
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
    offsets: WeightOffsets,
    buffers: Buffers,
    /// Captured graphs by rows and steps; 0 steps means a prompt.
    graphs: BTreeMap<(usize, usize), Graph>,
    /// Batch sizes whose kernels have run once: capture must not be what loads them.
    warm: Vec<(usize, bool)>,
    in_flight: Option<InFlight>,
    /// By slot: the voice whose keys and values are in its first rows.
    voices: Vec<Option<Arc<[f32]>>>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({:?})", self.sizes)
    }
}

impl Decoder {
    /// Allocates weights, caches and the buffers of a step.
    pub fn new(cuda: Arc<Cuda>, sizes: DecodeSizes) -> Result<Decoder, Error> {
        sizes.check()?;
        if cuda.capability().0 < 8 {
            return Err(Error::Unsupported(format!("{} does not support bf16: use f32", cuda.name())));
        }
        cuda.bind()?;
        let offsets = WeightOffsets::new(&sizes);
        let buffers = Buffers::new(&cuda, &sizes, &offsets)?;
        let (graphs, warm, in_flight) = (BTreeMap::new(), Vec::new(), None);
        let voices = vec![None; sizes.slots];
        Ok(Decoder { cuda, sizes, offsets, buffers, graphs, warm, in_flight, voices })
    }

    /// The sizes it was created with.
    pub fn sizes(&self) -> &DecodeSizes {
        &self.sizes
    }

    /// The device it runs on.
    pub fn cuda(&self) -> &Arc<Cuda> {
        &self.cuda
    }

    /// Device memory it holds, in bytes.
    pub fn bytes(&self) -> usize {
        self.buffers.bytes()
    }

    /// Drops the captured graphs, so that they are captured again. CUPTI only sees the kernels of graphs captured
    /// while it was recording.
    pub fn recapture(&mut self) -> Result<(), Error> {
        self.cuda.bind()?;
        self.cuda.synchronize()?;
        self.graphs.clear();
        Ok(())
    }

    /// Writes a matrix, the scale of a norm, or a table.
    pub fn write_weight(&mut self, which: Weight, data: &[f32]) -> Result<(), Error> {
        self.cuda.bind()?;
        self.voices.fill(None);
        match self.offsets.locate(which) {
            WeightLocation::Product(product) => {
                assert_eq!(data.len(), product.features * product.inputs, "{which:?} has a different size");
                self.buffers.write_matrix(&self.cuda, &product, data)
            }
            WeightLocation::Norm(at) | WeightLocation::Table(at) => {
                assert_eq!(
                    data.len(),
                    self.rows_of(which) * self.sizes.width,
                    "{which:?} has a different size"
                );
                self.buffers.write_floats(&self.cuda, at, data)
            }
        }
    }

    /// Writes the bias of a matrix or a norm.
    pub fn write_bias(&mut self, which: Weight, data: &[f32]) -> Result<(), Error> {
        self.cuda.bind()?;
        self.voices.fill(None);
        let (at, len) = self.bias_of(which)?;
        assert_eq!(data.len(), len, "the bias of {which:?} has a different size");
        self.buffers.write_floats(&self.cuda, at, data)
    }

    /// Number of rows of a norm or a table.
    fn rows_of(&self, which: Weight) -> usize {
        match which {
            Weight::AudioTable => self.sizes.vocabulary,
            Weight::AudioPositions => self.sizes.positions,
            Weight::TextTable => self.sizes.text_vocabulary,
            Weight::TextPositions => self.sizes.text_positions,
            _ => 1,
        }
    }

    /// Offset and length of a bias.
    fn bias_of(&self, which: Weight) -> Result<(usize, usize), Error> {
        match self.offsets.locate(which) {
            WeightLocation::Product(product) => Ok((product.bias, product.features)),
            WeightLocation::Norm(at) => Ok((at + self.sizes.width, self.sizes.width)),
            WeightLocation::Table(_) => Err(Error::Unsupported(format!("{which:?} has no bias"))),
        }
    }

    /// As `write_weight`, from an engine's weights on the same device. Returns false, without effect, if the engine
    /// is on another device or rows have to be padded.
    pub fn copy_weight(&mut self, which: Weight, from: &Engine, id: ParameterId) -> Result<bool, Error> {
        let place = self.offsets.locate(which);
        let count = match place {
            WeightLocation::Product(product) if product.stride() != product.inputs => return Ok(false),
            WeightLocation::Product(product) => product.features * product.inputs,
            WeightLocation::Norm(_) | WeightLocation::Table(_) => self.rows_of(which) * self.sizes.width,
        };
        let Some(from) = from.parameter_on(&self.cuda, id, count) else { return Ok(false) };
        self.cuda.bind()?;
        self.voices.fill(None);
        match place {
            WeightLocation::Product(product) => {
                self.round(self.buffers.rounded.address() + 2 * product.matrix as u64, from, count)?;
            }
            WeightLocation::Norm(at) | WeightLocation::Table(at) => {
                self.buffers.copy_floats(&self.cuda, at, from, count)?
            }
        }
        Ok(true)
    }

    /// As `write_bias`, from an engine's weights on the same device.
    pub fn copy_bias(&mut self, which: Weight, from: &Engine, id: ParameterId) -> Result<bool, Error> {
        let (at, count) = self.bias_of(which)?;
        let Some(from) = from.parameter_on(&self.cuda, id, count) else { return Ok(false) };
        self.cuda.bind()?;
        self.voices.fill(None);
        self.buffers.copy_floats(&self.cuda, at, from, count)?;
        Ok(true)
    }

    /// Sets how the next codes of a slot are sampled.
    pub fn set_sampling(&mut self, slot: usize, sampling: &SlotSampling) -> Result<(), Error> {
        assert!(self.in_flight.is_none(), "steps are still in flight");
        assert!(slot < self.sizes.slots);
        self.cuda.bind()?;
        self.buffers.write_sampling(&self.cuda, &self.sizes, slot, sampling)
    }

    /// Queues `steps` steps of these rows. `finish` returns their outputs.
    pub fn advance(&mut self, rows: &[Row], steps: usize) -> Result<(), Error> {
        assert!(self.in_flight.is_none(), "steps are still in flight");
        assert!((1..=MAX_STEPS).contains(&steps) && !rows.is_empty() && rows.len() <= MAX_ROWS);
        for row in rows {
            assert!(row.slot < self.sizes.slots as i32 && row.emitted == 0 && row.code >= 0);
            assert!(row.pair < rows.len() as i32 && row.fresh == row.position);
            assert!(
                (row.code as usize) < self.sizes.vocabulary
                    && (row.code_index as usize) < self.sizes.positions
            );
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

    /// Waits for the queued steps; `None` if none were queued.
    pub fn finish(&mut self) -> Result<Option<StepOutputs<'_>>, Error> {
        let Some(InFlight { batch, steps }) = self.in_flight.take() else { return Ok(None) };
        self.cuda.bind()?;
        self.cuda.synchronize()?;
        Ok(Some(self.buffers.received(batch, steps, self.sizes.width)))
    }
}

/// Graphs are captured for few batch sizes: the next power of two.
fn bucket(rows: usize) -> usize {
    rows.next_power_of_two().min(MAX_ROWS)
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // Memory must not be freed while a kernel still uses it.
        if self.cuda.bind().is_ok() {
            let _ = self.cuda.synchronize();
        }
    }
}
