//! Batches of texts and candidates.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::{Decoding, SpeakError, SpeakOptions, Synthesizer};
use myxtts_tensor::Device;

fn devices() -> Vec<Device> {
    let gpus = myxtts_tensor::device::devices().gpus.len().min(1);
    std::iter::once(Device::Cpu).chain((0..gpus).map(Device::Cuda)).collect()
}

#[test]
fn texts_in_a_batch_have_the_audio_they_have_alone() {
    let at = tempfile::tempdir().unwrap();
    tiny::write(at.path(), &[Part::Decoder, Part::Speaker]);
    let folder = ModelFolder::open(at.path()).unwrap();
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let clip = Clip { samples, sample_rate: demo::SAMPLE_RATE };
    let texts =
        [("hello world", 3u64), ("...", 4), ("this is a voice", 5), ("a", 6), ("hello, hello, hello", 7)];
    for device in devices() {
        let open = |slots| Synthesizer::open_for(&folder, device, Decoding::Fast { slots }).unwrap();
        let (mut one, mut many) = (open(1), open(3));
        let voice = one.encode_voice(std::slice::from_ref(&clip)).unwrap();
        let options = SpeakOptions::from(one.default_sampling());
        let together = many.speak_many(&texts, "en", &voice, &options).unwrap();
        assert_eq!(together.len(), texts.len());
        for (&(text, seed), spoken) in texts.iter().zip(together) {
            let sampling = myxtts_model::SamplingOptions { seed, ..options.sampling.clone() };
            let alone = one.speak_with(text, "en", &voice, &SpeakOptions { sampling, ..options.clone() });
            match (alone, spoken) {
                (Ok(alone), Ok(spoken)) => assert_eq!(alone, spoken, "{text:?} on {device}"),
                (Err(SpeakError::NothingToSay { .. }), Err(SpeakError::NothingToSay { .. })) => {
                    assert_eq!(text, "...");
                }
                (alone, spoken) => panic!("{text:?} on {device}: {alone:?} and {spoken:?}"),
            }
        }
    }
}

#[test]
fn the_candidate_with_the_least_mismatch_is_kept() {
    let at = tempfile::tempdir().unwrap();
    tiny::write_ending(at.path(), &[Part::Dvae], 0.0);
    let folder = ModelFolder::open(at.path()).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    assert!(synthesizer.can_proofread());
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
    let once = SpeakOptions { retries: 0, ..SpeakOptions::from(synthesizer.default_sampling()) };
    let mut chosen_later = 0;
    for first in [10u64, 20, 30, 40] {
        let mut alone = Vec::new();
        for seed in first..first + 5 {
            let sampling = myxtts_model::SamplingOptions { seed, ..once.sampling.clone() };
            let one = SpeakOptions { sampling, ..once.clone() };
            alone.push(synthesizer.speak_with("a voice", "en", &voice, &one).unwrap());
        }
        let sampling = myxtts_model::SamplingOptions { seed: first, ..once.sampling.clone() };
        let five = SpeakOptions { candidates: 5, sampling, ..once.clone() };
        let best = synthesizer.speak_with("a voice", "en", &voice, &five).unwrap();
        let tries: Vec<_> = alone.iter().map(|spoken| spoken.attempts[0].clone()).collect();
        let seeds: Vec<u64> = best.attempts.iter().map(|attempt| attempt.seed).collect();
        assert_eq!(seeds, (first..first + 5).collect::<Vec<_>>());
        let mismatch = |spoken: &myxtts_speak::Waveform| spoken.attempts[0].mismatch.unwrap();
        let sound = alone.iter().filter(|spoken| spoken.flaw.is_none());
        let least = sound.min_by(|a, b| mismatch(a).total_cmp(&mismatch(b)));
        // If all are flawed, the severity of the flaw counts first.
        let Some(least) = least else { continue };
        assert_eq!(best.samples, least.samples, "seeds from {first}: {tries:?}");
        chosen_later += usize::from(least.attempts[0].seed != first);
    }
    assert!(chosen_later > 0, "the first candidate was always the best, so nothing was tested");
}

#[test]
fn length_penalty_prefers_longer_or_shorter_candidates_and_zero_changes_nothing() {
    let at = tempfile::tempdir().unwrap();
    tiny::write_ending(at.path(), &[Part::Dvae], 0.0);
    let folder = ModelFolder::open(at.path()).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
    let usual = SpeakOptions { retries: 0, ..SpeakOptions::from(synthesizer.default_sampling()) };
    assert_eq!(usual.length_penalty, 0.0);
    let mut moved = 0;
    for seed in [10u64, 20, 30, 40] {
        let sampling = myxtts_model::SamplingOptions { seed, ..usual.sampling.clone() };
        let mut speak = |candidates, length_penalty| {
            let sampling = sampling.clone();
            let options = SpeakOptions { candidates, length_penalty, sampling, ..usual.clone() };
            synthesizer.speak_with("a voice", "en", &voice, &options).unwrap()
        };
        let [shortest, default, longest] = [-60.0, 0.0, 60.0].map(|penalty| speak(6, penalty));
        assert_eq!(shortest.attempts, default.attempts, "the same candidates, ranked otherwise");
        let rated = default.attempts.iter().filter(|one| one.flaw.is_none() && one.mismatch > Some(0.0));
        let lengths: Vec<usize> = rated.map(|one| one.codes).collect();
        // Length does not decide if a candidate is flawed or fits perfectly.
        if lengths.len() == default.attempts.len() {
            assert_eq!(shortest.codes, *lengths.iter().min().unwrap(), "{lengths:?}");
            assert_eq!(longest.codes, *lengths.iter().max().unwrap(), "{lengths:?}");
        }
        moved += usize::from(shortest.codes < default.codes || longest.codes > default.codes);
        // One candidate has nothing to be ranked against.
        assert_eq!(speak(1, 60.0), speak(1, 0.0));
    }
    assert!(moved > 0, "the penalty never changed the choice");
}

#[test]
fn a_model_without_a_proofreader_has_one_candidate() {
    let at = tempfile::tempdir().unwrap();
    tiny::write_ending(at.path(), &[Part::Decoder, Part::Speaker], 0.0);
    let folder = ModelFolder::open(at.path()).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    assert!(!synthesizer.can_proofread());
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let voice = synthesizer.encode_voice(&[Clip { samples, sample_rate: demo::SAMPLE_RATE }]).unwrap();
    let options = SpeakOptions { candidates: 4, retries: 0, ..synthesizer.default_sampling().into() };
    let spoken = synthesizer.speak_with("a voice", "en", &voice, &options).unwrap();
    assert_eq!((spoken.attempts.len(), spoken.attempts[0].mismatch), (1, None));
}
