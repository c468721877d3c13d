//! Do the codes say the text? Scored by what training learnt of codes: which token each of them sounds like.
//!
//! Training teaches a classifier to name the text token from a code's vector (`training.code_token_weight`). Here its
//! probabilities are aligned with the text in order (Viterbi): words that are left out, said twice or made up cost most.

use crate::error::SpeakError;
use crate::source::Source;
use myxtts_data::tokenizer::Tokenizer;

/// The classifier's tensors in a model.
pub use myxtts_model::weights::folder::{TOKEN_HEAD_BIAS, TOKEN_HEAD_WEIGHT};

/// The codes' vectors `[width, codes]` in a model.
const CODEBOOK: &str = "dvae.codebook.embed";

/// The most that one code can cost: a wrong classification is no more than that.
const LARGEST_COST: f32 = 6.0;

/// What a letter costs that no code is left for. Short sounds do share a code with their neighbours.
const SKIPPED_LETTER: f32 = 2.5;

/// Which tokens each code sounds like.
pub(crate) struct Proofreader {
    tokens: usize,
    /// `[codes, tokens]`: how much less likely than the likeliest token of the code, as a logarithm; 0 and up.
    costs: Vec<f32>,
}

impl Proofreader {
    /// Of a model that has the classifier and its codes.
    pub(crate) fn of(source: &dyn Source) -> Result<Option<Proofreader>, SpeakError> {
        let shapes = [TOKEN_HEAD_WEIGHT, TOKEN_HEAD_BIAS, CODEBOOK].map(|name| source.shape(name));
        let [Some(weight), Some(bias), Some(book)] = &shapes else { return Ok(None) };
        let (&[tokens, width], &[rows, codes]) = (&weight[..], &book[..]) else { return Ok(None) };
        if width != rows || bias[..] != [tokens] || tokens == 0 {
            let what = format!("{TOKEN_HEAD_WEIGHT} is {weight:?} where codes have {rows} numbers");
            return Err(SpeakError::unfit(source, &what));
        }
        let weight = source.numbers(TOKEN_HEAD_WEIGHT)?;
        let (bias, book) = (source.numbers(TOKEN_HEAD_BIAS)?, source.numbers(CODEBOOK)?);
        let mut costs = Vec::with_capacity(codes * tokens);
        let mut vector = vec![0.0; width];
        for code in 0..codes {
            vector.iter_mut().enumerate().for_each(|(i, x)| *x = book[i * codes + code]);
            let logit =
                |(row, bias): (&[f32], &f32)| bias + row.iter().zip(&vector).map(|(a, b)| a * b).sum::<f32>();
            let logits: Vec<f32> = weight.chunks_exact(width).zip(&bias).map(logit).collect();
            let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            costs.extend(logits.into_iter().map(|logit| (best - logit).min(LARGEST_COST)));
        }
        Ok(Some(Proofreader { tokens, costs }))
    }

    /// How far codes are from saying the tokens in their order, per token: 0 is a perfect match.
    pub(crate) fn mismatch(&self, tokenizer: &Tokenizer, text: &[i32], codes: &[i32]) -> f64 {
        let letters = text.iter().map(|&id| tokenizer.piece(id).chars().any(char::is_alphanumeric));
        // A language's token is written in letters and not spoken.
        let skipping: Vec<f32> = letters
            .enumerate()
            .map(|(i, letter)| if letter && i > 0 { SKIPPED_LETTER } else { 0.0 })
            .collect();
        let cost = |code: i32, token: i32| match (usize::try_from(code), usize::try_from(token)) {
            // Codes and tokens that the classifier has never seen tell nothing.
            (Ok(code), Ok(token)) if token < self.tokens => {
                self.costs.get(code * self.tokens + token).copied().unwrap_or(0.0)
            }
            _ => 0.0,
        };
        let emission = |t: usize, k: usize| cost(codes[t], text[k]);
        f64::from(path_cost(text.len(), codes.len(), &skipping, &emission)) / text.len().max(1) as f64
    }
}

/// The cost of the cheapest monotonic path of `codes` steps through `tokens` places, each step at one place; places that
/// are passed over cost what `skipping` says.
fn path_cost(tokens: usize, codes: usize, skipping: &[f32], cost: &dyn Fn(usize, usize) -> f32) -> f32 {
    let mut best = vec![f32::INFINITY; tokens];
    for t in 0..codes {
        let before = std::mem::take(&mut best);
        // The cheapest way to come from further back than the place before.
        let mut from_back = f32::INFINITY;
        let mut from_start = 0.0;
        best = (0..tokens)
            .map(|k| {
                let mut come = before[k];
                if k > 0 {
                    come = come.min(before[k - 1]);
                }
                if k > 1 {
                    from_back = from_back.min(before[k - 2]) + skipping[k - 1];
                    come = come.min(from_back);
                }
                if t == 0 {
                    come = from_start;
                    from_start += skipping[k];
                }
                come + cost(t, k)
            })
            .collect();
    }
    let mut rest = 0.0;
    let mut ends = f32::INFINITY;
    for k in (0..tokens).rev() {
        ends = ends.min(best[k] + rest);
        rest += skipping[k];
    }
    // Nothing was said.
    if codes == 0 { rest } else { ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cost of a reading of "abcd", one code for each letter: 4 where a code is another letter's.
    fn read(said: &str) -> f32 {
        let (text, said) = (b"abcd", said.as_bytes());
        path_cost(4, said.len(), &[2.5; 4], &|t, k| if said[t] == text[k] { 0.0 } else { 4.0 })
    }

    #[test]
    fn a_right_reading_costs_nothing_and_every_fault_costs() {
        for right in ["abcd", "aabbbcdd", "abcccccccd"] {
            assert_eq!(read(right), 0.0, "{right}");
        }
        // Left out: the letter. Made up: its codes. Said twice: the codes that are too many.
        assert_eq!(read("abd"), 2.5);
        assert_eq!(read("ad"), 5.0);
        assert_eq!(read("abxcd"), 4.0);
        assert_eq!(read("ababcd"), 4.0);
        assert_eq!(read("abcabcd"), 8.0);
        assert_eq!(read("bcd"), 2.5);
        assert_eq!(read("ab"), 5.0);
        assert_eq!(read(""), 10.0);
    }

    #[test]
    fn the_path_is_the_cheapest_of_all() {
        // Every path of four steps through three places, by hand.
        let skipping = [1.0, 0.5, 2.0];
        let costs = [[3.0, 1.0, 4.0], [1.0, 5.0, 9.0], [2.0, 6.0, 5.0], [3.0, 5.0, 8.0]];
        let mut cheapest = f32::INFINITY;
        for path in 0..81usize {
            let places = [path / 27, path / 9 % 3, path / 3 % 3, path % 3];
            if places.windows(2).any(|two| two[1] < two[0]) {
                continue;
            }
            let spoken: f32 = places.iter().enumerate().map(|(t, &k)| costs[t][k]).sum();
            let skipped: f32 = (0..3).filter(|k| !places.contains(k)).map(|k| skipping[k]).sum();
            cheapest = cheapest.min(spoken + skipped);
        }
        assert_eq!(path_cost(3, 4, &skipping, &|t, k| costs[t][k]), cheapest);
    }
}
