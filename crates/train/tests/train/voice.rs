use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_data::demo;
use myxtts_data::mel::MelInverter;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_model::{Ended, SamplingOptions};
use myxtts_tensor::Device;
use myxtts_train::voice::{Quality, Voice, VoiceError};

fn folder(parts: &[Part]) -> (tempfile::TempDir, ModelFolder) {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), parts);
    let folder = ModelFolder::open(&at.path().join("model")).unwrap();
    (at, folder)
}

fn speech(voice: usize) -> Clip {
    let text = "This is what I sound like, most of the time.";
    let samples = demo::speak(text, demo::Language::English, &demo::VOICES[voice]);
    Clip { samples, sample_rate: demo::SAMPLE_RATE }
}

/// Speaks, speaks again, and in another voice.
fn speaks(parts: &[Part], quality: Quality, samples: usize) {
    let (_at, folder) = folder(parts);
    let mut voice = Voice::open(&folder, Device::Cpu).unwrap();
    assert_eq!(voice.quality(), quality);
    assert_eq!(voice.languages(), ["en", "fa"]);
    let reference = voice.hear(&[speech(0)]).unwrap();
    assert_eq!(reference.speaker.is_some(), quality == Quality::Decoded);
    let options = SamplingOptions { seed: 3, ..SamplingOptions::default() };
    let said = voice.speak("Hello, world!", "en", &reference, &options).unwrap();
    assert_eq!((said.ended, said.codes, said.rate), (Ended::Limit, tiny::SAID, quality.rate()));
    assert_eq!((said.samples.len(), said.cleaned.as_str()), (samples, "hello, world!"));
    assert!(said.unknown.is_empty(), "{:?}", said.unknown);
    assert!(said.samples.iter().all(|sample| sample.is_finite()));
    assert!(said.samples.iter().any(|sample| sample.abs() > 1e-4), "silence");
    assert_eq!(voice.speak("Hello, world!", "en", &reference, &options).unwrap(), said);
    assert_eq!(Voice::open(&folder, Device::Cpu).unwrap().hear(&[speech(0)]).unwrap(), reference);
    let both = voice.hear(&[speech(0), speech(1)]).unwrap();
    let other = voice.speak("Hello, world!", "en", &both, &options).unwrap();
    assert_ne!(other.samples, said.samples, "another voice sounds the same");
    assert!(voice.speak("سلام", "fa", &reference, &options).is_ok());

    let mut error =
        |text: &str, language: &str| voice.speak(text, language, &reference, &options).unwrap_err();
    assert!(matches!(error(" ... ", "en"), VoiceError::NothingToSay { .. }));
    assert!(matches!(error("hallo", "de"), VoiceError::Tokenizer(_)));
    let long = error(&"hello world ".repeat(90), "en");
    assert!(matches!(long, VoiceError::Generate(_)), "{long}");
}

#[test]
fn a_gpt_with_a_dvae_has_early_sound() {
    speaks(&[Part::Dvae], Quality::Early, MelInverter::samples(4 * tiny::SAID));
}

#[test]
fn a_gpt_with_decoder_and_speaker_encoder_has_its_own() {
    let samples = tiny::decoder_sizes().samples_of(tiny::SAID);
    // The DVAE is not asked where there is a decoder.
    speaks(&[Part::Decoder, Part::Speaker, Part::Dvae], Quality::Decoded, samples);
}

#[test]
fn what_cannot_speak_or_be_heard_says_why() {
    for parts in [&[][..], &[Part::Decoder], &[Part::Speaker]] {
        let (_at, folder) = folder(parts);
        let error = Voice::open(&folder, Device::Cpu).err().unwrap().to_string();
        assert!(error.contains("cannot speak") && error.contains("decoder.safetensors"), "{error}");
    }
    let (_at, folder) = folder(&[Part::Dvae]);
    let mut voice = Voice::open(&folder, Device::Cpu).unwrap();
    let clip = |samples: Vec<f32>| Clip { samples, sample_rate: 16_000 };
    let error = voice.hear(&[speech(0), clip(vec![0.0; 16_000])]).unwrap_err();
    assert!(matches!(error, VoiceError::Silent { number: 2, count: 2 }), "{error}");
    let error = voice.hear(&[clip(vec![0.1; 4_000])]).unwrap_err();
    assert!(error.to_string().contains("0.25 seconds"), "{error}");
    assert!(matches!(voice.hear(&[]), Err(VoiceError::TooShort { .. })));
}
