//! Tensors of a release that nobody learns and that training here does not keep: how often a batch norm was updated, and
//! what the speaker encoder's features are made with. Coqui's code asks for all of them.

use super::Kind;
use super::sizes::{FoundSpeaker, Shapes, Sizes};

/// Samples per second of the speaker encoder's sound.
const RATE: f64 = 16_000.0;
/// What is taken of a sample from the next.
const PREEMPHASIS: f32 = 0.97;

/// A tensor with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// As released.
    pub name: String,
    /// Of which numbers.
    pub kind: Kind,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Little-endian, row-major.
    pub bytes: Vec<u8>,
}

/// Whether a tensor is one of these.
pub fn is_buffer(name: &str) -> bool {
    name.ends_with(".num_batches_tracked") || name.contains(".speaker_encoder.torch_spec.")
}

/// Those that a model with these tensors has not.
pub fn missing(shapes: &Shapes) -> Vec<Buffer> {
    let sizes = Sizes::of(shapes, None);
    let absent =
        sizes.expected().into_iter().filter(|(name, _)| is_buffer(name) && !shapes.contains_key(name));
    absent
        .map(|(name, shape)| {
            let (kind, bytes) = match name.rsplit('.').next() {
                Some("num_batches_tracked") => (Kind::I64, 0i64.to_le_bytes().to_vec()),
                Some("filter") => (Kind::F32, bytes(&[-PREEMPHASIS, 1.0])),
                Some("window") => (Kind::F32, bytes(&window(sizes.speaker.window))),
                _ => (Kind::F32, bytes(&mel_filters(&sizes.speaker))),
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

/// torchaudio's triangles on the mel scale of HTK, `[bins, mels]`, from 0 Hz to half the rate.
fn mel_filters(sizes: &FoundSpeaker) -> Vec<f32> {
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
