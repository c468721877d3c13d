//! Two hundred random texts: each ends with audio or with a message, and none exceeds its bound.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_model::{GenerateError, SamplingOptions};
use myxtts_run::seed::Seed;
use myxtts_speak::long_text::Pieces;
use myxtts_speak::{SpeakError, SpeakOptions, Synthesizer, Voice, Waveform};
use myxtts_tensor::Device;
use std::collections::BTreeMap;

const ENGLISH: &[&str] =
    &["hello", "world", "this", "is", "a", "voice", "Hello,", "world!", "42", "Dr.", "it's", "e.g."];
const PERSIAN: &[&str] = &["سلام", "دنیا", "این", "صدا", "است،", "می‌روم", "۱۲۳", "؟", "كتاب", "خانه‌ی", "۳٫۵"];
const OTHER: &[&str] =
    &["漢字", "Привет", "שלום", "한국어", "ñandú", "ﷺ", "𝕳𝖊𝖑𝖑𝖔", "e\u{301}\u{301}\u{301}", "ᚠᚢ"];
const SYMBOLS: &[&str] = &[
    "😀",
    "👩‍👩‍👧‍👦",
    "🇮🇷",
    "…",
    "—",
    "?\"",
    "!\"",
    "\u{202e}",
    "\u{feff}",
    "%",
    "€5",
    "<b>",
    "&amp;",
    "\\n",
    "http://x.y/z?q=1",
];
const CONTROL: &[&str] =
    &["\0", "\u{7}", "\u{1b}[31m", "\u{85}", "\t", "\r\n", "\u{200f}", "\u{fffd}", "\u{10ffff}"];

/// A random text; its number gives its kind.
fn text(number: u64, own: &[&'static str]) -> String {
    let seed = Seed::new(7).derive("texts").with(number);
    let pick = |from: &[&'static str], at: u64| from[seed.below(at, from.len() as u64) as usize];
    let some = |from: &[&'static str], count: u64| (0..count).map(|at| pick(from, at)).collect::<Vec<_>>();
    let few = 1 + seed.below(1000, 8);
    match number % 11 {
        0 => String::new(),
        1 => pick(own, 0).chars().take(1).collect(),
        2 => some(own, few).join(" "),
        3 => some(SYMBOLS, few).join(""),
        4 => some(&["?", "!", "...", "؟", "\"", "،", "-", "()", "«»", "\n"], few).concat(),
        5 => some(CONTROL, few).concat() + pick(own, 2000) + &some(CONTROL, few).concat(),
        6 => some(own, few).join(pick(OTHER, 2000)),
        7 => some(&[ENGLISH, PERSIAN, OTHER, SYMBOLS].concat(), 2 * few).join(" "),
        8 => format!(
            "{}{}",
            pick(own, 0),
            pick(&["?\"", "!\"", "?", "\u{201d}", "...", "\u{061f}\u{00bb}"], 1)
        ),
        9 => " \t\n".repeat(few as usize),
        // Any code points.
        _ => (0..10 * few).filter_map(|at| char::from_u32(seed.below(at, 0x11_0000) as u32)).collect(),
    }
}

struct Rig {
    synthesizer: Synthesizer,
    voice: Voice,
    options: SpeakOptions,
    /// Number of texts by outcome.
    outcomes: BTreeMap<&'static str, usize>,
}

impl Rig {
    fn new() -> Rig {
        let at = tempfile::tempdir().unwrap();
        tiny::write_ending(&at.path().join("model"), &[Part::Decoder, Part::Speaker], 1.0);
        let folder = ModelFolder::open(&at.path().join("model")).unwrap();
        let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
        let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
        let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
        let sampling = SamplingOptions { repetition_penalty: 1.0, ..SamplingOptions::default() };
        Rig { synthesizer, voice, options: sampling.into(), outcomes: BTreeMap::new() }
    }

    /// Speaks a text and checks the result.
    fn speak(&mut self, text: &str, language: &str, number: u64) -> bool {
        let sampling = SamplingOptions { seed: number, ..self.options.sampling.clone() };
        let options = SpeakOptions { sampling, retries: (number % 3) as usize, ..self.options.clone() };
        let outcome = match number % 2 {
            0 => self.synthesizer.speak_with(text, language, &self.voice, &options),
            _ => {
                let mut samples = 0;
                let spoken =
                    self.synthesizer.speak_streamed(text, language, &self.voice, &options, &mut |piece| {
                        samples += piece.len();
                        true
                    });
                spoken.inspect(|spoken| assert_eq!(samples, spoken.samples.len(), "{text:?}"))
            }
        };
        let kind = match &outcome {
            Ok(spoken) => {
                assert_audio(text, spoken, 1 + options.retries);
                "sound"
            }
            Err(error) => {
                let message = error.to_string();
                assert!((20..600).contains(&message.chars().count()), "{text:?}: {message}");
                assert!(!message.contains(['\0', '\u{1b}', '\n', '\u{202e}']), "{message:?}");
                match error {
                    SpeakError::NothingToSay { .. } => "nothing to say",
                    SpeakError::UnknownLetters { .. } => "unknown letters",
                    SpeakError::Generate(GenerateError::TextTooLong { .. }) => "too long",
                    error => panic!("{text:?} in {language}: {error:?}"),
                }
            }
        };
        *self.outcomes.entry(kind).or_default() += 1;
        outcome.is_ok()
    }
}

fn assert_audio(text: &str, spoken: &Waveform, tries: usize) {
    assert!(spoken.codes <= tiny::CODES_PER_TEXT, "{text:?}: {} codes", spoken.codes);
    assert!((1..=tries).contains(&spoken.attempts.len()), "{text:?}: {:?}", spoken.attempts);
    // With STOP there is one latent more than codes.
    assert!(spoken.samples.len() <= tiny::decoder_sizes().samples_of(spoken.codes + 1), "{text:?}");
    assert!(spoken.samples.iter().all(|sample| sample.is_finite() && sample.abs() <= 1.0), "{text:?}");
    assert!(!spoken.samples.is_empty(), "{text:?}");
}

#[test]
fn two_hundred_random_texts_end_with_audio_or_a_message() {
    let mut rig = Rig::new();
    for number in 0..198 {
        let (language, own) = if number % 2 == 0 { ("en", ENGLISH) } else { ("fa", PERSIAN) };
        rig.speak(&text(number / 2, own), language, number);
    }
    // 5,000 characters: too long for one utterance, but every piece can be spoken.
    for (number, language, own) in [(198, "en", ENGLISH), (199, "fa", PERSIAN)] {
        let seed = Seed::new(3).with(number);
        let words = (0..1500).map(|at| own[seed.below(at, own.len() as u64) as usize]);
        let long: String = words.collect::<Vec<_>>().join(" ").chars().take(5000).collect();
        assert!(!rig.speak(&long, language, number), "it is too long");
        let measure = rig.synthesizer.token_budget(language);
        let count = |text: &str| measure.count(text);
        let pieces: Vec<_> =
            Pieces::new(long.as_bytes(), measure.limit(), &count).collect::<Result<_, _>>().unwrap();
        assert!(pieces.len() > 10, "{}", pieces.len());
        assert!(pieces.iter().all(|piece| count(&piece.text) <= measure.limit()));
        for piece in pieces.iter().filter(|piece| piece.is_spoken()).step_by(10) {
            assert!(rig.speak(&piece.text, language, number), "{:?}", piece.text);
        }
    }
    assert!(rig.outcomes["too long"] >= 2, "{:?}", rig.outcomes);
    for kind in ["sound", "nothing to say", "unknown letters"] {
        assert!(rig.outcomes.get(kind).is_some_and(|count| *count >= 10), "{kind}: {:?}", rig.outcomes);
    }
}
