//! Samples the next code (repetition penalty, temperature, top-k, top-p, in the original's order), and stops speech
//! that does not end by itself.

use myxtts_run::seed::Seed;
use serde::{Deserialize, Serialize};

/// Id that the original writes at the positions of conditioning and text. Its repetition penalty therefore always
/// applies to this id.
const FILLER: usize = 1;

/// How codes are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingOptions {
    /// Always takes the most likely code; temperature, top-k, top-p and seed are ignored.
    pub greedy: bool,
    /// Divisor of the logits: higher is more varied, lower is more careful.
    pub temperature: f32,
    /// Number of most likely codes to sample from; 0 for all.
    pub top_k: usize,
    /// Share of probability to sample from, most likely codes first; 1 for all.
    pub top_p: f32,
    /// Factor that makes codes already spoken less likely; 1 has no effect.
    pub repetition_penalty: f32,
    /// Strength of guidance by the text: how much codes are preferred that the text makes more likely; 0 turns it off.
    /// Needs a model trained with text dropout.
    pub guidance: f32,
    /// Maximum number of codes, within the model's limit.
    pub max_codes: usize,
    /// Random seed; the same seed gives the same speech.
    pub seed: u64,
    /// Limits that stop speech that does not end by itself.
    pub guards: Guards,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions {
            greedy: false,
            temperature: 0.75,
            top_k: 50,
            top_p: 0.85,
            repetition_penalty: 5.0,
            guidance: 0.0,
            max_codes: 602,
            seed: 0,
            guards: Guards::default(),
        }
    }
}

/// Limits that stop speech that does not end by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guards {
    /// Length of a repetition, in codes, that counts as a loop; 0 turns the check off. Periods of a word's length must
    /// repeat six times and over half as many codes again, longer ones three times: see [`Guards::length_before_loop`].
    pub loop_codes: usize,
    /// Maximum codes per text token, plus [`SPARE_CODES`] per text; 0 for no limit.
    pub codes_per_token: f32,
}

/// Longest period in codes that is shorter than any word: a seventh of a second.
const SOUND_PERIOD: usize = 3;

/// Longest period in codes that may be a word: 700 ms. "seven seven seven" is not a loop, and some models speak it with
/// identical codes.
const WORD_PERIOD: usize = 15;

/// Longest period of a loop in codes: three seconds.
const MAX_PERIOD: usize = 64;

/// Repetitions of a word that count as a loop.
const WORD_REPEATS: usize = 6;
/// Repetitions of a phrase that count as a loop.
const PHRASE_REPEATS: usize = 3;

/// Codes allowed for every text besides those for its tokens: two seconds of breath and silence.
pub const SPARE_CODES: usize = 43;

impl Default for Guards {
    fn default() -> Guards {
        Guards { loop_codes: 43, codes_per_token: 16.0 }
    }
}

impl Guards {
    /// No limits, as in the original.
    pub fn none() -> Guards {
        Guards { loop_codes: 0, codes_per_token: 0.0 }
    }

    /// Maximum number of codes for a text of `tokens` tokens.
    pub fn most(&self, tokens: usize) -> usize {
        if self.codes_per_token <= 0.0 {
            return usize::MAX;
        }
        SPARE_CODES.saturating_add((self.codes_per_token * tokens as f32) as usize)
    }

    /// If the codes end in a loop, returns how many are left when only its first period is kept.
    ///
    /// | period | is a loop |
    /// |---|---|
    /// | up to 3 codes: a sound | over [`Guards::loop_codes`] |
    /// | up to 15 codes, 700 ms: a word | six times, and over half as many codes again |
    /// | up to 64 codes, 3 s: a phrase | three times, and over [`Guards::loop_codes`] |
    pub(crate) fn length_before_loop(&self, codes: &[i32]) -> Option<usize> {
        let long = self.loop_codes;
        if long == 0 || codes.len() < long {
            return None;
        }
        let required = |period: usize| match period {
            period if period <= SOUND_PERIOD => long,
            period if period <= WORD_PERIOD => (long + long / 2).max(WORD_REPEATS * period),
            _ => long.max(PHRASE_REPEATS * period),
        };
        (1..=MAX_PERIOD).filter(|&period| required(period) <= codes.len()).find_map(|period| {
            let same = codes.iter().rev().zip(codes.iter().rev().skip(period)).take_while(|(a, b)| a == b);
            // Codes equal to those one period earlier, plus that first period.
            let repeated = same.count() + period;
            (repeated >= required(period)).then(|| codes.len() - repeated + period)
        })
    }
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model produced STOP.
    Stop,
    /// The model's position limit or the requested maximum was reached.
    Limit,
    /// More codes than a text of this length can have.
    TooManyForText,
    /// The codes repeat.
    Loop,
    /// The observer stopped it.
    #[serde(rename = "watcher")]
    Observer,
}

/// Samples one code after another.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplingOptions,
    seen: Vec<bool>,
    scores: Vec<f32>,
    seed: Seed,
    drawn: u64,
}

impl Sampler {
    /// Creates a sampler over `vocabulary` codes; `start` is the id of START.
    pub fn new(options: &SamplingOptions, vocabulary: usize, start: i32) -> Sampler {
        let mut seen = vec![false; vocabulary];
        for id in Sampler::initially_seen(start) {
            seen.iter_mut().skip(id).take(1).for_each(|seen| *seen = true);
        }
        Sampler { options: options.clone(), seen, scores: Vec::new(), seed: stream(options.seed), drawn: 0 }
    }

    /// Ids that the repetition penalty treats as already spoken at the start.
    pub(crate) fn initially_seen(start: i32) -> [usize; 2] {
        [FILLER, usize::try_from(start).unwrap_or(FILLER)]
    }

    /// The random numbers of a seed, uniform in [0, 1).
    pub fn uniforms(seed: u64) -> impl Iterator<Item = f64> {
        let seed = stream(seed);
        (0..).map(move |i| seed.unit(i))
    }

    /// Samples the next code from its logits and marks it as spoken; `None` if all logits are NaN or -Inf.
    pub fn next(&mut self, logits: &[f32]) -> Option<i32> {
        assert_eq!(logits.len(), self.seen.len(), "there must be one logit per code");
        self.scores.clear();
        self.scores.extend_from_slice(logits);
        penalise(&mut self.scores, &self.seen, self.options.repetition_penalty);
        let code = if self.options.greedy {
            greatest(&self.scores)?
        } else {
            let at = self.seed.unit(self.drawn);
            self.drawn += 1;
            draw(&mut self.scores, &self.options, at)?
        };
        self.seen[code] = true;
        i32::try_from(code).ok()
    }
}

fn stream(seed: u64) -> Seed {
    Seed::new(seed).derive("codes")
}

/// Makes codes already spoken less likely, for positive and negative logits.
fn penalise(scores: &mut [f32], seen: &[bool], penalty: f32) {
    for (score, _) in scores.iter_mut().zip(seen).filter(|(_, seen)| **seen) {
        *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
    }
}

/// Index of the largest score, the first of equals; `None` if there is no finite one.
fn greatest(scores: &[f32]) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (i, &score) in scores.iter().enumerate() {
        if !score.is_nan() && best.is_none_or(|best| score > scores[best]) {
            best = Some(i);
        }
    }
    best.filter(|&best| scores[best] > f32::NEG_INFINITY)
}

/// Samples from the scores; `at` is a uniform random number in [0, 1).
fn draw(scores: &mut [f32], options: &SamplingOptions, at: f64) -> Option<usize> {
    let top = scores[greatest(scores)?];
    let temperature = f64::from(options.temperature.max(1e-4));
    // Sorted by likelihood, lower id first among equals: the same order on every machine.
    let mut order: Vec<usize> = (0..scores.len()).filter(|&i| scores[i] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    if options.top_k > 0 && options.top_k < order.len() {
        // Codes as likely as the last one are kept, as in the original.
        let least = scores[order[options.top_k - 1]];
        order.retain(|&i| scores[i] >= least);
    }
    let weight = |i: usize| ((f64::from(scores[i]) - f64::from(top)) / temperature).exp();
    let mut weights: Vec<f64> = order.iter().map(|&i| weight(i)).collect();
    let total: f64 = weights.iter().sum();
    // Drops the least likely codes as long as their total stays below 1 - top_p.
    let out = (1.0 - f64::from(options.top_p)) * total;
    let mut sum = 0.0;
    while weights.len() > 1 && options.top_p < 1.0 {
        sum += weights[weights.len() - 1];
        if sum > out {
            break;
        }
        weights.pop();
    }
    let mut at = at * weights.iter().sum::<f64>();
    for (&i, weight) in order.iter().zip(&weights) {
        at -= weight;
        if at < 0.0 {
            return Some(i);
        }
    }
    // Rounding may leave a remainder behind the last code.
    order.get(weights.len() - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(options: &SamplingOptions, logits: &[f32]) -> Vec<usize> {
        let mut counts = vec![0; logits.len()];
        let seed = Seed::new(3);
        for i in 0..20_000 {
            counts[draw(&mut logits.to_vec(), options, seed.unit(i)).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn samples_follow_the_softmax() {
        let options =
            SamplingOptions { temperature: 0.5, top_k: 0, top_p: 1.0, ..SamplingOptions::default() };
        let logits = [0.0, 1.0, -1.0, 0.5];
        let weights: Vec<f64> = logits.iter().map(|l| f64::from(*l / 0.5).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (count, weight) in counts(&options, &logits).iter().zip(&weights) {
            let (found, wanted) = (*count as f64 / 20_000.0, weight / total);
            assert!((found - wanted).abs() < 0.015, "{found} for {wanted}");
        }
    }

    #[test]
    fn top_k_and_top_p_limit_the_candidates() {
        let all = SamplingOptions { temperature: 1.0, top_k: 0, top_p: 1.0, ..SamplingOptions::default() };
        let logits = [2.0, 1.0, 1.0, 0.0, f32::NEG_INFINITY];
        let used = |options: &SamplingOptions| -> Vec<bool> {
            counts(options, &logits).iter().map(|&count| count > 0).collect()
        };
        assert_eq!(used(&all), [true, true, true, true, false]);
        // The third is as likely as the second.
        assert_eq!(used(&SamplingOptions { top_k: 2, ..all.clone() }), [true, true, true, false, false]);
        assert_eq!(used(&SamplingOptions { top_k: 1, ..all.clone() }), [true, false, false, false, false]);
        // Probabilities 0.53, 0.20, 0.20, 0.07: drops the last 0.07, then the third.
        assert_eq!(used(&SamplingOptions { top_p: 0.9, ..all.clone() }), [true, true, true, false, false]);
        assert_eq!(used(&SamplingOptions { top_p: 0.7, ..all.clone() }), [true, true, false, false, false]);
        assert_eq!(used(&SamplingOptions { top_p: 0.0, ..all }), [true, false, false, false, false]);
    }

    #[test]
    fn the_repetition_penalty_applies_to_emitted_codes_start_and_filler() {
        let options = SamplingOptions { greedy: true, repetition_penalty: 5.0, ..SamplingOptions::default() };
        let mut sampler = Sampler::new(&options, 5, 3);
        let logits = [1.0, 4.0, 0.9, 4.0, -8.0];
        assert_eq!([(); 3].map(|()| sampler.next(&logits)), [Some(0), Some(2), Some(1)]);
        let mut sampler = Sampler::new(&options, 5, 3);
        let below = [-1.0, -0.5, -1.5, -0.5, -3.0];
        assert_eq!([(); 3].map(|()| sampler.next(&below)), [Some(0), Some(2), Some(1)]);
        assert_eq!(sampler.next(&[f32::NAN; 5]), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_codes() {
        let logits: Vec<f32> = (0..40).map(|i| (i * 7 % 13) as f32 / 4.0).collect();
        let codes = |seed| {
            let mut sampler = Sampler::new(&SamplingOptions { seed, ..SamplingOptions::default() }, 40, 38);
            (0..30).map(|_| sampler.next(&logits)).collect::<Vec<_>>()
        };
        assert_eq!(codes(1), codes(1));
        assert_ne!(codes(1), codes(2));
    }

    /// Number of repetitions of a period until it counts as a loop; `None` up to 20.
    fn until_a_loop(round: i32) -> Option<usize> {
        let (mut codes, guards): (Vec<i32>, _) = ((500..530).collect(), Guards::default());
        for said in 1..=20 {
            for code in 0..round {
                codes.push(code);
                if guards.length_before_loop(&codes).is_some() {
                    return Some(said);
                }
            }
        }
        None
    }

    #[test]
    fn five_repetitions_of_a_word_are_not_a_loop() {
        // Digits of 0.25 to 0.7 s with identical codes, as in "zero zero zero zero zero".
        for round in 5..=15 {
            assert!(
                until_a_loop(round).is_some_and(|times| times >= 6),
                "{round}: {:?}",
                until_a_loop(round)
            );
        }
        // A phrase of more than 700 ms, three times.
        for round in 16..=64 {
            assert_eq!(until_a_loop(round), Some(3), "{round}");
        }
        // A sound that is held for two seconds.
        assert_eq!([1, 2, 3].map(until_a_loop), [None, None, Some(15)]);
        let mut held = vec![7; 43];
        assert_eq!(Guards::default().length_before_loop(&held), Some(1));
        held.pop();
        assert_eq!(Guards::default().length_before_loop(&held), None);
    }

    #[test]
    fn a_loop_is_cut_after_its_first_period() {
        let guards = Guards { loop_codes: 12, ..Guards::default() };
        let mut codes: Vec<i32> = (0..20).collect();
        assert_eq!(guards.length_before_loop(&codes), None);
        for i in 0..12 {
            codes.push(100 + i % 3);
            assert_eq!(guards.length_before_loop(&codes), (i == 11).then_some(23), "{i}");
        }
        assert_eq!(guards.length_before_loop(&[7; 11]), None);
        assert_eq!(guards.length_before_loop(&[7; 12]), Some(1));
        assert_eq!(Guards::none().length_before_loop(&[7; 99]), None);
        // A loop of one sound is also a loop of two: the shorter period is found first.
        assert_eq!(guards.length_before_loop(&[7; 40]), Some(1));
        assert_eq!(Guards { codes_per_token: 2.0, ..guards }.most(10), SPARE_CODES + 20);
    }
}
