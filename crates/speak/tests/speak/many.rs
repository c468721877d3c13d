//! Several texts at once are each what they are alone.

use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_data::demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_speak::{Decoding, SpeakError, SpeakOptions, Synthesizer};
use myxtts_tensor::Device;

fn devices() -> Vec<Device> {
    let gpus = myxtts_tensor::device::devices().gpus.len().min(1);
    std::iter::once(Device::Cpu).chain((0..gpus).map(Device::Cuda)).collect()
}

#[test]
fn texts_at_once_are_said_as_alone() {
    let at = tempfile::tempdir().unwrap();
    tiny::write(at.path(), &[Part::Decoder, Part::Speaker]);
    let folder = ModelFolder::open(at.path()).unwrap();
    let samples = demo::speak("This is my voice.", demo::Language::English, &demo::VOICES[0]);
    let clip = Clip { samples, sample_rate: demo::SAMPLE_RATE };
    let texts =
        [("hello world", 3u64), ("...", 4), ("this is a voice", 5), ("a", 6), ("hello, hello, hello", 7)];
    for device in devices() {
        let open = |at_once| Synthesizer::open_for(&folder, device, Decoding::Fast { at_once }).unwrap();
        let (mut one, mut many) = (open(1), open(3));
        let voice = one.hear(std::slice::from_ref(&clip)).unwrap();
        let options = SpeakOptions::from(one.usual_options());
        let together = many.speak_many(&texts, "en", &voice, &options).unwrap();
        assert_eq!(together.len(), texts.len());
        for (&(text, seed), said) in texts.iter().zip(together) {
            let sampling = myxtts_model::SamplingOptions { seed, ..options.sampling.clone() };
            let alone = one.speak_with(text, "en", &voice, &SpeakOptions { sampling, ..options.clone() });
            match (alone, said) {
                (Ok(alone), Ok(said)) => assert_eq!(alone, said, "{text:?} on {device}"),
                (Err(SpeakError::NothingToSay { .. }), Err(SpeakError::NothingToSay { .. })) => {
                    assert_eq!(text, "...");
                }
                (alone, said) => panic!("{text:?} on {device}: {alone:?} and {said:?}"),
            }
        }
    }
}
