//! Column sums of a matrix. Rows are split at fixed positions and the parts combined in order, so the number of
//! threads does not change the bits.

use super::vector::wide;
use rayon::prelude::*;

/// Elements per part; few enough that f32 is precise enough for their sum.
const PIECE: usize = 1 << 14;

/// Calls `add(row, sums)` for every row, with `sums` of length `width` starting at zero; parts are combined in f64.
pub fn sums(rows: usize, width: usize, add: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f64> {
    let parts = folds(rows, width, 0.0, add);
    let mut sums = vec![0f64; width];
    for part in parts {
        for (sum, &part) in sums.iter_mut().zip(&part) {
            *sum += f64::from(part);
        }
    }
    sums
}

/// Calls `fold(row, state)` for every row of each part, with `state` of length `width` starting at `start`; returns
/// the states in order.
pub fn folds(
    rows: usize,
    width: usize,
    start: f32,
    fold: impl Fn(usize, &mut [f32]) + Sync,
) -> Vec<Vec<f32>> {
    let chunk = (PIECE / width.max(1)).clamp(8, 1024);
    let part = |p: usize| {
        let mut state = vec![start; width];
        for row in p * chunk..rows.min((p + 1) * chunk) {
            wide(
                #[inline(always)]
                || fold(row, &mut state),
            );
        }
        state
    };
    (0..rows.div_ceil(chunk)).into_par_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_added_once() {
        for (rows, width) in [(1, 1), (7, 3), (3000, 40), (5, 20_000)] {
            let found = sums(rows, width, |row, sums| sums.iter_mut().for_each(|s| *s += row as f32));
            let truth = (rows * (rows - 1) / 2) as f64;
            assert!(found.len() == width && found.iter().all(|&s| s == truth), "{rows} x {width}");
        }
    }
}
