//! Flaws of an utterance that can be detected without a recording or a recogniser: silence instead of speech, and loops.

use super::cepstrum::cepstra;
use super::dtw::Frames;
use serde::{Deserialize, Serialize};

/// Audio with a peak below this is silent.
const SILENT_PEAK: f32 = 1e-3;

/// Frames this many decibels below the loudest are a pause.
const PAUSE_DB: f32 = 40.0;

/// Length of a pause, in seconds, that no reader makes within a sentence.
const LONG_PAUSE: f32 = 1.5;

/// Length of one repetition of a loop, in frames of 11.6 ms: a tenth of a second to three seconds.
const PERIOD_FRAMES: std::ops::RangeInclusive<usize> = 9..=258;

/// Minimum seconds, and number of repetitions, over which the audio must be similar to itself one period earlier: a loop
/// occurs three times, for two seconds in all. A digit read two or three times is not a loop.
const MIN_LOOP_SECONDS: f32 = 1.4;
const MIN_REPETITIONS: usize = 2;

/// Maximum mean difference there, in dB of cepstral distortion. The same word said twice by the same speaker differs by 4 to
/// 6.
const MAX_LOOP_DISTORTION: f32 = 2.0;

/// Flaws of one utterance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flaws {
    /// Whether nothing is audible.
    pub silent: bool,
    /// Share of frames that are 40 dB or more below the loudest.
    pub quiet: f32,
    /// Longest pause in seconds, including the ends.
    pub longest_pause: f32,
    /// Whether there is a pause longer than 1.5 s.
    pub long_pause: bool,
    /// Seconds over which the audio repeats itself; `None` if it does not for at least 1.4 s and two repetitions.
    pub looping: Option<f32>,
}

/// Finds the flaws of an utterance, from its samples and its log-mels, which are `hop` seconds apart.
pub fn flaws(samples: &[f32], mel: Frames<'_>, hop: f32) -> Flaws {
    let loudest = samples.iter().fold(0f32, |most, sample| most.max(sample.abs()));
    if loudest < SILENT_PEAK || mel.is_empty() {
        return Flaws { silent: true, quiet: 1.0, longest_pause: 0.0, long_pause: false, looping: None };
    }
    // Natural logarithm of a frame's power, summed over its channels.
    let power =
        |frame: &[f32]| frame.iter().map(|value| f64::from(*value).exp()).sum::<f64>().max(1e-30).ln();
    let powers: Vec<f64> = mel.rows().map(power).collect();
    let top = powers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = top - f64::from(PAUSE_DB) * std::f64::consts::LN_10 / 10.0;
    let quiet: Vec<bool> = powers.iter().map(|&power| power < least).collect();
    let longest_pause = longest(quiet.iter().copied()) as f32 * hop;
    let looping = looping(mel, &quiet, hop);
    Flaws {
        silent: false,
        quiet: quiet.iter().filter(|quiet| **quiet).count() as f32 / quiet.len() as f32,
        longest_pause,
        long_pause: longest_pause > LONG_PAUSE,
        looping,
    }
}

/// Length of the longest run of `true`.
fn longest(flags: impl Iterator<Item = bool>) -> usize {
    let (mut most, mut run) = (0, 0);
    for flag in flags {
        run = if flag { run + 1 } else { 0 };
        most = most.max(run);
    }
    most
}

/// The longest stretch, in seconds, over which the audio equals itself one period earlier, for any period. Pauses are
/// similar to each other and do not count.
fn looping(mel: Frames<'_>, quiet: &[bool], hop: f32) -> Option<f32> {
    let all = cepstra(mel);
    let width = all.len() / mel.len();
    let frame = |at: usize| &all[at * width..][..width];
    let decibels = |a: &[f32], b: &[f32]| {
        let squares: f32 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        10.0 * 2f32.sqrt() / std::f32::consts::LN_10 * squares.sqrt()
    };
    let wanted = (MIN_LOOP_SECONDS / hop).ceil() as usize;
    let mut most = 0;
    for round in PERIOD_FRAMES.take_while(|round| round + wanted <= mel.len()) {
        // At least two periods long: the content has then occurred three times in full.
        let window = wanted.max(MIN_REPETITIONS * round);
        if round + window > mel.len() {
            break;
        }
        let apart: Vec<f32> = (round..mel.len())
            .map(|at| match quiet[at] || quiet[at - round] {
                true => f32::INFINITY,
                false => decibels(frame(at), frame(at - round)),
            })
            .collect();
        let mut run = 0;
        let (mut sum, mut loud) = (0f64, 0usize);
        for at in 0..apart.len() {
            // Pauses inside a period are skipped; most of a stretch must be audible.
            if apart[at].is_finite() {
                sum += f64::from(apart[at]);
                loud += 1;
            }
            if at >= window && apart[at - window].is_finite() {
                sum -= f64::from(apart[at - window]);
                loud -= 1;
            }
            let full = at + 1 >= window;
            let alike = full && loud * 2 >= window && sum / loud as f64 <= f64::from(MAX_LOOP_DISTORTION);
            run = match (alike, run) {
                (true, 0) => window,
                (true, run) => run + 1,
                (false, _) => 0,
            };
            most = most.max(run);
        }
    }
    (most > 0).then_some(most as f32 * hop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use myxtts_data::mel::{FrontEnd, MelExtractor};
    use myxtts_demo::{self as demo, Language, VOICES};

    const HOP: f32 = 256.0 / 22_050.0;

    fn of(samples: &[f32]) -> Flaws {
        let mut mel = Vec::new();
        MelExtractor::new(FrontEnd::Dvae).compute(samples, &mut mel);
        flaws(samples, Frames::new(&mel, 80).unwrap(), HOP)
    }

    fn said(text: &str, voice: usize) -> Vec<f32> {
        demo::speak(text, Language::English, &VOICES[voice])
    }

    #[test]
    fn speech_has_no_flaws() {
        for (voice, text) in [
            (0, "The quick brown fox jumps over the lazy dog."),
            (1, "Nine cats and a hundred mice had tea, and then they went home."),
            (2, "What an excited whispering and conferring took place."),
        ] {
            let found = of(&said(text, voice));
            assert!(!found.silent && !found.long_pause && found.looping.is_none(), "{text}: {found:?}");
        }
    }

    #[test]
    fn silence_pauses_and_loops_are_found() {
        assert!(of(&[0.0; 20_000]).silent && of(&[]).silent);
        let speech = said("The quick brown fox jumps over the lazy dog.", 0);
        let gap = vec![0.0; 2 * 22_050];
        let found = of(&[&speech[..], &gap, &speech].concat());
        assert!(found.long_pause && (1.9..2.6).contains(&found.longest_pause), "{found:?}");
        for seconds in [0.15f32, 0.3, 0.6] {
            let part = &speech[11_025..][..(seconds * 22_050.0) as usize];
            let looped: Vec<f32> =
                speech[..11_025].iter().chain(part.iter().cycle().take(60_000)).copied().collect();
            let found = of(&looped);
            assert!(found.looping.is_some_and(|seconds| seconds > 1.4), "{seconds}: {found:?}");
        }
        // Three times is a loop if it is longer than a word.
        let phrase = &speech[..22_050];
        assert!(of(&[phrase, phrase, phrase].concat()).looping.is_some());
        assert!(of(&[phrase, phrase].concat()).looping.is_none(), "said twice");
    }

    #[test]
    fn repeated_digits_were_taken_for_a_loop() {
        for text in ["two two", "nine nine nine", "seven seven seven", "Call five five five, four four."] {
            for voice in 0..3 {
                let found = of(&said(text, voice));
                assert!(found.looping.is_none(), "{text}: {found:?}");
            }
        }
        // Exactly the same audio of a digit, as from a model with few codes.
        let digit = said("seven", 0);
        let loud: Vec<f32> = digit.iter().copied().filter(|sample| sample.abs() > 0.0).collect();
        assert!(loud.len() < 22_050, "{}", loud.len());
        assert!(of(&loud.repeat(2)).looping.is_none());
    }
}
