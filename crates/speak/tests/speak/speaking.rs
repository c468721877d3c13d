//! Retries, streaming, and what ends them.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_model::{SamplingOptions, StopReason};
use myxtts_speak::{AudibleStart, Flaw, SpeakError, SpeakOptions, Synthesizer, Voice};
use myxtts_tensor::Device;

const DECODED: [Part; 2] = [Part::Decoder, Part::Speaker];

/// A model that stops at random; the lower `stop`, the later.
fn opened(parts: &[Part], stop: f32) -> (Synthesizer, Voice) {
    let at = tempfile::tempdir().unwrap();
    tiny::write_ending(&at.path().join("model"), parts, stop);
    let folder = ModelFolder::open(&at.path().join("model")).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
    (synthesizer, voice)
}

fn options(seed: u64) -> SpeakOptions {
    // Few codes of similar probability.
    SamplingOptions { seed, repetition_penalty: 1.0, temperature: 1.0, ..SamplingOptions::default() }.into()
}

fn streamed(
    synthesizer: &mut Synthesizer,
    text: &str,
    voice: &Voice,
    options: &SpeakOptions,
) -> (myxtts_speak::Waveform, Vec<usize>) {
    let (mut joined, mut pieces) = (Vec::new(), Vec::new());
    let spoken = synthesizer.speak_streamed(text, "en", voice, options, &mut |piece| {
        joined.extend_from_slice(piece);
        pieces.push(piece.len());
        true
    });
    let spoken = spoken.unwrap();
    assert_eq!(joined, spoken.samples, "the delivered samples are those of the result");
    (spoken, pieces)
}

fn apart(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    one.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn streamed_speech_equals_whole_speech() {
    let (mut synthesizer, voice) = opened(&DECODED, -1.0);
    synthesizer.prepare_streaming().unwrap();
    let mut early = 0;
    for seed in 0..8 {
        let once = SpeakOptions { retries: 0, ..options(seed) };
        let whole = synthesizer.speak_with("hello world", "en", &voice, &once).unwrap();
        let (spoken, pieces) = streamed(&mut synthesizer, "hello world", &voice, &once);
        assert!(apart(&spoken.samples, &whole.samples) < 1e-3);
        assert_eq!((spoken.codes, spoken.ended, spoken.flaw), (whole.codes, whole.ended, whole.flaw));
        early += usize::from(pieces.len() > 1);
        let plain = synthesizer.speak("hello world", "en", &voice, &once.sampling).unwrap();
        assert_eq!(plain.samples, whole.samples);
    }
    assert!(early > 2, "some are long enough for several pieces");
    // A model without a decoder delivers everything at the end.
    let (mut synthesizer, voice) = opened(&[Part::Dvae], -1.0);
    let once = SpeakOptions { retries: 0, ..options(0) };
    let whole = synthesizer.speak_with("hello world", "en", &voice, &once).unwrap();
    let (spoken, pieces) = streamed(&mut synthesizer, "hello world", &voice, &once);
    assert_eq!((spoken, pieces.len()), (whole, 1));
}

#[test]
fn early_stops_are_retried_with_the_next_seed_and_every_attempt_is_reported() {
    let (mut synthesizer, voice) = opened(&DECODED, 0.5);
    let text = "hello world, this is a voice";
    let (mut again, mut saved) = (0, 0);
    for seed in 0..20 {
        let options = options(100 * seed);
        let spoken = synthesizer.speak_with(text, "en", &voice, &options).unwrap();
        let tries = &spoken.attempts;
        assert!((1..=3).contains(&tries.len()), "{tries:?}");
        assert!(tries.iter().enumerate().all(|(i, one)| one.seed == 100 * seed + i as u64), "{tries:?}");
        // All but the last are flawed; the last is not, or there were no more retries.
        let (last, before) = tries.split_last().unwrap();
        assert!(before.iter().all(|one| one.flaw.is_some()), "{tries:?}");
        assert!(last.flaw.is_none() || tries.len() == 3, "{tries:?}");
        again += before.len();
        saved += usize::from(last.flaw.is_none() && !before.is_empty());
        // The result is one of the attempts, and its seed repeats it.
        let chosen = tries.iter().find(|one| one.flaw == spoken.flaw && one.codes == spoken.codes).unwrap();
        let sampling = SamplingOptions { seed: chosen.seed, ..options.sampling.clone() };
        let same = synthesizer.speak(text, "en", &voice, &sampling).unwrap();
        assert_eq!((same.samples, same.codes), (spoken.samples, spoken.codes));
        // No retries without a budget, or for greedy decoding.
        let once = SpeakOptions { retries: 0, ..options.clone() };
        assert_eq!(synthesizer.speak_with(text, "en", &voice, &once).unwrap().attempts, tries[..1]);
        let greedy = SamplingOptions { greedy: true, ..options.sampling.clone() };
        assert_eq!(synthesizer.speak_with(text, "en", &voice, &greedy.into()).unwrap().attempts.len(), 1);
        let (streamed, _) = streamed(&mut synthesizer, text, &voice, &options);
        assert!(streamed.attempts.len() <= tries.len(), "there are no retries once samples were delivered");
        assert!(streamed.attempts.iter().zip(tries).all(|(a, b)| a.seed == b.seed && a.codes == b.codes));
    }
    assert!(again > 5 && saved > 2, "{again} attempts were flawed, {saved} texts had a good retry");
}

#[test]
fn very_short_inputs_and_quotes_that_end_in_a_question_are_bounded_and_retried() {
    // A model that never stops by itself, as happens after `?"`.
    let (mut synthesizer, voice) = opened(&DECODED, -50.0);
    for text in ["a", "hi", "no.", "\"hello?\"", "is this a world?\"", "hello!\"", "?\" hello", "hello?!?!\""]
    {
        let spoken = synthesizer.speak_with(text, "en", &voice, &options(1)).unwrap();
        assert_eq!(spoken.flaw, Some(Flaw::NoEnd), "{text}");
        assert_eq!(spoken.attempts.len(), 3, "{text}");
        assert!(spoken.codes <= tiny::CODES_PER_TEXT && !spoken.samples.is_empty(), "{text}");
        assert!(spoken.seconds() < 6.0, "{text}: {}", spoken.seconds());
    }
    // The model has positions for far more codes than one letter needs.
    assert!(matches!(
        speak_text("a", &mut synthesizer, &voice).ended,
        StopReason::TooManyForText | StopReason::Limit
    ));
    let error = synthesizer.speak_with("?\"", "en", &voice, &options(1)).unwrap_err();
    assert!(matches!(error, SpeakError::NothingToSay { .. }), "{error}");
}

fn speak_text(text: &str, synthesizer: &mut Synthesizer, voice: &Voice) -> myxtts_speak::Waveform {
    synthesizer.speak_with(text, "en", voice, &options(1)).unwrap()
}

#[test]
fn a_sink_that_returns_false_stops_generation() {
    let (mut synthesizer, voice) = opened(&DECODED, -50.0);
    let mut pieces = 0;
    let spoken = synthesizer
        .speak_streamed("hello world, this is a voice", "en", &voice, &options(1), &mut |_| {
            pieces += 1;
            false
        })
        .unwrap();
    assert_eq!((pieces, spoken.ended, spoken.attempts.len()), (1, StopReason::Observer, 1));
    assert!(spoken.codes < 8, "{} codes were made", spoken.codes);
    let all = speak_text("hello world, this is a voice", &mut synthesizer, &voice);
    assert!(all.codes > 30);
}

#[test]
fn leading_silence_is_removed_on_request() {
    let (mut synthesizer, voice) = opened(&DECODED, -50.0);
    let whole = SpeakOptions { retries: 0, ..options(1) };
    let audible = SpeakOptions { audible_start: Some(AudibleStart::default()), ..whole.clone() };
    let plain = synthesizer.speak_with("hello", "en", &voice, &whole).unwrap();
    let cut = synthesizer.speak_with("hello", "en", &voice, &audible).unwrap();
    let (also, _) = streamed(&mut synthesizer, "hello", &voice, &audible);
    assert_eq!(cut.samples.len() + cut.trimmed, plain.samples.len());
    assert_eq!((also.samples.len(), also.trimmed), (cut.samples.len(), cut.trimmed));
    assert!(apart(&also.samples, &cut.samples) < 1e-3);
    assert_eq!(cut.samples[0], 0.0, "it fades in");
    assert_eq!(plain.trimmed, 0);
}
