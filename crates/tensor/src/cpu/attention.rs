//! Attention of one head, for a block of queries at a time. Only one block's scores are in memory, and causal
//! attention computes little more than the visible half.

use super::matrix::{Matrix, Threads, product};
use super::{reduce, vector};
use std::ops::Range;

/// Queries per block: enough for a fast product, few enough that causal attention skips most hidden keys.
pub const QUERY_BLOCK: usize = 64;

/// Which keys the queries of one item can see.
#[derive(Clone, Copy, Debug)]
pub struct KeyMask<'a> {
    /// Number of queries.
    pub queries: usize,
    /// Number of keys.
    pub keys: usize,
    /// A query sees the keys up to its own position; with fewer queries than keys, the queries are the last
    /// positions.
    pub causal: bool,
    /// Keys from this index on are hidden; at most `keys`.
    pub length: usize,
    /// Keys with a 0 are hidden.
    pub visible: Option<&'a [i32]>,
}

impl KeyMask<'_> {
    /// First key index that is hidden from a query.
    fn end(&self, query: usize) -> usize {
        match self.causal {
            true => self.length.min((query + 1 + self.keys).saturating_sub(self.queries)),
            false => self.length,
        }
    }

    /// Sets a query's hidden scores to minus infinity, and returns the scores up to its last visible key.
    #[inline(always)]
    fn hide<'r>(&self, row: &'r mut [f32], query: usize) -> &'r mut [f32] {
        let (seen, hidden) = row.split_at_mut(self.end(query));
        hidden.fill(f32::NEG_INFINITY);
        if let Some(visible) = self.visible {
            for (score, &mask) in seen.iter_mut().zip(visible) {
                *score = if mask == 0 { f32::NEG_INFINITY } else { *score };
            }
        }
        seen
    }
}

/// Queries, keys and values of one head of one item; rows are time steps.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// `[queries, size]`.
    pub q: Matrix<'a>,
    /// `[keys, size]`.
    pub k: Matrix<'a>,
    /// `[keys, size]`.
    pub v: Matrix<'a>,
    /// Channels per head.
    pub size: usize,
    /// Factor applied to the scores.
    pub scale: f32,
}

/// Reusable buffers of a pass.
#[derive(Debug, Default)]
pub struct Workspace {
    scores: Vec<f32>,
    slopes: Vec<f32>,
}

/// The first `n` elements of a vector, grown if necessary; their contents are unspecified.
fn resized(space: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if space.len() < n {
        space.resize(n, 0.0);
    }
    &mut space[..n]
}

impl Head<'_> {
    /// Scores of a block of queries for the keys any of them sees; the row stride is the number of those keys.
    fn scores<'s>(&self, keys: usize, queries: &Range<usize>, space: &'s mut Vec<f32>) -> &'s mut [f32] {
        let scores = resized(space, queries.len() * keys);
        let (q, k) = (self.q.skip(queries.start), self.k.transposed());
        product((queries.len(), keys, self.size), q, k, scores, keys, false, self.scale, Threads::One);
        scores
    }

    /// Writes the outputs of a block of queries to rows of `out` that are `stride` apart, and the log-sum-exp of
    /// each query's scores. A query that sees no key gets output zero and log-sum-exp infinity.
    pub fn forward(
        &self,
        key_mask: &KeyMask<'_>,
        queries: Range<usize>,
        space: &mut Workspace,
        (out, stride): (&mut [f32], usize),
        lse: &mut [f32],
    ) {
        let keys = queries.end.checked_sub(1).map_or(0, |last| key_mask.end(last));
        let scores = self.scores(keys, &queries, &mut space.scores);
        let inverses = resized(&mut space.slopes, queries.len());
        vector::wide(
            #[inline(always)]
            || {
                for (i, (lse, inverse)) in lse.iter_mut().zip(inverses.iter_mut()).enumerate() {
                    let row = &mut scores[i * keys..][..keys];
                    let top = reduce::max(key_mask.hide(row, queries.start + i));
                    // A row of minus infinities gives zeros whatever is subtracted.
                    let from = if top == f32::NEG_INFINITY { 0.0 } else { top };
                    row.iter_mut().for_each(|s| *s = vector::exp_or_zero(*s - from));
                    let sum = vector::sum(row, |s| s);
                    let seen = top > f32::NEG_INFINITY || sum.is_nan();
                    *inverse = if seen { 1.0 / sum } else { 0.0 };
                    *lse = if seen { top + sum.ln() } else { f32::INFINITY };
                }
            },
        );
        product(
            (queries.len(), self.size, keys),
            Matrix::rows(scores, keys),
            self.v,
            out,
            stride,
            false,
            1.0,
            Threads::One,
        );
        for (row, inverse) in out.chunks_mut(stride).zip(inverses) {
            row[..self.size].iter_mut().for_each(|o| *o *= *inverse);
        }
    }

    /// Gradients of query, key and value, each `[times, size]`, from the output's gradient and the log-sum-exps.
    pub fn backward(
        &self,
        key_mask: &KeyMask<'_>,
        space: &mut Workspace,
        dout: Matrix<'_>,
        lse: &[f32],
    ) -> [Vec<f32>; 3] {
        let d = self.size;
        let [mut dq, mut dk, mut dv] =
            [key_mask.queries, key_mask.keys, key_mask.keys].map(|n| vec![0f32; n * d]);
        for start in (0..key_mask.queries).step_by(QUERY_BLOCK) {
            let queries = start..key_mask.queries.min(start + QUERY_BLOCK);
            let (rows, keys) = (queries.len(), key_mask.end(queries.end - 1));
            let (q, dout) = (self.q.skip(start), dout.skip(start));
            let p = self.scores(keys, &queries, &mut space.scores);
            let ds = resized(&mut space.slopes, rows * keys);
            product((rows, keys, d), dout, self.v.transposed(), ds, keys, false, 1.0, Threads::One);
            vector::wide(
                #[inline(always)]
                || {
                    for i in 0..rows {
                        let (p, ds) = (&mut p[i * keys..][..keys], &mut ds[i * keys..][..keys]);
                        key_mask.hide(p, start + i);
                        let lse = lse[start + i];
                        p.iter_mut().for_each(|p| *p = vector::exp_or_zero(*p - lse));
                        // The mean under the weights themselves, not `o . dout`: where one weight is 1 the two differ
                        // by rounding alone, but large keys multiply that difference.
                        let mass = vector::sum(p, |p| p);
                        let mean = vector::sum2(p, ds, |p, ds| p * ds);
                        let delta = if mass > 0.0 { mean / mass } else { 0.0 };
                        ds.iter_mut().zip(&*p).for_each(|(ds, p)| *ds = p * (*ds - delta));
                    }
                },
            );
            let (p, ds) = (Matrix::rows(p, keys), Matrix::rows(ds, keys));
            product((keys, d, rows), p.transposed(), dout, &mut dv, d, true, 1.0, Threads::One);
            product((rows, d, keys), ds, self.k, &mut dq[start * d..], d, false, self.scale, Threads::One);
            product((keys, d, rows), ds.transposed(), q, &mut dk, d, true, self.scale, Threads::One);
        }
        [dq, dk, dv]
    }
}
