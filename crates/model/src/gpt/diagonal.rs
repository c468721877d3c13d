//! Initialises attention along the diagonal of text and speech.
//!
//! Text and audio positions start as the same sinusoids, with audio positions scaled to the rate of speech, and the first
//! head of the lower half of the blocks starts by comparing them, as in Deep Voice 3. The head then attends to the text near
//! where an evenly spoken clip would be; training sharpens the alignment instead of discovering it. Only initial values
//! differ: the network, its file and its inference are those of XTTS.

use super::Gpt;
use myxtts_tensor::ParameterId;

/// Amplitude of the sinusoids: several times that of the token embeddings they are added to.
const AMPLITUDE: f64 = 0.1;
/// Scale of the comparison; larger is sharper.
const SHARPNESS: f32 = 0.7;
/// Slowest and fastest sinusoid in radians per token: from the whole text to the width of a word.
const FREQUENCIES: (f64, f64) = (0.012, 0.35);
/// Positions before the first spoken token: START and the language token.
const TEXT_OFFSET: f64 = 2.0;

impl Gpt {
    /// Initialises attention along the text at `rate` tokens per code, with access to the parameters `[rows, width]` through
    /// `read` and `write`.
    pub fn start_diagonal<E>(
        &self,
        rate: f64,
        mut read: impl FnMut(ParameterId) -> Result<Vec<f32>, E>,
        mut write: impl FnMut(ParameterId, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (width, size) = (self.sizes.width, self.sizes.width / self.sizes.heads);
        for (table, rate, offset) in
            [(self.text_positions, 1.0, 0.0), (self.audio_positions, rate, TEXT_OFFSET)]
        {
            let mut values = read(table)?;
            for (i, row) in values.chunks_exact_mut(width).enumerate() {
                write_sinusoids(&mut row[..size], i as f64 * rate + offset);
            }
            write(table, &values)?;
        }
        for block in &self.blocks[..(self.blocks.len() / 2).max(1).min(self.blocks.len())] {
            let weight = block.qkv.affine.weight;
            let mut values = read(weight)?;
            // Queries and keys of the first head use the same projection of the positions.
            for part in [0, width] {
                for (i, row) in values[part * width..][..size * width].chunks_exact_mut(width).enumerate() {
                    row.fill(0.0);
                    row[i] = SHARPNESS;
                }
            }
            write(weight, &values)?;
        }
        Ok(())
    }
}

/// Writes sine and cosine pairs of a position, slowest first.
fn write_sinusoids(row: &mut [f32], position: f64) {
    let pairs = row.len() / 2;
    let (slow, fast) = (FREQUENCIES.0.ln(), FREQUENCIES.1.ln());
    for (i, pair) in row.chunks_exact_mut(2).enumerate() {
        let share = i as f64 / (pairs.max(2) - 1) as f64;
        let angle = position * (slow + (fast - slow) * share).exp();
        pair[0] = (AMPLITUDE * angle.sin()) as f32;
        pair[1] = (AMPLITUDE * angle.cos()) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The initial attention score of the head peaks where text and audio are equally far along.
    #[test]
    fn the_closest_text_position_scores_highest() {
        let rate = 0.7;
        let row = |position: f64| {
            let mut row = vec![0f32; 64];
            write_sinusoids(&mut row, position);
            row
        };
        for code in [0usize, 10, 40, 90] {
            let query = row(code as f64 * rate + TEXT_OFFSET);
            let score =
                |token: usize| -> f32 { row(token as f64).iter().zip(&query).map(|(a, b)| a * b).sum() };
            let best = (0..120).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
            assert!((best as f64 - (code as f64 * rate + TEXT_OFFSET)).abs() <= 0.5, "code {code}: {best}");
            assert!(score(best) > score(best + 8) * 1.1);
        }
    }
}
