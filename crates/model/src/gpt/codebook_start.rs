//! Initialises the code embeddings from the DVAE's codebook, so that codes that sound alike start alike.
//!
//! Rows of the audio embedding and of the output layer start as the DVAE's code vectors with some noise. What the GPT
//! learns about one code then generalises to its neighbours, which have few examples each in a small corpus. Only
//! initial values differ.

use super::Gpt;
use myxtts_tensor::ParameterId;
use myxtts_tensor::random::Stream;

/// Share of a row that stays random, so that equal vectors can be distinguished.
const NOISE: f32 = 0.3;

impl Gpt {
    /// Initialises the rows of the codes from `codebook` `[width, codes]`, with access to the parameters through `read`
    /// and `write`.
    pub fn start_from_codebook<E>(
        &self,
        codebook: &[f32],
        seed: u64,
        mut read: impl FnMut(ParameterId) -> Result<Vec<f32>, E>,
        mut write: impl FnMut(ParameterId, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (width, codes) = (self.sizes.width, self.sizes.audio_vocabulary - 2);
        let vectors = standardized(codebook, codes, width, seed);
        for table in [self.audio_table, self.mel_head.weight] {
            let mut values = read(table)?;
            let own = &mut values[..codes * width];
            let scale = (own.iter().map(|x| x * x).sum::<f32>() / own.len() as f32).sqrt();
            for (x, vector) in own.iter_mut().zip(&vectors) {
                *x = NOISE * *x + (1.0 - NOISE * NOISE).sqrt() * scale * vector;
            }
            write(table, &values)?;
        }
        Ok(())
    }
}

/// Returns vectors `[codes, width]` with mean 0 and mean square 1, through a random projection if the widths differ.
fn standardized(codebook: &[f32], codes: usize, width: usize, seed: u64) -> Vec<f32> {
    let from = codebook.len() / codes.max(1);
    let mut rows = vec![0f32; codes * from];
    for (k, channel) in codebook.chunks_exact(codes.max(1)).enumerate() {
        let mean = channel.iter().sum::<f32>() / codes as f32;
        for (code, x) in channel.iter().enumerate() {
            rows[code * from + k] = x - mean;
        }
    }
    if from != width {
        let projection = Stream::new(seed).normals(from * width);
        let project = |row: &[f32]| -> Vec<f32> {
            let mut out = vec![0f32; width];
            for (x, weights) in row.iter().zip(projection.chunks_exact(width)) {
                out.iter_mut().zip(weights).for_each(|(out, weight)| *out += x * weight);
            }
            out
        };
        rows = rows.chunks_exact(from.max(1)).flat_map(project).collect();
    }
    let scale = (rows.iter().map(|x| x * x).sum::<f32>() / rows.len().max(1) as f32).sqrt().max(1e-12);
    rows.iter_mut().for_each(|x| *x /= scale);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_codes_start_with_similar_rows_at_any_width() {
        // Two pairs of neighbours; channels are the rows of a codebook.
        let codebook = [1.0, 1.1, -1.0, -1.1, 2.0, 2.1, -2.0, -2.1, 0.0, 0.1, 0.0, 0.1];
        for width in [3, 16] {
            let rows = standardized(&codebook, 4, width, 7);
            let distance = |a: usize, b: usize| -> f32 {
                (0..width).map(|k| (rows[a * width + k] - rows[b * width + k]).powi(2)).sum()
            };
            assert!(distance(0, 1) * 20.0 < distance(0, 2) && distance(2, 3) * 20.0 < distance(1, 3));
            let square = rows.iter().map(|x| x * x).sum::<f32>() / rows.len() as f32;
            assert!((square - 1.0).abs() < 1e-4, "mean square {square}");
        }
    }
}
