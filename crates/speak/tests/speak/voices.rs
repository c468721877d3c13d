//! Stored voices, mixes and unusable references.

use crate::tiny;
use myxtts_data::audio::wav;
use myxtts_demo as demo;
use myxtts_model::weights::{ModelFolder, Part};
use myxtts_run::durable::OsDisk;
use myxtts_speak::reference::{Concern, Reference, ReferenceReport};
use myxtts_speak::voices::{StoredVoice, VoiceError, Voices, resolve_voice};
use myxtts_speak::{SpeakError, Synthesizer, Voice};
use myxtts_tensor::Device;
use std::path::{Path, PathBuf};

struct Rig {
    at: tempfile::TempDir,
    folder: ModelFolder,
    synthesizer: Synthesizer,
}

fn rig() -> Rig {
    let at = tempfile::tempdir().unwrap();
    tiny::write(&at.path().join("model"), &[Part::Decoder, Part::Speaker]);
    let folder = ModelFolder::open(&at.path().join("model")).unwrap();
    let synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    Rig { at, folder, synthesizer }
}

impl Rig {
    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    fn write(&self, name: &str, samples: &[f32], rate: u32) -> PathBuf {
        std::fs::write(self.path(name), wav::encode_pcm16(samples, rate)).unwrap();
        self.path(name)
    }

    fn speech(&self, name: &str, voice: usize) -> PathBuf {
        let text = "This is what I sound like, most of the time. And now a little more of it, to be sure.";
        self.write(name, &demo::speak(text, demo::Language::English, &demo::VOICES[voice]), demo::SAMPLE_RATE)
    }

    fn encode(&mut self, paths: &[PathBuf]) -> Voice {
        resolve_voice(&mut self.synthesizer, &self.folder, paths).unwrap().voice
    }

    fn store(&mut self, name: &str, paths: &[PathBuf]) -> StoredVoice {
        let references: Vec<Reference> = paths.iter().map(|path| Reference::read(path).unwrap()).collect();
        let voice = self.synthesizer.encode_references(&references).unwrap();
        let report =
            ReferenceReport::new(&references, &self.synthesizer.speaker_segments(&references).unwrap());
        let voices = Voices::from_folder(&self.folder);
        let stored = StoredVoice {
            name: name.to_owned(),
            voice,
            latents: self.synthesizer.latents(),
            references: references.iter().map(Reference::file).collect(),
            seconds: report.seconds,
            model: voices.fingerprint().to_owned(),
            report: Some(report),
        };
        voices.add(&OsDisk, &stored, false).unwrap();
        stored
    }

    fn resolve(&mut self, name: &str) -> Result<Voice, SpeakError> {
        resolve_voice(&mut self.synthesizer, &self.folder, &[name.into()]).map(|chosen| chosen.voice)
    }
}

#[test]
fn stored_voices_equal_encoded_ones_and_mixes_are_weighted_means() {
    let mut rig = rig();
    let (a, b) = (rig.speech("a.wav", 0), rig.speech("b.wav", 1));
    let (encoded, other) = (rig.encode(std::slice::from_ref(&a)), rig.encode(std::slice::from_ref(&b)));
    let stored = rig.store("anna", std::slice::from_ref(&a));
    rig.store("ben", std::slice::from_ref(&b));
    assert_eq!(stored.voice, encoded);
    assert!(stored.report.as_ref().unwrap().least_similarity.is_some(), "it has several segments");
    assert_eq!(rig.resolve("anna").unwrap(), encoded);
    assert_eq!(Voices::from_folder(&rig.folder).names().unwrap(), ["anna", "ben"]);
    assert_eq!(Voices::from_folder(&rig.folder).own("anna").unwrap().unwrap(), stored);
    // Mixes of stored voices equal mixes of encoded ones.
    let mixed = rig.resolve("anna(2)+ben(1)").unwrap();
    assert_eq!(mixed, Voice::mix(&[(encoded.clone(), 2.0), (other.clone(), 1.0)]).unwrap());
    assert_ne!(mixed, rig.resolve("anna(1) + ben(2)").unwrap());
    // A term may be a recording.
    let term = format!("anna(2)+{}(1)", b.display());
    assert_eq!(rig.resolve(&term).unwrap(), mixed);
    let options = myxtts_model::SamplingOptions::default();
    rig.synthesizer.speak("Hello.", "en", &mixed, &options).unwrap();
    // Several recordings make one voice.
    let both = rig.encode(&[a, b]);
    assert!(both != encoded && both != other);

    assert!(matches!(
        Voices::from_folder(&rig.folder).add(&OsDisk, &stored, false),
        Err(VoiceError::Exists { name }) if name == "anna"
    ));
    Voices::from_folder(&rig.folder).add(&OsDisk, &stored, true).unwrap();
    Voices::from_folder(&rig.folder).remove(&OsDisk, "ben").unwrap();
    assert!(matches!(
        Voices::from_folder(&rig.folder).remove(&OsDisk, "ben"),
        Err(VoiceError::Unknown { .. })
    ));
    let error = rig.resolve("ben").unwrap_err();
    assert!(matches!(error, SpeakError::Voice(VoiceError::NeitherVoiceNorFile { .. })), "{error}");
    assert!(error.to_string().contains("anna"), "{error}");
    let error = rig.resolve("ana").unwrap_err();
    assert!(error.to_string().ends_with("; did you mean anna?"), "{error}");
    let error = rig.resolve("none.wav").unwrap_err();
    assert_eq!(error.to_string(), "there is no recording none.wav");
    let error = rig.resolve("anna(2)+nobody").unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
}

#[test]
fn voices_of_other_models_are_refused_by_name() {
    let mut rig = rig();
    let a = rig.speech("a.wav", 0);
    rig.store("anna", &[a]);
    // The voices now belong to another model, as after further training.
    let other = rig.path("other");
    tiny::write_sized(&other, &[Part::Dvae], 2 * tiny::WIDTH, 16);
    std::fs::rename(rig.path("model").join("voices"), other.join("voices")).unwrap();
    let folder = ModelFolder::open(&other).unwrap();
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let error = resolve_voice(&mut synthesizer, &folder, &["anna".into()]).unwrap_err();
    assert!(matches!(error, SpeakError::Voice(VoiceError::OtherModel { .. })), "{error}");
    assert!(error.to_string().contains("anna") && error.to_string().contains("a.wav"), "{error}");
    // A file that is not a voice.
    std::fs::write(other.join("voices/bad.safetensors"), "no voice").unwrap();
    let error = resolve_voice(&mut synthesizer, &folder, &["bad".into()]).unwrap_err();
    assert!(matches!(error, SpeakError::Voice(VoiceError::Damaged { .. })), "{error}");
}

/// A WAV file with several channels of 16 bits.
fn many_channels(channels: u16, rate: u32, mono: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = mono
        .iter()
        .flat_map(|sample| std::iter::repeat_n((sample * 32767.0) as i16, channels.into()))
        .flat_map(i16::to_le_bytes)
        .collect();
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate * u32::from(channels) * 2).to_le_bytes());
    bytes.extend((channels * 2).to_le_bytes());
    bytes.extend(16u16.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn bad_references_have_messages_and_odd_ones_are_adapted() {
    let mut rig = rig();
    let good = rig.speech("good.wav", 0);
    rig.write("silent.wav", &[0.0; 22_050], 22_050);
    rig.write("short.wav", &[0.3; 2_205], 22_050);
    std::fs::write(rig.path("text.wav"), "This is a text, and no sound at all.").unwrap();
    std::fs::write(rig.path("empty.wav"), "").unwrap();
    let mut cut = std::fs::read(&good).unwrap();
    cut.truncate(cut.len() / 2);
    std::fs::write(rig.path("cut.wav"), &cut).unwrap();
    std::fs::create_dir(rig.path("folder.wav")).unwrap();
    for (name, expected) in [
        ("silent.wav", "the recording is silent"),
        ("short.wav", "0.10 s"),
        ("text.wav", "WAV, FLAC, MP3"),
        ("empty.wav", "no content"),
        ("cut.wav", "cut off"),
        ("folder.wav", "is a folder: list the recordings"),
        ("missing.wav", "missing.wav"),
    ] {
        // Alone, together with a good one, and in a mix.
        let path = rig.path(name);
        for named in [
            vec![path.clone()],
            vec![good.clone(), path.clone()],
            vec![format!("{}(1)+{}", good.display(), path.display()).into()],
        ] {
            let error = resolve_voice(&mut rig.synthesizer, &rig.folder, &named).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(expected), "{named:?}: {error}");
        }
    }

    // Ten minutes: the first 30 s are used, and that is reported.
    let second: Vec<f32> = Reference::read(&good).unwrap().clip.samples[..8_000].to_vec();
    let long = rig.write("long.wav", &second.repeat(600), 8_000);
    let chosen = resolve_voice(&mut rig.synthesizer, &rig.folder, std::slice::from_ref(&long)).unwrap();
    let advice = &chosen.reports[0].advice;
    assert!(
        advice.iter().any(|a| a.concern == Concern::Adapted && a.text.contains("first 30 of 600 s")),
        "{advice:?}"
    );
    let start = rig.write("start.wav", &second.repeat(30), 8_000);
    let (begun, all) = (rig.encode(&[start]), chosen.voice);
    // The resampler sees the end of one and not of the other: the last chunk differs slightly.
    let apart =
        begun.conditioning.iter().zip(&all.conditioning).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-2, "{apart}");

    // Eight channels at 192 kHz.
    let wide: Vec<f32> = second.iter().flat_map(|sample| [*sample; 24]).collect();
    std::fs::write(rig.path("wide.wav"), many_channels(8, 192_000, &wide)).unwrap();
    let wide = rig.path("wide.wav");
    let chosen = resolve_voice(&mut rig.synthesizer, &rig.folder, &[wide]).unwrap();
    assert!(chosen.reports[0].advice.iter().any(|a| a.text.contains("8 channels are mixed")), "{chosen:?}");
    let facts = &chosen.reports[0].references[0];
    assert_eq!((facts.channels, facts.sample_rate), (8, 192_000));
    assert!(chosen.voice.conditioning.iter().all(|value| value.is_finite()));
}

#[test]
fn invalid_names_cannot_leave_the_folder() {
    let rig = rig();
    let voices = Voices::from_folder(&rig.folder);
    assert!(voices.get("../model/manifest").unwrap().is_none());
    assert!(matches!(voices.remove(&OsDisk, "../gpt"), Err(VoiceError::Name { .. })));
    assert!(Path::new(&rig.path("model/gpt.safetensors")).exists());
}
