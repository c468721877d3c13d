//! Measures how far codes are from the text they should speak.
//!
//! Training fits a classifier that predicts the text token from a code's vector (`training.code_token_weight`). Its
//! probabilities are aligned with the text in order (Viterbi): words that are left out, repeated or invented cost most.

use crate::error::SpeakError;
use crate::weight_source::WeightSource;
use myxtts_data::tokenizer::Tokenizer;

/// Tensors of the classifier.
pub use myxtts_model::weights::folder::{TOKEN_HEAD_BIAS, TOKEN_HEAD_WEIGHT};

/// Tensor of the codes' vectors, `[width, codes]`.
const CODEBOOK: &str = "dvae.codebook.embed";

/// Upper limit of the cost of one code, so that one wrong classification does not outweigh the rest.
const MAX_CODE_COST: f32 = 6.0;

/// Cost of a letter without a code of its own. Short sounds do share a code with their neighbours.
const SKIPPED_LETTER_COST: f32 = 2.5;

/// Compares codes with the text tokens they should speak.
pub(crate) struct Proofreader {
    tokens: usize,
    /// `[codes, tokens]`: log probability of the code's most likely token minus that of the token; 0 and up.
    costs: Vec<f32>,
}

impl Proofreader {
    /// Loads the classifier; `None` if the model has none.
    pub(crate) fn load(source: &dyn WeightSource) -> Result<Option<Proofreader>, SpeakError> {
        let shapes = [TOKEN_HEAD_WEIGHT, TOKEN_HEAD_BIAS, CODEBOOK].map(|name| source.shape(name));
        let [Some(weight), Some(bias), Some(book)] = &shapes else { return Ok(None) };
        let (&[tokens, width], &[rows, codes]) = (&weight[..], &book[..]) else { return Ok(None) };
        if width != rows || bias[..] != [tokens] || tokens == 0 {
            let what =
                format!("{TOKEN_HEAD_WEIGHT} is {weight:?} but the vectors of codes have {rows} channels");
            return Err(SpeakError::unfit(source, &what));
        }
        let weight = source.tensor_f32(TOKEN_HEAD_WEIGHT)?;
        let (bias, book) = (source.tensor_f32(TOKEN_HEAD_BIAS)?, source.tensor_f32(CODEBOOK)?);
        let mut costs = Vec::with_capacity(codes * tokens);
        let mut vector = vec![0.0; width];
        for code in 0..codes {
            vector.iter_mut().enumerate().for_each(|(i, x)| *x = book[i * codes + code]);
            let logit =
                |(row, bias): (&[f32], &f32)| bias + row.iter().zip(&vector).map(|(a, b)| a * b).sum::<f32>();
            let logits: Vec<f32> = weight.chunks_exact(width).zip(&bias).map(logit).collect();
            let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            costs.extend(logits.into_iter().map(|logit| (best - logit).min(MAX_CODE_COST)));
        }
        Ok(Some(Proofreader { tokens, costs }))
    }

    /// Returns the alignment cost of codes and text per text token; 0 is a perfect match.
    pub(crate) fn mismatch(&self, tokenizer: &Tokenizer, text: &[i32], codes: &[i32]) -> f64 {
        let letters = text.iter().map(|&id| tokenizer.piece(id).chars().any(char::is_alphanumeric));
        // The language token is written with letters but not spoken.
        let skipping: Vec<f32> = letters
            .enumerate()
            .map(|(i, letter)| if letter && i > 0 { SKIPPED_LETTER_COST } else { 0.0 })
            .collect();
        let cost = |code: i32, token: i32| match (usize::try_from(code), usize::try_from(token)) {
            // Codes and tokens outside the classifier's tables cost nothing.
            (Ok(code), Ok(token)) if token < self.tokens => {
                self.costs.get(code * self.tokens + token).copied().unwrap_or(0.0)
            }
            _ => 0.0,
        };
        let emission = |t: usize, k: usize| cost(codes[t], text[k]);
        f64::from(path_cost(text.len(), codes.len(), &skipping, &emission)) / text.len().max(1) as f64
    }
}

/// Cost of the cheapest monotonic path of `codes` steps through `tokens` positions, each step at one position. Skipping a
/// position costs its entry in `skipping`.
fn path_cost(tokens: usize, codes: usize, skipping: &[f32], cost: &dyn Fn(usize, usize) -> f32) -> f32 {
    let mut best = vec![f32::INFINITY; tokens];
    for t in 0..codes {
        let before = std::mem::take(&mut best);
        // The cheapest predecessor more than one position back.
        let mut from_back = f32::INFINITY;
        let mut from_start = 0.0;
        best = (0..tokens)
            .map(|k| {
                let mut arrive = before[k];
                if k > 0 {
                    arrive = arrive.min(before[k - 1]);
                }
                if k > 1 {
                    from_back = from_back.min(before[k - 2]) + skipping[k - 1];
                    arrive = arrive.min(from_back);
                }
                if t == 0 {
                    arrive = from_start;
                    from_start += skipping[k];
                }
                arrive + cost(t, k)
            })
            .collect();
    }
    let mut rest = 0.0;
    let mut ends = f32::INFINITY;
    for k in (0..tokens).rev() {
        ends = ends.min(best[k] + rest);
        rest += skipping[k];
    }
    // Without codes every position is skipped.
    if codes == 0 { rest } else { ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cost of speaking "abcd", one code per letter; a code of another letter costs 4.
    fn cost_of(codes: &str) -> f32 {
        let (text, codes) = (b"abcd", codes.as_bytes());
        path_cost(4, codes.len(), &[2.5; 4], &|t, k| if codes[t] == text[k] { 0.0 } else { 4.0 })
    }

    #[test]
    fn a_perfect_match_costs_nothing_and_every_fault_costs() {
        for right in ["abcd", "aabbbcdd", "abcccccccd"] {
            assert_eq!(cost_of(right), 0.0, "{right}");
        }
        // Omission: the letter. Invention: its codes. Repetition: the surplus codes.
        assert_eq!(cost_of("abd"), 2.5);
        assert_eq!(cost_of("ad"), 5.0);
        assert_eq!(cost_of("abxcd"), 4.0);
        assert_eq!(cost_of("ababcd"), 4.0);
        assert_eq!(cost_of("abcabcd"), 8.0);
        assert_eq!(cost_of("bcd"), 2.5);
        assert_eq!(cost_of("ab"), 5.0);
        assert_eq!(cost_of(""), 10.0);
    }

    #[test]
    fn the_path_is_the_cheapest_of_all() {
        // Enumerates every path of four steps through three positions.
        let skipping = [1.0, 0.5, 2.0];
        let costs = [[3.0, 1.0, 4.0], [1.0, 5.0, 9.0], [2.0, 6.0, 5.0], [3.0, 5.0, 8.0]];
        let mut cheapest = f32::INFINITY;
        for path in 0..81usize {
            let positions = [path / 27, path / 9 % 3, path / 3 % 3, path % 3];
            if positions.windows(2).any(|two| two[1] < two[0]) {
                continue;
            }
            let spoken: f32 = positions.iter().enumerate().map(|(t, &k)| costs[t][k]).sum();
            let skipped: f32 = (0..3).filter(|k| !positions.contains(k)).map(|k| skipping[k]).sum();
            cheapest = cheapest.min(spoken + skipped);
        }
        assert_eq!(path_cost(3, 4, &skipping, &|t, k| costs[t][k]), cheapest);
    }
}
