//! Aligns text with audio codes: finds the token spoken at each code, by hidden Markov models of single letters that are
//! trained on the corpus itself.
//!
//! Every token is a chain of states (one per letter), each state one Gaussian over cepstra of the cached mels. Training
//! starts from evenly divided clips and alternates between estimating the Gaussians and finding the best monotonic path
//! (Viterbi). It takes seconds and needs no GPU. Sums run in a fixed order, so that a resumed run gets the same alignment.

use crate::bad_records::BadRecords;
use crate::error::TrainError;
use crate::job_control::check_stop;
use crate::overlay::{floats, integers};
use myxtts_data::record::{DVAE_MEL, RecordError, RecordSource, TOKENS};
use myxtts_data::tokenizer::Tokenizer;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Cepstral coefficients. The features have the same number of differences over time.
const CEPSTRA: usize = 14;
const FEATURES: usize = 2 * CEPSTRA;
/// Mel frames per feature frame (23 ms), and feature frames per audio code.
const FRAMES_PER_STEP: usize = 2;
const STEPS_PER_CODE: usize = 2;
/// Training iterations. The likelihood hardly changes after ten.
const ROUNDS: usize = 12;
/// Clips that the Gaussians are estimated from; more take longer and do not improve them.
const TRAINING_CLIPS: usize = 3_000;
/// A pair of neighbouring tokens that occurs this often gets states of its own.
const FREQUENT_PAIR: usize = 150;
/// Log-probability of skipping a state. Letters can be silent.
const SKIP: f32 = -2.0;
/// Scale of Gaussian log-likelihoods: neighbouring frames are far from independent.
const ACOUSTIC_SCALE: f32 = 0.3;
/// Frames of the overall mean and variance mixed into each Gaussian, for rare states.
const PRIOR_FRAMES: f64 = 20.0;
/// Lower bound of a variance, as a share of the overall variance.
const VARIANCE_FLOOR: f64 = 0.05;
/// Maximum states per token: pieces of more than four letters are rare and spoken quickly.
const MAX_STATES: usize = 4;

/// The token index at each code, for some of the records.
#[derive(Debug, Default)]
pub struct Alignments {
    of: HashMap<u32, Arc<Aligned>>,
}

/// The alignment of one record: its tokens, and the token that is spoken at each of its codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aligned {
    /// Token ids; the first is the language token.
    pub tokens: Vec<i32>,
    /// Index into `tokens` for every code, non-decreasing.
    pub at_code: Vec<u32>,
    /// Where words begin: index of the first token and of the first code. The first word begins at code 0.
    pub words: Vec<(u32, u32)>,
}

impl Alignments {
    /// The alignment of a record, if it was aligned.
    pub fn get(&self, record: u32) -> Option<&Arc<Aligned>> {
        self.of.get(&record)
    }

    /// Mean number of tokens spoken per code; `None` without records.
    pub fn rate(&self) -> Option<f64> {
        let (mut tokens, mut codes) = (0usize, 0usize);
        for aligned in self.of.values() {
            tokens += aligned.tokens.len().saturating_sub(1);
            codes += aligned.at_code.len();
        }
        (codes > 0).then(|| tokens as f64 / codes as f64)
    }

    /// Aligns `records`; record `r` has `codes_of(r)` codes. Records without codes, and those counted in `bad`, are not
    /// aligned.
    pub fn of(
        source: &dyn RecordSource,
        records: &[u32],
        tokenizer: &Tokenizer,
        codes_of: &(dyn Fn(u32) -> usize + Sync),
        bad: &mut BadRecords,
        stop: &AtomicBool,
    ) -> Result<Alignments, TrainError> {
        // Sums are taken in sorted order, so that the order of the argument does not matter.
        let mut records = records.to_vec();
        records.sort_unstable();
        let clips = read(source, &records, tokenizer, codes_of, bad)?;
        Ok(align(clips, stop)?.into_iter().collect())
    }
}

/// Alignments by record.
impl FromIterator<(u32, Aligned)> for Alignments {
    fn from_iter<I: IntoIterator<Item = (u32, Aligned)>>(aligned: I) -> Alignments {
        Alignments { of: aligned.into_iter().map(|(record, aligned)| (record, Arc::new(aligned))).collect() }
    }
}

/// A clip before it is aligned.
struct Clip {
    record: u32,
    speaker: u32,
    tokens: Vec<i32>,
    /// The pronunciation class of each token.
    sounds: Vec<Sound>,
    codes: usize,
    /// `[steps, FEATURES]`.
    features: Vec<f32>,
}

/// Pronunciation class of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sound {
    /// A space, a punctuation mark or a language token: a pause or nothing.
    Pause { space: bool },
    /// A piece with this number of letters.
    Letters(usize),
}

impl Clip {
    fn steps(&self) -> usize {
        self.features.len() / FEATURES
    }
}

fn sound(tokenizer: &Tokenizer, id: i32) -> Sound {
    if id == tokenizer.space_id() {
        return Sound::Pause { space: true };
    }
    let piece = tokenizer.piece(id);
    let special = piece.starts_with('[') && piece.ends_with(']') && piece.len() > 2;
    match piece.chars().filter(|c| c.is_alphanumeric()).count() {
        0 => Sound::Pause { space: false },
        _ if special => Sound::Pause { space: false },
        letters => Sound::Letters(letters.min(MAX_STATES)),
    }
}

fn read(
    source: &dyn RecordSource,
    records: &[u32],
    tokenizer: &Tokenizer,
    codes_of: &(dyn Fn(u32) -> usize + Sync),
    bad: &mut BadRecords,
) -> Result<Vec<Clip>, TrainError> {
    let read: Vec<Result<Clip, RecordError>> = records
        .par_iter()
        .filter(|&&record| codes_of(record) > 0)
        .map(|&record| {
            let tokens = integers(source, record as usize, TOKENS)?;
            let mel = floats(source, record as usize, DVAE_MEL)?;
            Ok(Clip {
                record,
                speaker: source.speaker(record as usize),
                sounds: tokens.iter().map(|&id| sound(tokenizer, id)).collect(),
                tokens,
                codes: codes_of(record),
                features: cepstra(&mel),
            })
        })
        .collect();
    let mut clips = Vec::with_capacity(read.len());
    for clip in read {
        clips.extend(bad.check(clip)?);
    }
    clips.retain(|clip| clip.steps() > 0 && !clip.tokens.is_empty());
    normalise(&mut clips);
    Ok(clips)
}

/// Cepstra of log-mels `[frames, 80]` and their differences, one row per two frames.
fn cepstra(mel: &[f32]) -> Vec<f32> {
    let bands = DVAE_MEL.width as usize;
    let basis: Vec<f32> = (0..CEPSTRA)
        .flat_map(|k| {
            (0..bands).map(move |band| {
                let angle = std::f64::consts::PI / bands as f64 * (band as f64 + 0.5) * k as f64;
                (angle.cos() * (2.0 / bands as f64).sqrt()) as f32
            })
        })
        .collect();
    let steps = mel.len() / (bands * FRAMES_PER_STEP);
    let mut out = vec![0f32; steps * FEATURES];
    let mut mean = vec![0f32; bands];
    for step in 0..steps {
        let frames = &mel[step * bands * FRAMES_PER_STEP..][..bands * FRAMES_PER_STEP];
        for (band, x) in mean.iter_mut().enumerate() {
            *x = (frames[band] + frames[bands + band]) * 0.5;
        }
        for (k, row) in basis.chunks_exact(bands).enumerate() {
            out[step * FEATURES + k] = row.iter().zip(&mean).map(|(a, b)| a * b).sum();
        }
    }
    for step in 1..steps.saturating_sub(1) {
        for k in 0..CEPSTRA {
            let (before, after) = (out[(step - 1) * FEATURES + k], out[(step + 1) * FEATURES + k]);
            out[step * FEATURES + CEPSTRA + k] = after - before;
        }
    }
    out
}

/// Normalises every speaker's features to mean 0 and variance 1.
fn normalise(clips: &mut [Clip]) {
    let mut sums: HashMap<u32, (f64, [f64; FEATURES], [f64; FEATURES])> = HashMap::new();
    for clip in clips.iter() {
        let (count, sum, squares) =
            sums.entry(clip.speaker).or_insert((0.0, [0.0; FEATURES], [0.0; FEATURES]));
        for frame in clip.features.chunks_exact(FEATURES).filter(|frame| finite(frame)) {
            *count += 1.0;
            for (k, &x) in frame.iter().enumerate() {
                sum[k] += f64::from(x);
                squares[k] += f64::from(x) * f64::from(x);
            }
        }
    }
    clips.par_iter_mut().for_each(|clip| {
        let (count, sum, squares) = &sums[&clip.speaker];
        for frame in clip.features.chunks_exact_mut(FEATURES) {
            for (k, x) in frame.iter_mut().enumerate() {
                let mean = sum[k] / count.max(1.0);
                let deviation = (squares[k] / count.max(1.0) - mean * mean).max(1e-6).sqrt();
                *x = if x.is_finite() { ((f64::from(*x) - mean) / deviation) as f32 } else { 0.0 };
            }
        }
    });
}

fn finite(frame: &[f32]) -> bool {
    frame.iter().all(|x| x.is_finite())
}

/// The states a clip passes through, and the token each belongs to.
struct Chain {
    states: Vec<u32>,
    tokens: Vec<u32>,
}

/// The states of all chains; state 0 is silence.
fn chains(clips: &[Clip]) -> (Vec<Chain>, usize) {
    let mut pairs: HashMap<(i32, i32), usize> = HashMap::new();
    let after = |clip: &Clip, i: usize| clip.tokens.get(i + 1).copied().unwrap_or(-1);
    for clip in clips {
        for (i, &token) in clip.tokens.iter().enumerate() {
            *pairs.entry((token, after(clip, i))).or_default() += 1;
        }
    }
    let mut numbers: HashMap<(i32, Option<i32>, usize), u32> = HashMap::new();
    let chains = clips.iter().map(|clip| {
        let (mut states, mut tokens) = (Vec::new(), Vec::new());
        for (i, (&token, sound)) in clip.tokens.iter().zip(&clip.sounds).enumerate() {
            match sound {
                Sound::Pause { .. } => {
                    states.push(0);
                    tokens.push(i as u32);
                }
                Sound::Letters(letters) => {
                    let next = after(clip, i);
                    let next = (pairs[&(token, next)] >= FREQUENT_PAIR).then_some(next);
                    for letter in 0..*letters {
                        let number = numbers.len() as u32 + 1;
                        states.push(*numbers.entry((token, next, letter)).or_insert(number));
                        tokens.push(i as u32);
                    }
                }
            }
        }
        // Silence after the last word.
        states.push(0);
        tokens.push(clip.tokens.len() as u32 - 1);
        Chain { states, tokens }
    });
    let chains: Vec<Chain> = chains.collect();
    (chains, numbers.len() + 1)
}

/// A diagonal Gaussian per state, as `x * linear + x^2 * square + constant`.
struct Gaussians {
    linear: Vec<f32>,
    square: Vec<f32>,
    constant: Vec<f32>,
}

impl Gaussians {
    fn estimate(clips: &[Clip], chains: &[Chain], paths: &[Vec<u32>], states: usize) -> Gaussians {
        let mut count = vec![0f64; states];
        let mut sum = vec![0f64; states * FEATURES];
        let mut squares = vec![0f64; states * FEATURES];
        for ((clip, chain), path) in clips.iter().zip(chains).zip(paths) {
            for (frame, &at) in clip.features.chunks_exact(FEATURES).zip(path) {
                let state = chain.states[at as usize] as usize;
                count[state] += 1.0;
                let row = state * FEATURES..(state + 1) * FEATURES;
                for ((s, q), &x) in sum[row.clone()].iter_mut().zip(&mut squares[row]).zip(frame) {
                    *s += f64::from(x);
                    *q += f64::from(x) * f64::from(x);
                }
            }
        }
        let total: f64 = count.iter().sum::<f64>().max(1.0);
        let over_all = |all: &[f64], k: usize| all.iter().skip(k).step_by(FEATURES).sum::<f64>() / total;
        let overall: Vec<(f64, f64)> = (0..FEATURES)
            .map(|k| {
                let mean = over_all(&sum, k);
                (mean, (over_all(&squares, k) - mean * mean).max(1e-6))
            })
            .collect();
        let mut made = Gaussians {
            linear: vec![0.0; states * FEATURES],
            square: vec![0.0; states * FEATURES],
            constant: vec![0.0; states],
        };
        for (state, own_frames) in count.iter().enumerate() {
            let weight = own_frames + PRIOR_FRAMES;
            let mut constant = 0.0;
            for (k, &(mean, variance)) in overall.iter().enumerate() {
                let i = state * FEATURES + k;
                let own = (sum[i] + PRIOR_FRAMES * mean) / weight;
                let spread = (squares[i] + PRIOR_FRAMES * (variance + mean * mean)) / weight - own * own;
                let spread = spread.max(VARIANCE_FLOOR * variance);
                made.linear[i] = (own / spread) as f32;
                made.square[i] = (-0.5 / spread) as f32;
                constant -= 0.5 * (spread.ln() + own * own / spread);
            }
            made.constant[state] = constant as f32;
        }
        made
    }

    fn log_likelihood(&self, state: usize, frame: &[f32]) -> f32 {
        let row = state * FEATURES..(state + 1) * FEATURES;
        let (linear, square) = (&self.linear[row.clone()], &self.square[row]);
        let sum: f32 = frame.iter().zip(linear).zip(square).map(|((x, l), q)| x * (l + x * q)).sum();
        ACOUSTIC_SCALE * (sum + self.constant[state])
    }

    /// The best path through a chain: the position in the chain at every step.
    fn path(&self, clip: &Clip, chain: &Chain) -> Vec<u32> {
        let (steps, places) = (clip.steps(), chain.states.len());
        // Each distinct state is scored once per step.
        let mut distinct = chain.states.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let column: Vec<usize> =
            chain.states.iter().map(|state| distinct.binary_search(state).unwrap_or(0)).collect();
        let mut scores = vec![f32::NEG_INFINITY; places];
        let mut next = scores.clone();
        let mut likelihood = vec![0f32; distinct.len()];
        let mut moves = vec![0u8; steps * places];
        for (step, frame) in clip.features.chunks_exact(FEATURES).enumerate() {
            for (score, &state) in likelihood.iter_mut().zip(&distinct) {
                *score = self.log_likelihood(state as usize, frame);
            }
            if step == 0 {
                // A path may start at the language token or at the first letter.
                for (place, score) in scores.iter_mut().enumerate().take(3) {
                    *score = SKIP * place.saturating_sub(1) as f32 + likelihood[column[place]];
                }
                continue;
            }
            let moves = &mut moves[step * places..][..places];
            for place in 0..places {
                let (mut best, mut how) = (scores[place], 0u8);
                if place >= 1 && scores[place - 1] > best {
                    (best, how) = (scores[place - 1], 1);
                }
                if place >= 2 && scores[place - 2] + SKIP > best {
                    (best, how) = (scores[place - 2] + SKIP, 2);
                }
                next[place] = best + likelihood[column[place]];
                moves[place] = how;
            }
            std::mem::swap(&mut scores, &mut next);
        }
        // A path ends at the last position or the one before it, since the last word may end with the clip. A clip too short
        // for its text ends at the last position it can reach.
        let reachable = |place: &usize| scores[*place] > f32::NEG_INFINITY;
        let ends = places.saturating_sub(2)..places;
        let end = ends.clone().rev().filter(reachable).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        let Some(mut place) = end.or_else(|| (0..places).rev().find(reachable)) else {
            return even_path(steps, places);
        };
        let mut path = vec![0u32; steps];
        for step in (0..steps).rev() {
            path[step] = place as u32;
            place -= usize::from(moves[step * places + place]).min(place);
        }
        path
    }
}

/// A path with the same duration at every position.
fn even_path(steps: usize, places: usize) -> Vec<u32> {
    (0..steps).map(|step| (step * places / steps.max(1)) as u32).collect()
}

fn align(clips: Vec<Clip>, stop: &AtomicBool) -> Result<Vec<(u32, Aligned)>, TrainError> {
    let (chains, states) = chains(&clips);
    let few = clips.len().min(TRAINING_CLIPS);
    // Sampled evenly over the whole corpus: the first clips may all be of one speaker.
    let chosen: Vec<usize> = (0..few).map(|i| i * clips.len() / few.max(1)).collect();
    let (mut some, mut some_chains) = (Vec::with_capacity(few), Vec::with_capacity(few));
    let (mut clips, mut all): (Vec<Option<Clip>>, Vec<Option<Chain>>) =
        (clips.into_iter().map(Some).collect(), chains.into_iter().map(Some).collect());
    for &i in &chosen {
        some.extend(clips[i].take());
        some_chains.extend(all[i].take());
    }
    let mut paths: Vec<Vec<u32>> = some
        .iter()
        .zip(&some_chains)
        .map(|(clip, chain)| even_path(clip.steps(), chain.states.len()))
        .collect();
    let mut gaussians = Gaussians::estimate(&some, &some_chains, &paths, states);
    for _ in 0..ROUNDS {
        check_stop(stop)?;
        paths = some.par_iter().zip(&some_chains).map(|(clip, chain)| gaussians.path(clip, chain)).collect();
        gaussians = Gaussians::estimate(&some, &some_chains, &paths, states);
    }
    let others = clips.into_iter().flatten().zip(all.into_iter().flatten());
    let all: Vec<(Clip, Chain)> = some.into_iter().zip(some_chains).chain(others).collect();
    Ok(all
        .into_par_iter()
        .map(|(clip, chain)| {
            let path = gaussians.path(&clip, &chain);
            (clip.record, aligned(clip, &chain, &path))
        })
        .collect())
}

fn aligned(clip: Clip, chain: &Chain, path: &[u32]) -> Aligned {
    let last = clip.tokens.len() as u32 - 1;
    let at_code: Vec<u32> = (0..clip.codes)
        .map(|code| {
            // The middle of the code. The last code may extend past the last step.
            let step = (code * STEPS_PER_CODE + STEPS_PER_CODE / 2).min(path.len() - 1);
            chain.tokens[path[step] as usize].min(last)
        })
        .collect();
    let spoken = |i: usize| matches!(clip.sounds[i], Sound::Letters(_));
    let pause = |i: usize| matches!(clip.sounds[i], Sound::Pause { .. });
    let space = |i: usize| clip.sounds[i] == Sound::Pause { space: true };
    let mut words = Vec::new();
    for i in 0..clip.tokens.len() {
        let begins = match i {
            0 => spoken(0),
            _ => spoken(i) && (space(i - 1) || (words.is_empty() && (0..i).all(pause))),
        };
        if !begins {
            continue;
        }
        let code = match words.is_empty() {
            true => 0,
            false => at_code.partition_point(|&token| token < i as u32) as u32,
        };
        words.push((i as u32, code));
    }
    Aligned { tokens: clip.tokens, at_code, words }
}
