//! Non-trainable tensors of a release that training here does not store: update counts of batch norms, and constants of the
//! speaker encoder's features. Coqui's code requires all of them.

use super::ElementType;
use super::sizes::{InferredSpeaker, Shapes, Sizes};

/// Sample rate of the speaker encoder's input in Hz.
const RATE: f64 = 16_000.0;
/// Pre-emphasis coefficient: the fraction of the previous sample that is subtracted.
const PREEMPHASIS: f32 = 0.97;

/// A tensor with its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name in the release.
    pub name: String,
    /// Element type.
    pub kind: ElementType,
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// Little-endian, row-major.
    pub bytes: Vec<u8>,
}

/// Returns whether a tensor is one of these buffers.
pub(crate) fn is_buffer(name: &str) -> bool {
    name.ends_with(".num_batches_tracked") || name.contains(".speaker_encoder.torch_spec.")
}

/// Returns the buffers that are missing from a model with these tensors.
pub fn missing(shapes: &Shapes) -> Vec<Buffer> {
    let sizes = Sizes::from_shapes(shapes, None);
    let absent =
        sizes.expected().into_iter().filter(|(name, _)| is_buffer(name) && !shapes.contains_key(name));
    absent
        .map(|(name, shape)| {
            let (kind, bytes) = match name.rsplit('.').next() {
                Some("num_batches_tracked") => (ElementType::I64, 0i64.to_le_bytes().to_vec()),
                Some("filter") => (ElementType::F32, bytes(&[-PREEMPHASIS, 1.0])),
                Some("window") => (ElementType::F32, bytes(&window(sizes.speaker.window))),
                _ => (ElementType::F32, bytes(&mel_filters(&sizes.speaker))),
            };
            Buffer { name, kind, shape, bytes }
        })
        .collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// torch's periodic Hamming window.
fn window(length: usize) -> Vec<f32> {
    let turn = std::f64::consts::TAU / length.max(1) as f64;
    (0..length).map(|n| (0.54 - 0.46 * (turn * n as f64).cos()) as f32).collect()
}

/// torchaudio's triangular filters on the HTK mel scale, `[bins, mels]`, from 0 Hz to half the sample rate.
fn mel_filters(sizes: &InferredSpeaker) -> Vec<f32> {
    let (bins, mels) = (sizes.bins, sizes.mels);
    let highest = 2595.0 * (1.0 + RATE / 2.0 / 700.0).log10();
    let corners: Vec<f64> = (0..mels + 2)
        .map(|i| 700.0 * (10f64.powf(highest * i as f64 / (mels + 1) as f64 / 2595.0) - 1.0))
        .collect();
    let mut filters = Vec::with_capacity(bins * mels);
    for bin in 0..bins {
        let frequency = RATE / 2.0 * bin as f64 / bins.saturating_sub(1).max(1) as f64;
        filters.extend(corners.array_windows().map(|[left, top, right]| {
            let (up, down) = ((frequency - left) / (top - left), (right - frequency) / (right - top));
            up.min(down).max(0.0) as f32
        }));
    }
    filters
}
