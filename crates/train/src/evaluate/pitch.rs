//! Pitch per frame by YIN (de Cheveigné and Kawahara, 2002). The signal is compared with itself at every lag; the first lag
//! at which the two are nearly equal is the period. A frame that is quiet, or not similar to itself at any lag, has no
//! pitch.
//!
//! The frames are those of the DVAE's mels, so that one alignment serves both.

use myxtts_data::mel::FrontEnd;
use rayon::prelude::*;

/// Lowest and highest pitch of the search, in hertz: from a deep male voice to a child.
const MIN_PITCH: f32 = 60.0;
const MAX_PITCH: f32 = 500.0;

/// Samples that are compared at every lag: two periods of a voice of 88 Hz.
const WINDOW: usize = 512;

/// Maximum difference of the signal to itself at its period: 0 is exactly periodic, noise is near 1.
const MAX_DIFFERENCE: f32 = 0.15;

/// Frames this many decibels below the loudest are quiet.
const QUIET_DB: f32 = 40.0;

/// The pitch in hertz at every hop of the DVAE's front-end, of samples at its rate; `None` for frames without a pitch.
pub fn pitch(samples: &[f32]) -> Vec<Option<f32>> {
    let (rate, hop) = (FrontEnd::Dvae.sample_rate() as f32, FrontEnd::Dvae.hop());
    if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
        return Vec::new();
    }
    let (shortest, longest) = ((rate / MAX_PITCH) as usize, (rate / MIN_PITCH).ceil() as usize);
    let whole = WINDOW + longest;
    let frames = samples.len() / hop + 1;
    let cut = |frame: usize| -> Vec<f32> {
        let start = (frame * hop) as i64 - whole as i64 / 2;
        let at = |n: i64| usize::try_from(start + n).ok().and_then(|i| samples.get(i)).copied();
        (0..whole as i64).map(|n| at(n).unwrap_or(0.0)).collect()
    };
    let power = |frame: &[f32]| frame.iter().map(|x| x * x).sum::<f32>() / frame.len() as f32;
    let powers: Vec<f32> = (0..frames).into_par_iter().map(|frame| power(&cut(frame))).collect();
    let least = powers.iter().copied().fold(0.0, f32::max) * 10f32.powf(-QUIET_DB / 10.0);
    let of = |frame: usize| {
        let audible = powers[frame] > least.max(1e-9);
        audible.then(|| period(&cut(frame), shortest, longest)).flatten().map(|lag| rate / lag)
    };
    let found: Vec<Option<f32>> = (0..frames).into_par_iter().map(of).collect();
    // A single frame with a pitch, or one that differs strongly from both neighbours, is an error.
    let near =
        |a: Option<f32>, b: Option<f32>| matches!((a, b), (Some(a), Some(b)) if (a / b).ln().abs() < 0.3);
    let neighbour = |at: Option<usize>| at.and_then(|at| found.get(at).copied()).flatten();
    let kept = |frame: usize| {
        let (before, after) = (neighbour(frame.checked_sub(1)), neighbour(Some(frame + 1)));
        found[frame].filter(|_| near(found[frame], before) || near(found[frame], after))
    };
    (0..frames).map(kept).collect()
}

/// The period of a frame in samples, interpolated between two lags.
fn period(frame: &[f32], shortest: usize, longest: usize) -> Option<f32> {
    let (head, mut sum) = (&frame[..WINDOW], 0.0);
    // Difference of the signal to itself at each lag, relative to the mean over all shorter lags.
    let mut unlike = vec![1f32; longest + 1];
    for lag in 1..=longest {
        let apart: f32 = head.iter().zip(&frame[lag..]).map(|(a, b)| (a - b) * (a - b)).sum();
        sum += apart;
        unlike[lag] = if sum > 0.0 { apart * lag as f32 / sum } else { 1.0 };
    }
    let mut lag = (shortest..=longest).find(|&lag| unlike[lag] < MAX_DIFFERENCE)?;
    while lag < longest && unlike[lag + 1] < unlike[lag] {
        lag += 1;
    }
    if lag == longest || lag == shortest {
        return Some(lag as f32);
    }
    let (a, b, c) = (unlike[lag - 1], unlike[lag], unlike[lag + 1]);
    let bend = a - 2.0 * b + c;
    Some(lag as f32 + if bend > 0.0 { (0.5 * (a - c) / bend).clamp(-0.5, 0.5) } else { 0.0 })
}

/// Difference of two pitch contours along an alignment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PitchError {
    /// Root mean square difference of the natural logarithms, over frames where both have a pitch; `None` with too few such
    /// frames.
    pub log_rmse: Option<f32>,
    /// Share of frame pairs in which only one frame has a pitch.
    pub voicing: f32,
}

/// Minimum number of pairs with a pitch on both sides: a tenth of a second.
const MIN_PAIRS: usize = 9;

/// Compares two pitch contours along pairs of frames; `None` without pairs.
pub fn compare(a: &[Option<f32>], b: &[Option<f32>], pairs: &[(usize, usize)]) -> Option<PitchError> {
    let (mut squares, mut both, mut differ, mut all) = (0f64, 0usize, 0usize, 0usize);
    for &(i, j) in pairs {
        let (Some(&a), Some(&b)) = (a.get(i), b.get(j)) else { continue };
        all += 1;
        match (a, b) {
            (Some(a), Some(b)) => {
                squares += f64::from(a / b).ln().powi(2);
                both += 1;
            }
            (None, None) => {}
            _ => differ += 1,
        }
    }
    (all > 0).then(|| PitchError {
        log_rmse: (both >= MIN_PAIRS).then(|| (squares / both as f64).sqrt() as f32),
        voicing: differ as f32 / all as f32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_tensor::random::Stream;
    use proptest::prelude::*;

    const RATE: f32 = 22_050.0;

    /// A tone with the given number of partials, each weaker than the one before.
    fn tone(hertz: f32, partials: usize, samples: usize) -> Vec<f32> {
        let at = |n: usize| {
            let partial =
                |k: usize| (std::f32::consts::TAU * hertz * k as f32 * n as f32 / RATE).sin() / k as f32;
            0.2 * (1..=partials).map(partial).sum::<f32>()
        };
        (0..samples).map(at).collect()
    }

    fn inner(found: &[Option<f32>]) -> &[Option<f32>] {
        &found[4..found.len() - 4]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_tone_has_its_pitch(hertz in 70f32..450.0, partials in 1usize..6, noise in 0f32..0.01, seed: u64) {
            let mut samples = tone(hertz, partials, 8000);
            let hiss = Stream::new(seed).normals(samples.len());
            samples.iter_mut().zip(hiss).for_each(|(x, hiss)| *x += noise * hiss);
            let found = pitch(&samples);
            prop_assert_eq!(found.len(), 8000 / 256 + 1);
            for one in inner(&found) {
                let one = one.ok_or_else(|| TestCaseError::fail("no pitch"))?;
                prop_assert!((one / hertz - 1.0).abs() < 0.02, "{one} for {hertz}");
            }
        }

        #[test]
        fn noise_and_silence_have_none(seed: u64, loud in 0f32..0.3) {
            let samples: Vec<f32> = Stream::new(seed).normals(8000).iter().map(|x| loud * x).collect();
            let voiced = pitch(&samples).iter().flatten().count();
            prop_assert!(voiced <= 1, "{voiced} frames");
        }
    }

    #[test]
    fn quiet_or_noisy_frames_have_no_pitch() {
        let mut samples = tone(120.0, 4, 16_000);
        samples[8000..].iter_mut().for_each(|x| *x *= 1e-3);
        let found = pitch(&samples);
        assert!(found[4..28].iter().all(Option::is_some) && found[40..].iter().all(Option::is_none));
        assert!(pitch(&[]).is_empty() && pitch(&[f32::NAN; 9000]).is_empty());
        assert_eq!(pitch(&[0.0; 10]), [None]);
    }

    #[test]
    fn pitches_are_compared_where_both_exist() {
        let (a, b) = (vec![Some(100.0); 20], vec![Some(110.0); 20]);
        let pairs: Vec<(usize, usize)> = (0..20).map(|i| (i, i)).collect();
        let found = compare(&a, &b, &pairs).unwrap();
        assert!((found.log_rmse.unwrap() - 1.1f32.ln()).abs() < 1e-5 && found.voicing == 0.0);
        let mut half = b.clone();
        half[..15].fill(None);
        let found = compare(&a, &half, &pairs).unwrap();
        assert_eq!((found.log_rmse, found.voicing), (None, 0.75));
        assert_eq!(compare(&a, &b, &[]), None);
        assert_eq!(compare(&a, &b, &[(50, 50)]), None, "beyond the end");
    }
}
