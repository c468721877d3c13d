//! Extends the tables of a model for a larger vocabulary: old rows stay bit for bit, and new rows get matching statistics.
//!
//! New rows are sampled with the mean and variance of the old ones in each channel. (Coqui samples them with variance one,
//! many times that of trained rows, and puts a copy of the last old row last.)

use myxtts_run::seed::Seed;

/// Names of the tensors that have one row per text token.
pub const TEXT_TABLES: [&str; 3] =
    ["gpt.text_embedding.weight", "gpt.text_head.weight", "gpt.text_head.bias"];

/// Extends `name`, one of [`TEXT_TABLES`], to `tokens` rows. `old` contains whole rows, at most `tokens` of them.
pub fn grow_table(name: &str, old: &[f32], width: usize, tokens: usize, seed: u64) -> Vec<f32> {
    grow(old, width, tokens, Seed::new(seed).derive("new text tokens").derive(name))
}

/// Extends a table of `width` channels to `rows` rows, starting with `old`.
pub fn grow(old: &[f32], width: usize, rows: usize, seed: Seed) -> Vec<f32> {
    assert!(width > 0 && old.len().is_multiple_of(width), "whole rows");
    let before = old.len() / width;
    assert!(rows >= before, "tables only grow");
    let mut mean = vec![0f64; width];
    let mut square = vec![0f64; width];
    for row in old.chunks_exact(width) {
        for (channel, &value) in row.iter().enumerate() {
            mean[channel] += f64::from(value);
            square[channel] += f64::from(value).powi(2);
        }
    }
    let count = before.max(1) as f64;
    mean.iter_mut().for_each(|sum| *sum /= count);
    let deviation: Vec<f64> =
        square.iter().zip(&mean).map(|(&sum, &mean)| (sum / count - mean * mean).max(0.0).sqrt()).collect();
    let mut table = Vec::with_capacity(rows * width);
    table.extend_from_slice(old);
    for row in before..rows {
        // Seeded by the row number: growing twice gives the same table as growing once.
        let stream = seed.with(row as u64);
        table.extend((0..width).map(|c| (mean[c] + deviation[c] * normal(stream, c as u64)) as f32));
    }
    table
}

/// Approximately normal number of mean 0 and variance 1: the sum of twelve uniform ones. Avoids logarithm and cosine, whose
/// last bit differs between machines.
fn normal(stream: Seed, position: u64) -> f64 {
    (0..12).map(|i| stream.unit(position * 12 + i)).sum::<f64>() - 6.0
}
