//! Device memory of a decoder, and the copies to and from it.

use super::sizes::{DecodeSizes, MAX_ROWS, Product, WeightOffsets, stride};
use super::{MAX_STEPS, Row, SlotSampling, StepOutputs};
use crate::cuda::Cuda;
use crate::cuda::memory::{DeviceMemory, PinnedMemory};
use crate::error::Error;
use crate::memory::MemoryNeed;
use cudarc::driver::result;
use half::bf16;
use rayon::prelude::*;

/// Sampling parameters of a slot, as the sampling kernel reads them.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Sampling {
    temperature: f32,
    top_p: f32,
    penalty: f32,
    guidance: f32,
    top_k: i32,
    greedy: i32,
    limit: i32,
    unused: i32,
}

pub(super) struct Buffers {
    pub rounded: DeviceMemory,
    pub floats: DeviceMemory,
    pub keys: DeviceMemory,
    pub values: DeviceMemory,
    pub rows: DeviceMemory,
    pub prompt_rows: DeviceMemory,
    pub voice: DeviceMemory,
    /// The residual stream.
    pub x: DeviceMemory,
    pub queries: DeviceMemory,
    pub normed: DeviceMemory,
    pub attended: DeviceMemory,
    pub inner: DeviceMemory,
    pub parts: DeviceMemory,
    pub part_weights: DeviceMemory,
    /// Partial sums of products that are split along k.
    pub sums: DeviceMemory,
    pub logits: DeviceMemory,
    pub samplings: DeviceMemory,
    pub uniforms: DeviceMemory,
    pub seen: DeviceMemory,
    pub codes: DeviceMemory,
    pub latents: DeviceMemory,
    sent: PinnedMemory,
    received: PinnedMemory,
}

/// Maximum number of splits along k.
const MAX_SPLITS: usize = 16;

const ROW: usize = size_of::<Row>();

/// Number of words in the bit set of emitted codes.
pub(super) fn seen_words(vocabulary: usize) -> usize {
    vocabulary.div_ceil(32)
}

impl Buffers {
    pub fn new(cuda: &Cuda, sizes: &DecodeSizes, offsets: &WeightOffsets) -> Result<Buffers, Error> {
        let (width, heads, vocabulary) = (sizes.width, sizes.heads, sizes.vocabulary);
        let floats = |count: usize| DeviceMemory::new(4 * count);
        let rounded = |count: usize| DeviceMemory::new(2 * count);
        let parts = MAX_ROWS * heads * sizes.chunks();
        let cache = sizes.cache_bytes() / 2;
        let (free, _) = cuda.memory()?;
        let need = MemoryNeed {
            weights: 2 * offsets.rounded + 4 * offsets.floats,
            scratch: 2 * cache,
            ..MemoryNeed::default()
        };
        if need.total() > free {
            let device = format!("cuda:{} ({})", cuda.ordinal(), cuda.name());
            return Err(Error::OutOfMemory { device, need: Box::new(need), free });
        }
        let back = ROW * MAX_ROWS + MAX_STEPS * MAX_ROWS * (4 + 4 * width);
        Ok(Buffers {
            rounded: rounded(offsets.rounded)?,
            floats: floats(offsets.floats)?,
            keys: DeviceMemory::new(cache)?,
            values: DeviceMemory::new(cache)?,
            rows: DeviceMemory::new(ROW * MAX_ROWS)?,
            prompt_rows: DeviceMemory::new(ROW * MAX_ROWS)?,
            voice: floats(MAX_ROWS * width)?,
            x: floats(MAX_ROWS * width)?,
            queries: floats(MAX_ROWS * width)?,
            normed: rounded(MAX_ROWS * stride(width))?,
            attended: rounded(MAX_ROWS * stride(width))?,
            inner: rounded(MAX_ROWS * stride(sizes.inner))?,
            parts: floats(parts * sizes.head_size())?,
            part_weights: floats(parts * 2)?,
            sums: floats(MAX_SPLITS * MAX_ROWS * width)?,
            logits: floats(MAX_ROWS * vocabulary)?,
            samplings: DeviceMemory::new(sizes.slots * size_of::<Sampling>())?,
            uniforms: DeviceMemory::new(8 * sizes.slots * sizes.positions)?,
            seen: DeviceMemory::new(4 * sizes.slots * seen_words(vocabulary))?,
            codes: DeviceMemory::new(4 * MAX_STEPS * MAX_ROWS)?,
            latents: floats(MAX_STEPS * MAX_ROWS * width)?,
            sent: PinnedMemory::new(ROW * MAX_ROWS)?,
            received: PinnedMemory::new(back)?,
        })
    }

    fn all(&self) -> [&DeviceMemory; 21] {
        let Buffers { rounded, floats, keys, values, rows, prompt_rows, voice, x, queries, normed, .. } =
            self;
        let Buffers { attended, inner, parts, part_weights, sums, logits, samplings, uniforms, .. } = self;
        let Buffers { seen, codes, latents, .. } = self;
        [
            rounded,
            floats,
            keys,
            values,
            rows,
            prompt_rows,
            voice,
            x,
            queries,
            normed,
            attended,
            inner,
            parts,
            part_weights,
            sums,
            logits,
            samplings,
            uniforms,
            seen,
            codes,
            latents,
        ]
    }

    pub fn bytes(&self) -> usize {
        self.all().iter().map(|memory| memory.bytes()).sum()
    }

    pub fn write_floats(&self, cuda: &Cuda, at: usize, data: &[f32]) -> Result<(), Error> {
        upload(cuda, &self.floats, 4 * at, bytemuck::cast_slice(data))
    }

    /// Queues a copy of f32 values within the device.
    pub fn copy_floats(&self, cuda: &Cuda, at: usize, from: u64, count: usize) -> Result<(), Error> {
        assert!(4 * (at + count) <= self.floats.bytes(), "{count} numbers at {at}");
        // SAFETY: both ranges are inside their allocations (the engine's and this one), on one device and stream.
        unsafe {
            result::memcpy_dtod_async(self.floats.address() + 4 * at as u64, from, 4 * count, cuda.stream())
        }
        .map_err(|e| Error::driver("copy on the device", e))
    }

    /// Writes a matrix in bf16, its rows padded with zeros.
    pub fn write_matrix(&self, cuda: &Cuda, product: &Product, weight: &[f32]) -> Result<(), Error> {
        let (inputs, stride) = (product.inputs, product.stride());
        let mut rounded = vec![bf16::ZERO; product.features * stride];
        rounded.par_chunks_mut(stride).zip(weight.par_chunks(inputs)).for_each(|(to, from)| {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = bf16::from_f32(from));
        });
        upload(cuda, &self.rounded, 2 * product.matrix, bytemuck::cast_slice(&rounded))
    }

    /// Writes the rows of a prompt and the voice vectors among them.
    pub fn write_prompt(&self, cuda: &Cuda, rows: &[Row], voice: &[f32]) -> Result<(), Error> {
        upload(cuda, &self.voice, 0, bytemuck::cast_slice(voice))?;
        upload(cuda, &self.prompt_rows, 0, bytemuck::cast_slice(rows))
    }

    pub fn write_sampling(
        &self,
        cuda: &Cuda,
        sizes: &DecodeSizes,
        slot: usize,
        sampling: &SlotSampling,
    ) -> Result<(), Error> {
        // Both are limited by the model's table sizes, far below 2^31.
        let [top_k, limit] = [sampling.top_k, sampling.limit].map(|n| n.min(1 << 30) as i32);
        let parameters = Sampling {
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            penalty: sampling.penalty,
            guidance: sampling.guidance,
            top_k,
            greedy: i32::from(sampling.greedy),
            limit,
            unused: 0,
        };
        upload(cuda, &self.samplings, slot * size_of::<Sampling>(), bytemuck::bytes_of(&parameters))?;
        let count = sampling.uniforms.len().min(sizes.positions);
        upload(
            cuda,
            &self.uniforms,
            8 * slot * sizes.positions,
            bytemuck::cast_slice(&sampling.uniforms[..count]),
        )?;
        let mut seen = vec![0u32; seen_words(sizes.vocabulary)];
        for &code in sampling.seen_codes.iter().filter(|code| **code < sizes.vocabulary) {
            seen[code / 32] |= 1 << (code % 32);
        }
        upload(cuda, &self.seen, 4 * slot * seen.len(), bytemuck::cast_slice(&seen))
    }

    /// Queues the upload of a step's rows.
    pub fn send_rows(&mut self, cuda: &Cuda, rows: &[Row]) -> Result<(), Error> {
        let bytes: &[u8] = bytemuck::cast_slice(rows);
        let sent = &mut self.sent.as_mut_slice()[..bytes.len()];
        sent.copy_from_slice(bytes);
        // SAFETY: page-locked memory that is not written before the stream is synchronised.
        unsafe { result::memcpy_htod_async(self.rows.address(), sent, cuda.stream()) }
            .map_err(|e| Error::driver("copy to the device", e))
    }

    /// Queues the download of the outputs of steps.
    pub fn receive(&mut self, cuda: &Cuda, batch: usize, steps: usize, width: usize) -> Result<(), Error> {
        let sources = [&self.rows, &self.codes, &self.latents];
        let bytes = [ROW * batch, 4 * steps * batch, 4 * steps * batch * width];
        let mut rest = self.received.as_mut_slice();
        for (source, bytes) in sources.into_iter().zip(bytes) {
            let (to, more) = rest.split_at_mut(bytes);
            rest = more;
            // SAFETY: page-locked memory that is not read before the stream is synchronised.
            unsafe { result::memcpy_dtoh_async(to, source.address(), cuda.stream()) }
                .map_err(|e| Error::driver("copy from the device", e))?;
        }
        Ok(())
    }

    /// The downloaded outputs.
    pub fn received(&self, batch: usize, steps: usize, width: usize) -> StepOutputs<'_> {
        let (rows, rest) = self.received.as_slice().split_at(ROW * batch);
        let (codes, rest) = rest.split_at(4 * steps * batch);
        let latents = &rest[..4 * steps * batch * width];
        // Page-locked memory starts at a page, and all three sizes are whole words.
        StepOutputs {
            rows: bytemuck::cast_slice(rows),
            codes: bytemuck::cast_slice(codes),
            latents: bytemuck::cast_slice(latents),
        }
    }
}

/// Copies bytes to an offset in device memory after all queued work, and waits for it.
fn upload(cuda: &Cuda, to: &DeviceMemory, at: usize, bytes: &[u8]) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    assert!(at + bytes.len() <= to.bytes(), "{} bytes at {at} of {}", bytes.len(), to.bytes());
    // SAFETY: the range is inside the allocation; the copy is finished before `bytes` goes out of scope.
    unsafe { result::memcpy_htod_async(to.address() + at as u64, bytes, cuda.stream()) }
        .map_err(|e| Error::driver("copy to the device", e))?;
    cuda.synchronize()
}
