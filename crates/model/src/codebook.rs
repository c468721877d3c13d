//! A DVAE's codebook on the host: initialisation, and revival of unused codes.
//!
//! A codebook is a moving average. A state whose three arrays disagree diverges at the first step, so every function
//! here maintains `embed = embed_avg / cluster_size`.

use myxtts_tensor::ops::quantize::Codebook;
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Engine, Error, ParameterId};

/// The state of a codebook.
///
/// | field | shape |
/// |---|---|
/// | `embed` | `[width, codes]` |
/// | `cluster_size` | `[codes]` |
/// | `embed_avg` | `[width, codes]` |
#[derive(Clone, Debug, PartialEq)]
pub struct HostCodebook {
    /// Code vectors.
    pub embed: Vec<f32>,
    /// Moving average of how often each code was chosen.
    pub cluster_size: Vec<f32>,
    /// Moving average of the sum of the rows that chose each code.
    pub embed_avg: Vec<f32>,
}

/// Distance between codes that start from the same row, in standard deviations of each channel. Equal codes would stay
/// equal, since only the first of them is ever chosen.
const SPREAD: f32 = 0.01;

/// Builds a codebook of `codes` vectors from encoder rows `[n, width]` of the first batches. No row is used twice while
/// others are left. Each code counts as chosen once.
pub fn codebook_from_rows(rows: &[f32], width: usize, codes: usize, seed: u64) -> HostCodebook {
    let mut book = HostCodebook {
        embed: vec![0.0; width * codes],
        cluster_size: vec![0.0; codes],
        embed_avg: vec![0.0; width * codes],
    };
    let all: Vec<usize> = (0..codes).collect();
    book.replace(&all, rows, width, 1.0, seed);
    book
}

/// Moves the codes whose `cluster_size` is below `least` to rows sampled from `[n, width]`, and returns which were
/// moved. A moved code counts as chosen `least` times, at least once, so that it has time to attract rows.
pub fn revive_codes(
    book: &mut HostCodebook,
    rows: &[f32],
    width: usize,
    least: f32,
    seed: u64,
) -> Vec<usize> {
    let dead = book.unused(least);
    book.replace(&dead, rows, width, least.max(1.0), seed);
    dead
}

impl HostCodebook {
    /// Returns the codes whose `cluster_size` is below `least` or NaN.
    pub fn unused(&self, least: f32) -> Vec<usize> {
        let sizes = self.cluster_size.iter().enumerate();
        sizes.filter(|(_, size)| size.is_nan() || **size < least).map(|(code, _)| code).collect()
    }

    /// Reads the codebook from an engine.
    pub fn read(engine: &Engine, at: Codebook<ParameterId>) -> Result<HostCodebook, Error> {
        Ok(HostCodebook {
            embed: engine.read_parameter(at.embed)?,
            cluster_size: engine.read_parameter(at.cluster_size)?,
            embed_avg: engine.read_parameter(at.embed_avg)?,
        })
    }

    /// Writes the codebook to an engine.
    pub fn write(&self, engine: &mut Engine, at: Codebook<ParameterId>) -> Result<(), Error> {
        engine.write_parameter(at.embed, &self.embed)?;
        engine.write_parameter(at.cluster_size, &self.cluster_size)?;
        engine.write_parameter(at.embed_avg, &self.embed_avg)
    }

    fn replace(&mut self, which: &[usize], rows: &[f32], width: usize, size: f32, seed: u64) {
        let (codes, n) = (self.cluster_size.len(), rows.len() / width.max(1));
        assert_eq!(rows.len(), n * width, "each row must have {width} elements");
        assert_eq!(self.embed.len(), width * codes, "codes and rows must have the same width");
        if which.is_empty() {
            return;
        }
        assert!(n > 0, "a codebook cannot be initialised from zero rows");
        let (mut random, deviations) = (Stream::new(seed), deviations(rows, width));
        let mut order: Vec<usize> = (0..n).collect();
        for (i, &code) in which.iter().enumerate() {
            // The first i % n entries of `order` are used in this round.
            let at = i % n;
            order.swap(at, at + random.below(n - at));
            let row = &rows[order[at] * width..][..width];
            for (k, (&x, deviation)) in row.iter().zip(&deviations).enumerate() {
                let x = if i < n { x } else { x + SPREAD * deviation * random.normal() };
                self.embed[k * codes + code] = x;
                self.embed_avg[k * codes + code] = x * size;
            }
            self.cluster_size[code] = size;
        }
    }
}

/// Standard deviation of each channel over all rows.
fn deviations(rows: &[f32], width: usize) -> Vec<f32> {
    let n = (rows.len() / width) as f64;
    let mut sums = vec![(0f64, 0f64); width];
    for row in rows.chunks_exact(width) {
        for ((sum, square), &x) in sums.iter_mut().zip(row) {
            *sum += f64::from(x);
            *square += f64::from(x) * f64::from(x);
        }
    }
    let deviation = |(sum, square): (f64, f64)| (square / n - (sum / n).powi(2)).max(0.0).sqrt() as f32;
    sums.into_iter().map(deviation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const WIDTH: usize = 3;

    fn rows(n: usize) -> Vec<f32> {
        Stream::new(5).normals(n * WIDTH)
    }

    fn code(book: &HostCodebook, code: usize) -> Vec<f32> {
        let codes = book.cluster_size.len();
        (0..WIDTH).map(|k| book.embed[k * codes + code]).collect()
    }

    fn assert_consistent(book: &HostCodebook) {
        let codes = book.cluster_size.len();
        for (i, (sum, code)) in book.embed_avg.iter().zip(&book.embed).enumerate() {
            let size = book.cluster_size[i % codes];
            assert!(
                size > 0.0 && (sum / size - code).abs() < 1e-5,
                "code {} is not the average of its rows",
                i % codes
            );
        }
    }

    #[test]
    fn a_new_codebook_uses_no_row_twice() {
        let rows = rows(20);
        let book = codebook_from_rows(&rows, WIDTH, 20, 3);
        assert_consistent(&book);
        let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let codes: BTreeSet<_> = (0..20).map(|i| bits(&code(&book, i))).collect();
        assert_eq!(codes, rows.chunks(WIDTH).map(bits).collect());
        assert_eq!(book, codebook_from_rows(&rows, WIDTH, 20, 3));
        assert_ne!(book, codebook_from_rows(&rows, WIDTH, 20, 4));
    }

    #[test]
    fn codes_differ_even_with_fewer_rows_than_codes() {
        let book = codebook_from_rows(&rows(5), WIDTH, 16, 3);
        assert_consistent(&book);
        for i in 0..16 {
            for j in 0..i {
                assert_ne!(code(&book, i), code(&book, j), "codes {i} and {j}");
            }
        }
    }

    #[test]
    fn only_unused_codes_are_replaced() {
        let mut book = codebook_from_rows(&rows(12), WIDTH, 12, 3);
        // As if every code had been chosen four times.
        book.cluster_size.iter_mut().chain(&mut book.embed_avg).for_each(|x| *x *= 4.0);
        let before = book.clone();
        book.cluster_size[4] = 0.1;
        book.cluster_size[7] = f32::NAN;
        let replaced = revive_codes(&mut book, &rows(40)[12 * WIDTH..], WIDTH, 1.5, 9);
        assert_eq!(replaced, [4, 7]);
        assert_consistent(&book);
        for i in 0..12 {
            assert_eq!(code(&book, i) == code(&before, i), !replaced.contains(&i), "code {i}");
        }
        assert_eq!([book.cluster_size[4], book.cluster_size[7]], [1.5; 2]);
        assert!(revive_codes(&mut book, &[], WIDTH, 1.5, 9).is_empty());
    }
}
