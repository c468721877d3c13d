//! Attention without the score matrix in memory: flash kernels on CUDA, one head at a time on the CPU.

use crate::args;
use crate::cpu::attention::{Head, KeyMask, QUERY_BLOCK, Workspace};
use crate::cpu::matrix::Matrix;
use crate::cuda::launch::{Arg, Launch};
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op};
use crate::shape::{DType, Shape};
use crate::tape::{Gradients, Spec, Tape, Value};
use rayon::prelude::*;

/// Channel order of queries, keys and values in a combined projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All queries, then all keys, then all values: `[3, heads, size]`, as in GPT-2.
    Parts,
    /// Query, key and value of each head together: `[heads, 3, size]`, as in XTTS's conditioning encoder.
    Heads,
}

/// Which keys each query sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mask {
    /// A query sees the keys up to its own position; with fewer queries than keys, the queries are the last
    /// positions.
    pub causal: bool,
    /// Keys from this index on are hidden: i32 `[batch]`.
    pub lengths: Option<Value>,
    /// Keys with a 0 are hidden: i32 `[batch, keys]`.
    pub keys: Option<Value>,
}

/// Location of queries, keys or values: input index, first channel, and distance between heads.
#[derive(Clone, Copy, Debug)]
struct Part {
    input: usize,
    start: usize,
    row: usize,
    head: usize,
}

#[derive(Clone, Copy, Debug)]
struct Attention {
    heads: usize,
    size: usize,
    scale: f32,
    causal: bool,
    lengths: bool,
    keys: bool,
    /// Number of inputs that hold query, key and value: one, two or three.
    sources: usize,
    parts: [Part; 3],
}

/// Sizes of one call.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    queries: usize,
    keys: usize,
}

impl Attention {
    fn sizes(&self, shape: impl Fn(usize) -> Shape) -> Sizes {
        let (q, k) = (shape(self.parts[0].input), shape(self.parts[1].input));
        Sizes { batch: q.dim(0), queries: q.dim(1), keys: k.dim(1) }
    }

    fn mask_inputs(&self) -> (Option<usize>, Option<usize>) {
        let lengths = self.lengths.then_some(self.sources);
        let keys = self.keys.then_some(self.sources + usize::from(self.lengths));
        (lengths, keys)
    }

    /// Channels of one head of one part, as a matrix whose rows are time steps.
    fn matrix<'a>(&self, data: &'a [f32], part: Part, times: usize, batch: usize, head: usize) -> Matrix<'a> {
        Matrix::strided(&data[batch * times * part.row + part.start + head * part.head..], part.row)
    }

    fn head<'a>(&self, sources: [&'a [f32]; 3], sizes: Sizes, batch: usize, head: usize) -> Head<'a> {
        let [q, k, v] = [0, 1, 2].map(|p| {
            let times = if p == 0 { sizes.queries } else { sizes.keys };
            self.matrix(sources[p], self.parts[p], times, batch, head)
        });
        Head { q, k, v, size: self.size, scale: self.scale }
    }

    /// What the queries of each item see.
    fn key_masks<'a>(&self, io: &CpuIo<'a>, sizes: Sizes) -> Vec<KeyMask<'a>> {
        let (lengths, visible) = self.mask_inputs();
        let Sizes { batch, queries, keys } = sizes;
        let item = |b: usize| KeyMask {
            queries,
            keys,
            causal: self.causal,
            length: lengths.map_or(keys, |i| (io.i32(i)[b].max(0) as usize).min(keys)),
            visible: visible.map(|i| &io.i32(i)[b * keys..][..keys]),
        };
        (0..batch).map(item).collect()
    }

    /// A kernel's view of one part: base, batch stride, time and head strides.
    fn view(&self, base: u64, part: Part, times: usize, dtype: DType) -> Arg {
        let strides = (part.row as u64) | (part.head as u64) << 32;
        Arg::words(&[base + (part.start * dtype.size()) as u64, (times * part.row) as u64, strides])
    }

    /// The view of a packed output `[batch, times, heads, size]`.
    fn packed(&self, base: u64, times: usize, dtype: DType) -> Arg {
        let row = self.heads * self.size;
        self.view(base, Part { input: 0, start: 0, row, head: self.size }, times, dtype)
    }

    fn check(&self, dtype: DType) -> Result<(), Error> {
        let served = match dtype {
            DType::Bf16 => self.size == 64 || self.size == 32,
            _ => self.size.is_multiple_of(4) && self.size <= 128,
        };
        if served {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "attention with heads of {} channels: CUDA supports 32 and 64 (in f32 any multiple of 4 up to 128)",
            self.size
        )))
    }

    /// Rows per block of the bf16 kernels.
    fn rows(&self) -> usize {
        if self.size == 64 { 128 } else { 64 }
    }

    fn tail(&self, io: &CudaIo<'_>, sizes: Sizes) -> Vec<Arg> {
        let (lengths, keys) = self.mask_inputs();
        let mut args = args![
            lengths.map_or(0, |i| io.input(i)),
            keys.map_or(0, |i| io.input(i)),
            sizes.batch,
            self.heads,
            sizes.queries,
            sizes.keys,
            i32::from(self.causal),
            self.scale
        ]
        .to_vec();
        if io.dtype(0) == DType::F32 {
            args.push(Arg::from(self.size));
        }
        args
    }

    fn kernel(&self, pass: &str, dtype: DType) -> String {
        match dtype {
            DType::Bf16 => format!("attention_{pass}_bf16_d{}", self.size),
            _ => format!("attention_{pass}_f32"),
        }
    }

    /// Row stride in the shared memory of the f32 kernels, in floats.
    fn pitch(&self) -> usize {
        self.size.next_multiple_of(16) + 4
    }
}

/// Inputs: one to three sources, lengths, keys. Outputs: o `[batch, queries, heads * size]`, lse `[batch, heads,
/// queries]`.
impl Op for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let sizes = self.sizes(|i| io.shape(i));
        let (t, d, row) = (sizes.queries, self.size, self.heads * self.size);
        let key_masks = self.key_masks(io, sizes);
        let sources = self.parts.map(|p| io.f32(p.input));
        let (o, lse) = (io.take(0), io.take(1));
        let items = o.par_chunks_mut(t * row).zip(lse.par_chunks_mut(self.heads * t)).zip(&key_masks);
        items.enumerate().for_each(|(b, ((o, lse), key_mask))| {
            // One task per block of queries, for all heads: their outputs are contiguous, their log-sum-exps are
            // not.
            let blocks = o.par_chunks_mut(QUERY_BLOCK * row).enumerate();
            let logs: Vec<Vec<f32>> = blocks
                .map_init(Workspace::default, |space, (i, o)| {
                    let queries = i * QUERY_BLOCK..i * QUERY_BLOCK + o.len() / row;
                    let mut logs = vec![0f32; self.heads * queries.len()];
                    for (h, logs) in logs.chunks_mut(queries.len()).enumerate() {
                        let head = self.head(sources, sizes, b, h);
                        head.forward(key_mask, queries.clone(), space, (&mut o[h * d..], row), logs);
                    }
                    logs
                })
                .collect();
            for (i, logs) in logs.iter().enumerate() {
                for (h, logs) in logs.chunks(logs.len() / self.heads).enumerate() {
                    lse[h * t + i * QUERY_BLOCK..][..logs.len()].copy_from_slice(logs);
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let dtype = io.dtype(0);
        self.check(dtype)?;
        let sizes = self.sizes(|i| io.shape(i));
        let mut args = self.sources_of(io, sizes, dtype);
        args.push(self.packed(io.output(0), sizes.queries, dtype));
        args.push(Arg::from(io.output(1)));
        args.extend(self.tail(io, sizes));
        let heads = sizes.batch * self.heads;
        let launch = match dtype {
            DType::Bf16 => {
                let rows = self.rows();
                Launch::line(heads * sizes.queries.div_ceil(rows), 128).shared((rows + 256) * self.size * 2)
            }
            _ => {
                let shared = 4 * (64 * self.pitch() + 32 * 17);
                Launch::line(heads * sizes.queries.div_ceil(32), 128).shared(shared)
            }
        };
        io.launch(&self.kernel("forward", dtype), launch, &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let gradient = g.result_gradient();
        let (o, lse) = (g.output(0), g.output(1));
        let mut inputs: Vec<Value> = (0..g.inputs()).map(|i| g.input(i)).collect();
        inputs.extend([o, lse, gradient]);
        let dtype = g.tape().info(gradient).dtype;
        let mut outputs: Vec<Spec> =
            (0..self.sources).map(|i| Spec::constant(g.input_shape(i), dtype)).collect();
        let space = g.tape().shape(lse);
        outputs.push(Spec::constant(space, DType::F32));
        let results = g.tape().push(AttentionBackward(*self), &inputs, &outputs);
        for (i, &value) in results[..self.sources].iter().enumerate() {
            g.pass(i, value);
        }
    }
}

impl Attention {
    fn sources_of(&self, io: &CudaIo<'_>, sizes: Sizes, dtype: DType) -> Vec<Arg> {
        (0..3)
            .map(|p| {
                let part = self.parts[p];
                let times = if p == 0 { sizes.queries } else { sizes.keys };
                self.view(io.input(part.input), part, times, dtype)
            })
            .collect()
    }
}

/// Inputs: those of the forward pass, o, lse, do. Outputs: the gradient of each source, delta `[batch, heads,
/// queries]`.
#[derive(Debug)]
struct AttentionBackward(Attention);

impl Op for AttentionBackward {
    fn name(&self) -> &'static str {
        "attention'"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let a = &self.0;
        let sizes = a.sizes(|i| io.shape(i));
        let (t, d) = (sizes.queries, a.size);
        let key_masks = a.key_masks(io, sizes);
        let sources = a.parts.map(|p| io.f32(p.input));
        let n = io.inputs();
        let (lse, grad) = (io.f32(n - 2), io.f32(n - 1));
        let out = Part { input: 0, start: 0, row: a.heads * d, head: d };
        let parts: Vec<[Vec<f32>; 3]> = (0..sizes.batch * a.heads)
            .into_par_iter()
            .map_init(Workspace::default, |space, i| {
                let (b, h) = (i / a.heads, i % a.heads);
                let grad = a.matrix(grad, out, t, b, h);
                a.head(sources, sizes, b, h).backward(&key_masks[b], space, grad, &lse[i * t..][..t])
            })
            .collect();
        let mut results: Vec<&mut [f32]> = (0..a.sources).map(|i| io.take(i)).collect();
        for (p, part) in a.parts.iter().enumerate() {
            let times = if p == 0 { t } else { sizes.keys };
            let heads: Vec<&Vec<f32>> = parts.iter().map(|three| &three[p]).collect();
            scatter(results[part.input], &heads, times, a.heads, d, part.start, part.row, part.head);
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let a = &self.0;
        let dtype = io.dtype(0);
        a.check(dtype)?;
        let sizes = a.sizes(|i| io.shape(i));
        let n = io.inputs();
        let (o, lse, grad) = (io.input(n - 3), io.input(n - 2), io.input(n - 1));
        let delta = io.output(a.sources);
        let sources = a.sources_of(io, sizes, dtype);
        let gradient = |p: usize| {
            let part = a.parts[p];
            let times = if p == 0 { sizes.queries } else { sizes.keys };
            a.view(io.output(part.input), part, times, dtype)
        };
        let heads = sizes.batch * a.heads;
        let (rows, shared_q, shared_kv) = match dtype {
            DType::Bf16 => {
                let bytes = (2 * a.rows() + 256) * a.size * 2;
                (a.rows(), bytes, bytes + 1024)
            }
            _ => (32, 4 * (96 * a.pitch() + 32 * 17), 4 * (96 * a.pitch() + 64 * 17)),
        };
        let tail = a.tail(io, sizes);
        let mut args = sources.clone();
        args.extend([a.packed(o, sizes.queries, dtype), a.packed(grad, sizes.queries, dtype), gradient(0)]);
        args.extend(args![lse, delta]);
        args.extend(&tail);
        let launch = Launch::line(heads * sizes.queries.div_ceil(rows), 128).shared(shared_q);
        io.launch(&a.kernel("backward_q", dtype), launch, &args)?;
        let mut args = sources;
        args.extend([a.packed(grad, sizes.queries, dtype), gradient(1), gradient(2)]);
        args.extend(args![lse, delta]);
        args.extend(&tail);
        let launch = Launch::line(heads * sizes.keys.div_ceil(rows), 128).shared(shared_kv);
        io.launch(&a.kernel("backward_kv", dtype), launch, &args)
    }
}

/// Writes heads `[times, size]` to their channels of combined rows.
#[expect(clippy::too_many_arguments, reason = "a strided copy has this many strides")]
fn scatter<T: AsRef<[f32]> + Sync>(
    out: &mut [f32],
    heads: &[T],
    times: usize,
    per: usize,
    size: usize,
    start: usize,
    row: usize,
    head: usize,
) {
    out.par_chunks_mut(times * row).zip(heads.par_chunks(per)).for_each(|(out, heads)| {
        for (h, data) in heads.iter().enumerate() {
            for (t, values) in data.as_ref().chunks(size).enumerate() {
                out[t * row + start + h * head..][..size].copy_from_slice(values);
            }
        }
    });
}

impl Tape {
    /// Self-attention. `qkv` is `[batch, time, 3 * heads * size]`, the output `[batch, time, heads * size]`. The
    /// scale is `1 / sqrt(size)`.
    pub fn self_attention(&mut self, qkv: Value, heads: usize, order: Order, mask: Mask) -> Value {
        let row = self.shape(qkv).last();
        assert_eq!(row % (3 * heads), 0, "{row} channels are not queries, keys and values of {heads} heads");
        let size = row / 3 / heads;
        let (step, head) = match order {
            Order::Parts => (heads * size, size),
            Order::Heads => (size, 3 * size),
        };
        let parts = [0, 1, 2].map(|p| Part { input: 0, start: p * step, row, head });
        self.attend(&[qkv], parts, heads, size, mask)
    }

    /// Cross-attention. `q` is `[batch, queries, heads * size]`, `kv` is `[batch, keys, 2 * heads * size]`: all
    /// keys, then all values.
    pub fn cross_attention(&mut self, q: Value, kv: Value, heads: usize, mask: Mask) -> Value {
        let (row, pair) = (self.shape(q).last(), self.shape(kv).last());
        assert_eq!(row % heads, 0, "{row} channels are not those of {heads} heads");
        assert_eq!(pair, 2 * row, "keys and values have {pair} channels, queries {row}");
        let size = row / heads;
        let parts = [
            Part { input: 0, start: 0, row, head: size },
            Part { input: 1, start: 0, row: pair, head: size },
            Part { input: 1, start: row, row: pair, head: size },
        ];
        self.attend(&[q, kv], parts, heads, size, mask)
    }

    fn attend(
        &mut self,
        sources: &[Value],
        parts: [Part; 3],
        heads: usize,
        size: usize,
        mask: Mask,
    ) -> Value {
        for &source in sources {
            let shape = self.shape(source);
            assert_eq!(shape.rank(), 3, "attention is over [batch, time, channels], not {shape}");
            assert_eq!(
                shape.dim(0),
                self.shape(sources[0]).dim(0),
                "queries and keys must have the same batch size"
            );
        }
        let (batch, queries) = (self.shape(sources[0]).dim(0), self.shape(sources[0]).dim(1));
        let keys = self.shape(sources[sources.len() - 1]).dim(1);
        if let Some(lengths) = mask.lengths {
            assert_eq!(self.shape(lengths).len(), batch, "`lengths` must have one length per item");
        }
        if let Some(mask) = mask.keys {
            assert_eq!(self.shape(mask).len(), batch * keys, "the mask must have one element per key");
        }
        let op = Attention {
            heads,
            size,
            scale: 1.0 / (size as f32).sqrt(),
            causal: mask.causal,
            lengths: mask.lengths.is_some(),
            keys: mask.keys.is_some(),
            sources: sources.len(),
            parts,
        };
        let mut inputs = sources.to_vec();
        inputs.extend(mask.lengths);
        inputs.extend(mask.keys);
        let dtype = self.info(sources[0]).dtype;
        let outputs = [
            Spec::new([batch, queries, heads * size], dtype),
            Spec::constant([batch, heads, queries], DType::F32),
        ];
        self.push(op, &inputs, &outputs)[0]
    }
}
