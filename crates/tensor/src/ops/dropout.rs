//! Inverted dropout. The mask is a function of the step's seed, a stream fixed when the tape is built, and the
//! element index: the same on every device, recomputed for the gradient and for recomputation, never stored.
//! Replicas sample for their rows what one device would sample for the same rows of the whole batch.

use crate::args;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::random::philox;
use crate::step::control;
use crate::tape::{EngineBuffer, Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Parameters of a mask. The seed is Philox's key; the stream is a word of its counter, so two streams of a seed
/// never share a random number.
#[derive(Clone, Copy, Debug)]
struct DropoutMask {
    stream: u32,
    /// Elements with a random word below this are dropped.
    threshold: u32,
    scale: f32,
    /// Philox blocks (four numbers each) used by the rows of earlier replicas.
    first: u64,
}

impl DropoutMask {
    /// `y += x * mask`.
    fn add(&self, x: &[f32], y: &mut [f32], seed: [u32; 2]) {
        const PIECE: usize = 1 << 12;
        x.par_chunks(PIECE).zip(y.par_chunks_mut(PIECE)).enumerate().for_each(|(piece, (x, y))| {
            let first = self.first + (piece * PIECE / 4) as u64;
            for (block, (x, y)) in (first..).zip(x.chunks(4).zip(y.chunks_mut(4))) {
                let words = philox([block as u32, (block >> 32) as u32, self.stream, 0], seed);
                for ((y, x), word) in y.iter_mut().zip(x).zip(words) {
                    *y += if word >= self.threshold { x * self.scale } else { 0.0 };
                }
            }
        });
    }

    /// `base + x * mask`, where there is a base.
    fn launch(&self, io: &CudaIo<'_>, base: u64) -> Result<(), Error> {
        let n = io.output_shape(0).len();
        let name = format!("dropout_{}", float(io.output_dtype(0)).suffix());
        let seed = io.input(1) + 4 * control::SEED as u64;
        let (stream, threshold, scale) = (self.stream, self.threshold, self.scale);
        let args = args![
            io.output(0),
            base,
            io.input(0),
            seed,
            n as i64,
            self.first as i64,
            stream,
            threshold,
            scale
        ];
        io.launch(&name, Launch::each(n.div_ceil(8)), &args)
    }
}

fn seed(io: &CpuIo<'_>) -> [u32; 2] {
    [io.f32(1)[control::SEED].to_bits(), io.f32(1)[control::SEED + 1].to_bits()]
}

/// Inputs: x, the control buffer. Output: as x.
#[derive(Clone, Copy, Debug)]
struct Dropout(DropoutMask);

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, seed) = (io.f32(0), seed(io));
        self.0.add(x, io.accumulate(0), seed);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        self.0.launch(io, io.base(0))
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (dy, control) = (g.result_gradient(), g.input(1));
        let target = g.target(0);
        g.push(DropoutBackward(self.0), &[dy, control], &[target]);
    }
}

/// Inputs: x, the control buffer, the residual. Output: the residual plus the masked x.
#[derive(Clone, Copy, Debug)]
struct DropoutAdd(DropoutMask);

impl Op for DropoutAdd {
    fn name(&self) -> &'static str {
        "dropout_add"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, seed, residual) = (io.f32(0), seed(io), io.f32(2));
        let y = io.take(0);
        y.copy_from_slice(residual);
        self.0.add(x, y, seed);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        self.0.launch(io, io.input(2))
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (dy, control) = (g.result_gradient(), g.input(1));
        if g.wants(0) {
            let target = g.target(0);
            g.push(DropoutBackward(self.0), &[dy, control], &[target]);
        }
        g.pass(2, dy);
    }
}

/// Inputs: dy, the control buffer. Output: dx.
#[derive(Clone, Copy, Debug)]
struct DropoutBackward(DropoutMask);

impl Op for DropoutBackward {
    fn name(&self) -> &'static str {
        "dropout'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, seed) = (io.f32(0), seed(io));
        self.0.add(dy, io.accumulate(0), seed);
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        self.0.launch(io, io.base(0))
    }
}

impl Tape {
    /// `x` with a fraction `p` of its elements set to zero and the rest divided by `1 - p`. The mask changes with
    /// the step's seed (`Control::seed`); every call on a tape has a different mask.
    pub fn dropout(&mut self, x: Value, p: f32) -> Value {
        match self.dropout_mask(x, p) {
            Some(mask) => {
                let control = self.engine_buffer(EngineBuffer::Control);
                let spec = Spec::new(self.shape(x), float(self.info(x).dtype));
                self.push_one(Dropout(mask), &[x, control], spec)
            }
            None => x,
        }
    }

    /// `residual + dropout(x)` in one pass over memory: the end of a transformer block.
    pub fn dropout_add(&mut self, x: Value, residual: Value, p: f32) -> Value {
        let Some(mask) = self.dropout_mask(x, p) else { return self.add(residual, x) };
        let (info, other) = (self.info(x).clone(), self.info(residual));
        assert_eq!(
            (info.shape, info.dtype),
            (other.shape, other.dtype),
            "both operands must have the same shape and type"
        );
        self.check_gradient_type(residual);
        let control = self.engine_buffer(EngineBuffer::Control);
        let spec = Spec::new(info.shape, float(info.dtype));
        self.push_one(DropoutAdd(mask), &[x, control, residual], spec)
    }

    fn dropout_mask(&mut self, x: Value, p: f32) -> Option<DropoutMask> {
        assert!((0.0..1.0).contains(&p), "the dropout rate must be at least 0 and below 1, not {p}");
        // Taken even if nothing is dropped, so that the streams of later operations stay the same.
        let stream = self.next_stream();
        if p == 0.0 {
            return None;
        }
        self.check_gradient_type(x);
        let threshold = (f64::from(p) * 4_294_967_296.0) as u32;
        // Equal slices of a batch have equal length. (A slice whose length is not a multiple of four still has
        // unique random numbers, but not those of the whole batch; channels are multiples of eight.)
        let first = u64::from(self.replica()) * self.shape(x).len().div_ceil(4) as u64;
        Some(DropoutMask { stream, threshold, scale: 1.0 / (1.0 - p), first })
    }
}
