//! Mel-cepstral distortion: the distance of the spectral envelopes of two utterances, in decibels.
//!
//! A frame of natural log-mels `ln P` over M channels has the cepstrum
//!
//! `c[k] = 1/M · Σ_m ln P[m] · cos(π k (m + ½) / M)`,
//!
//! and two frames have the distortion `10 √2 / ln 10 · sqrt(Σ (c[k] - c'[k])²)`, k from 1 to 13. The factor and the scale of
//! the cosines belong together: only then is the result the root mean square difference of two *power* envelopes in dB. (An
//! orthonormal transform with the same factor, as often seen, gives values √(2M) times as large.) `c[0]`, which is loudness,
//! is left out, and so are coefficients above 13, which represent partials of the voice.
//!
//! Mels of XTTS are of power. Values are comparable with each other and, roughly, with other work, whose cepstra come from
//! other filters.

use super::dtw::{Alignment, Frames};

/// The last coefficient that is used.
const LAST_COEFFICIENT: usize = 13;

/// The cepstra `[frames, 13]` of natural log-mel frames, coefficients 1 to 13.
pub fn cepstra(mel: Frames<'_>) -> Vec<f32> {
    let channels = mel.channels();
    let cosine = |k: usize, m: usize| {
        let angle = std::f64::consts::PI * k as f64 * (m as f64 + 0.5) / channels as f64;
        (angle.cos() / channels as f64) as f32
    };
    let table: Vec<Vec<f32>> =
        (1..=LAST_COEFFICIENT).map(|k| (0..channels).map(|m| cosine(k, m)).collect()).collect();
    let of = |frame: &[f32], row: &Vec<f32>| frame.iter().zip(row).map(|(x, c)| x * c).sum::<f32>();
    mel.rows().flat_map(|frame| table.iter().map(move |row| of(frame, row))).collect()
}

/// Mean distortion in dB along a path; infinite where it has no pairs.
pub fn distortion_along(a: Frames<'_>, b: Frames<'_>, path: &Alignment) -> f32 {
    if path.pairs.is_empty() {
        return f32::INFINITY;
    }
    let (a, b) = (cepstra(a), cepstra(b));
    let of = |&(i, j): &(usize, usize)| {
        let (a, b) =
            (&a[i * LAST_COEFFICIENT..][..LAST_COEFFICIENT], &b[j * LAST_COEFFICIENT..][..LAST_COEFFICIENT]);
        a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
    };
    let mean = path.pairs.iter().map(of).sum::<f64>() / path.pairs.len() as f64;
    (10.0 * 2f64.sqrt() / 10f64.ln() * mean) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::dtw::{DtwOptions, align};
    use proptest::prelude::*;

    const MELS: usize = 80;

    /// An envelope with a ripple of the given number of half waves and amplitude in dB.
    fn rippled(half_waves: usize, decibels: f32) -> Vec<f32> {
        let angle = |m: usize| std::f32::consts::PI * half_waves as f32 * (m as f32 + 0.5) / MELS as f32;
        (0..MELS).map(|m| decibels * 10f32.ln() / 10.0 * angle(m).cos()).collect()
    }

    fn of(values: &[f32]) -> Frames<'_> {
        Frames::new(values, MELS).unwrap()
    }

    fn distortion(a: Frames<'_>, b: Frames<'_>) -> f32 {
        distortion_along(a, b, &align(a, b, &DtwOptions::default()))
    }

    #[test]
    fn the_distortion_of_a_ripple_is_its_root_mean_square() {
        let flat = [-3.0; MELS];
        for (half_waves, decibels) in [(1, 6.0), (5, 2.0), (13, 10.0)] {
            let found = distortion(of(&flat), of(&rippled(half_waves, decibels)));
            assert!((found - decibels / 2f32.sqrt()).abs() < 1e-3, "{half_waves}: {found} dB of {decibels}");
        }
        assert!(distortion(of(&flat), of(&rippled(14, 10.0))) < 1e-3, "finer than the envelope");
        assert!(distortion(of(&flat), of(&rippled(0, 10.0))) < 1e-3, "loudness alone");
        assert_eq!(distortion(of(&flat), of(&[])), f32::INFINITY);
    }

    proptest! {
        #[test]
        fn repeated_frames_add_no_distortion(mel in prop::collection::vec(-11f32..2.0, 5 * MELS)) {
            let slow: Vec<f32> = mel.chunks(MELS).flat_map(|frame| [frame, frame].concat()).collect();
            prop_assert!(distortion(of(&mel), of(&slow)) < 1e-4);
        }
    }
}
