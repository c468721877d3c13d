//! Ranks candidates by distance: sentences by their mels, speakers by their vectors.

use rayon::prelude::*;

use super::dtw::{DtwOptions, Frames, Prepared};

/// The distance of each candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// Distance per candidate, in the order given; infinite if nothing was spoken.
    pub distances: Vec<f32>,
}

impl Ranking {
    /// Index of the nearest candidate; `None` if all distances are infinite.
    pub fn nearest(&self) -> Option<usize> {
        let all = self.distances.iter().enumerate().filter(|(_, distance)| distance.is_finite());
        all.min_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at)
    }

    /// The rank of a candidate, 1 for the nearest. Ties count against it, and so do all others if nothing was spoken: a
    /// model that gives the same output for everything must not rank first.
    pub fn rank(&self, candidate: usize) -> usize {
        let own = self.distances[candidate];
        1 + self.distances.iter().enumerate().filter(|&(at, &d)| at != candidate && d <= own).count()
    }
}

/// Compares the mel of the synthesised audio with the reference mel of every candidate sentence, on all cores.
pub fn sentences(spoken: Frames<'_>, candidates: &[Frames<'_>], options: &DtwOptions) -> Ranking {
    let spoken = Prepared::new(spoken, options);
    let far = |candidate: &Frames<'_>| spoken.distance(&Prepared::new(*candidate, options), options);
    Ranking { distances: candidates.par_iter().map(far).collect() }
}

/// Compares a speaker vector with those of all speakers; the distance is 1 minus the cosine.
pub fn speakers(heard: &[f32], candidates: &[&[f32]]) -> Ranking {
    let far = |candidate: &&[f32]| similarity(heard, candidate).map_or(f32::INFINITY, |cosine| 1.0 - cosine);
    Ranking { distances: candidates.iter().map(far).collect() }
}

/// Cosine between two vectors of the same length; `None` if one of them is zero.
pub fn similarity(a: &[f32], b: &[f32]) -> Option<f32> {
    assert_eq!(a.len(), b.len(), "both vectors must come from one speaker encoder");
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    (lengths.is_finite() && lengths > 0.0).then(|| (dot(a, b) / lengths) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHANNELS: usize = 4;

    fn of(values: &[f32]) -> Frames<'_> {
        Frames::new(values, CHANNELS).unwrap()
    }

    /// Pseudo-random numbers between -1 and 1 for a seed.
    fn random_values(seed: u64, len: usize) -> Vec<f32> {
        myxtts_tensor::random::Stream::new(seed).normals(len)
    }

    /// Resamples frames in time, with linear interpolation.
    fn stretched(mel: &[f32], frames: usize) -> Vec<f32> {
        let old = mel.len() / CHANNELS;
        let mut out = Vec::new();
        for t in 0..frames {
            let at = t as f32 * (old - 1) as f32 / (frames - 1) as f32;
            let (i, part) = (at as usize, at.fract());
            let next = (i + 1).min(old - 1);
            for c in 0..CHANNELS {
                out.push(mel[i * CHANNELS + c] * (1.0 - part) + mel[next * CHANNELS + c] * part);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn the_right_sentence_is_nearest_at_any_speed(
            seed in 0u64..1000, meant in 0usize..6, frames in 20usize..60, pace in 0.6f32..1.7,
        ) {
            // Smooth like speech: every third frame is random, the others are interpolated.
            let mel = |i: u64| {
                let frames = frames + 3 * i as usize;
                stretched(&random_values(seed * 10 + i, frames / 3 * CHANNELS), frames)
            };
            let mels: Vec<Vec<f32>> = (0..6).map(mel).collect();
            let candidates: Vec<Frames<'_>> = mels.iter().map(|mel| of(mel)).collect();
            let same = sentences(candidates[meant], &candidates, &DtwOptions::default());
            prop_assert!(same.rank(meant) == 1 && same.nearest() == Some(meant), "{same:?}");
            prop_assert_eq!(same.distances[meant], 0.0);
            let count = (candidates[meant].len() as f32 * pace) as usize;
            let other = stretched(&mels[meant], count);
            for band in [None, Some(0.2)] {
                let found = sentences(of(&other), &candidates, &DtwOptions { band, ..DtwOptions::default() });
                prop_assert_eq!(found.rank(meant), 1, "{} at {}: {:?}", meant, pace, found);
            }
        }

        #[test]
        fn the_right_speaker_is_nearest_at_any_vector_length(seed in 0u64..1000, who in 0usize..5, loud in 0.01f32..100.0) {
            let all: Vec<Vec<f32>> = (0..5).map(|i| random_values(seed * 5 + i, 16)).collect();
            let all: Vec<&[f32]> = all.iter().map(Vec::as_slice).collect();
            let heard: Vec<f32> = all[who].iter().map(|x| x * loud).collect();
            let found = speakers(&heard, &all);
            prop_assert_eq!(found.rank(who), 1, "{:?}", found);
            prop_assert!(found.distances[who].abs() < 1e-5);
            prop_assert!((similarity(&heard, all[who]).unwrap() - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn silence_matches_no_candidate() {
        let (a, b) = (random_values(1, 40), random_values(2, 40));
        let found = sentences(of(&[]), &[of(&a), of(&b)], &DtwOptions::default());
        assert_eq!(found.nearest(), None);
        assert_eq!([found.rank(0), found.rank(1)], [2, 2]);
        assert_eq!(sentences(of(&[]), &[of(&a)], &DtwOptions::default()).nearest(), None);
        let found = speakers(&[0.0; 40], &[&a, &b]);
        assert_eq!([found.rank(0), found.rank(1)], [2, 2]);
        assert_eq!(similarity(&a, &[0.0; 40]), None);
    }

    #[test]
    fn a_tie_has_no_first_candidate() {
        let found = Ranking { distances: vec![1.0, 1.0, 2.0] };
        assert_eq!([found.rank(0), found.rank(1), found.rank(2)], [2, 2, 3]);
    }
}
