//! Attention of one head, a stretch of queries at a time: no more scores in memory than a stretch has, and of causal
//! attention little more than the half that counts.

use super::matrix::{Matrix, Threads, product};
use super::vector;
use std::ops::Range;

/// Queries of a stretch: enough for a fast product, few enough that causal attention skips most of what is hidden.
pub const STRETCH: usize = 64;

/// Which keys the queries of one item see.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// How many queries there are.
    pub queries: usize,
    /// How many keys there are.
    pub keys: usize,
    /// A query sees the keys up to its own place; with fewer queries than keys, the last places are theirs.
    pub causal: bool,
    /// Keys from this place on are hidden; at most `keys`.
    pub length: usize,
    /// Keys with a 0 are hidden.
    pub holes: Option<&'a [i32]>,
}

impl Sight<'_> {
    /// Keys from this place on are hidden from a query.
    fn end(&self, query: usize) -> usize {
        match self.causal {
            true => self.length.min((query + 1 + self.keys).saturating_sub(self.queries)),
            false => self.length,
        }
    }

    /// Gives minus infinity to the scores of a query that are hidden, and returns the rest.
    #[inline(always)]
    fn hide<'r>(&self, row: &'r mut [f32], query: usize) -> &'r mut [f32] {
        let (seen, hidden) = row.split_at_mut(self.end(query));
        hidden.fill(f32::NEG_INFINITY);
        if let Some(holes) = self.holes {
            for (score, &hole) in seen.iter_mut().zip(holes) {
                *score = if hole == 0 { f32::NEG_INFINITY } else { *score };
            }
        }
        seen
    }
}

/// Queries, keys and values of one head of one item; rows are times.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// `[queries, size]`.
    pub q: Matrix<'a>,
    /// `[keys, size]`.
    pub k: Matrix<'a>,
    /// `[keys, size]`.
    pub v: Matrix<'a>,
    /// Channels.
    pub size: usize,
    /// What scores are multiplied by.
    pub scale: f32,
}

/// What a pass works in; kept from head to head.
#[derive(Debug, Default)]
pub struct Space {
    scores: Vec<f32>,
    slopes: Vec<f32>,
}

/// The first `n` of a vector that may have to grow; what they hold is left over.
fn room(space: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if space.len() < n {
        space.resize(n, 0.0);
    }
    &mut space[..n]
}

impl Head<'_> {
    /// Scores of a stretch of queries for the keys that any of them sees; rows of as many as that.
    fn scores<'s>(&self, keys: usize, queries: &Range<usize>, space: &'s mut Vec<f32>) -> &'s mut [f32] {
        let scores = room(space, queries.len() * keys);
        let (q, k) = (self.q.skip(queries.start), self.k.transposed());
        product((queries.len(), keys, self.size), q, k, scores, keys, false, self.scale, Threads::One);
        scores
    }

    /// The results of a stretch of queries, in rows of `out` that are `stride` apart, and the logarithm of the sum of
    /// each query's exponentials: infinity, with a result of zero, for one that sees nothing.
    pub fn forward(
        &self,
        sight: &Sight<'_>,
        queries: Range<usize>,
        space: &mut Space,
        (out, stride): (&mut [f32], usize),
        lse: &mut [f32],
    ) {
        let keys = queries.end.checked_sub(1).map_or(0, |last| sight.end(last));
        let scores = self.scores(keys, &queries, &mut space.scores);
        let inverses = room(&mut space.slopes, queries.len());
        vector::wide(
            #[inline(always)]
            || {
                for (i, (lse, inverse)) in lse.iter_mut().zip(inverses.iter_mut()).enumerate() {
                    let row = &mut scores[i * keys..][..keys];
                    let top = vector::greatest(sight.hide(row, queries.start + i));
                    // Nothing is left of a row of minus infinities whatever is taken from it.
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

    /// Gradients of query, key and value, each `[times, size]`, from the result, its gradient and its logarithms.
    pub fn backward(
        &self,
        sight: &Sight<'_>,
        space: &mut Space,
        (o, dout): (Matrix<'_>, Matrix<'_>),
        lse: &[f32],
    ) -> [Vec<f32>; 3] {
        let d = self.size;
        let [mut dq, mut dk, mut dv] = [sight.queries, sight.keys, sight.keys].map(|n| vec![0f32; n * d]);
        for start in (0..sight.queries).step_by(STRETCH) {
            let queries = start..sight.queries.min(start + STRETCH);
            let (rows, keys) = (queries.len(), sight.end(queries.end - 1));
            let (q, o, dout) = (self.q.skip(start), o.skip(start), dout.skip(start));
            let p = self.scores(keys, &queries, &mut space.scores);
            let ds = room(&mut space.slopes, rows * keys);
            product((rows, keys, d), dout, self.v.transposed(), ds, keys, false, 1.0, Threads::One);
            vector::wide(
                #[inline(always)]
                || {
                    for i in 0..rows {
                        let (p, ds) = (&mut p[i * keys..][..keys], &mut ds[i * keys..][..keys]);
                        sight.hide(p, start + i);
                        let lse = lse[start + i];
                        let delta = vector::sum2(o.row(i, d), dout.row(i, d), |o, g| o * g);
                        for (p, ds) in p.iter_mut().zip(ds) {
                            *p = vector::exp_or_zero(*p - lse);
                            *ds = *p * (*ds - delta);
                        }
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
