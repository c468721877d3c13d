use crate::tiny;
use myxtts_data::audio::Clip;
use myxtts_data::mel::MelInverter;
use myxtts_demo as demo;
use myxtts_model::weights::tensors::TensorSpec;
use myxtts_model::weights::{ElementType, FolderWriter, ModelFolder, Part};
use myxtts_model::{SamplingOptions, StopReason};
use myxtts_run::durable::OsDisk;
use myxtts_speak::{Quality, SpeakError, Synthesizer};
use myxtts_tensor::Device;

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

/// Speaks twice in one voice and once in another.
fn speaks(parts: &[Part], quality: Quality, samples: usize) {
    let (_at, folder) = folder(parts);
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    assert_eq!(synthesizer.quality(), quality);
    assert_eq!(synthesizer.languages(), ["en", "fa"]);
    let reference = synthesizer.encode_voice(&[speech(0)]).unwrap();
    assert_eq!(reference.speaker.is_some(), quality == Quality::Decoded);
    let options = SamplingOptions { seed: 3, ..SamplingOptions::default() };
    let spoken = synthesizer.speak("Hello, world!", "en", &reference, &options).unwrap();
    assert_eq!(
        (spoken.ended, spoken.codes, spoken.rate),
        (StopReason::Limit, tiny::CODES_PER_TEXT, quality.rate())
    );
    assert_eq!((spoken.samples.len(), spoken.cleaned.as_str()), (samples, "hello, world!"));
    assert!(spoken.unknown.is_empty(), "{:?}", spoken.unknown);
    assert!(spoken.samples.iter().all(|sample| sample.is_finite()));
    assert!(spoken.samples.iter().any(|sample| sample.abs() > 1e-4), "silence");
    assert_eq!(synthesizer.speak("Hello, world!", "en", &reference, &options).unwrap(), spoken);
    assert_eq!(
        Synthesizer::open(&folder, Device::Cpu).unwrap().encode_voice(&[speech(0)]).unwrap(),
        reference
    );
    let both = synthesizer.encode_voice(&[speech(0), speech(1)]).unwrap();
    let other = synthesizer.speak("Hello, world!", "en", &both, &options).unwrap();
    assert_ne!(other.samples, spoken.samples, "another voice gives the same audio");
    assert!(synthesizer.speak("سلام", "fa", &reference, &options).is_ok());

    let mut error =
        |text: &str, language: &str| synthesizer.speak(text, language, &reference, &options).unwrap_err();
    assert!(matches!(error(" ... ", "en"), SpeakError::NothingToSay { .. }));
    assert!(matches!(error("hallo", "de"), SpeakError::Tokenizer(_)));
    let long = error(&"hello world ".repeat(90), "en");
    assert!(matches!(long, SpeakError::Generate(_)), "{long}");
}

#[test]
fn a_gpt_with_a_dvae_has_early_quality() {
    speaks(&[Part::Dvae], Quality::Early, MelInverter::samples(4 * tiny::CODES_PER_TEXT));
}

#[test]
fn a_gpt_with_decoder_and_speaker_encoder_has_decoded_quality() {
    let samples = tiny::decoder_sizes().samples_of(tiny::CODES_PER_TEXT);
    // The DVAE is not used if there is a decoder.
    speaks(&[Part::Decoder, Part::Speaker, Part::Dvae], Quality::Decoded, samples);
}

#[test]
fn unusable_models_and_references_are_explained() {
    for parts in [&[][..], &[Part::Decoder], &[Part::Speaker]] {
        let (_at, folder) = folder(parts);
        let error = Synthesizer::open(&folder, Device::Cpu).err().unwrap().to_string();
        assert!(error.contains("cannot speak") && error.contains("decoder.safetensors"), "{error}");
    }
    let (_at, folder) = folder(&[Part::Dvae]);
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let clip = |samples: Vec<f32>| Clip { samples, sample_rate: 16_000 };
    let error = synthesizer.encode_voice(&[speech(0), clip(vec![0.0; 16_000])]).unwrap_err();
    assert!(matches!(error, SpeakError::Silent { number: 2, count: 2 }), "{error}");
    let error = synthesizer.encode_voice(&[clip(vec![0.1; 4_000])]).unwrap_err();
    assert!(error.to_string().contains("0.25 s long"), "{error}");
    assert!(matches!(synthesizer.encode_voice(&[]), Err(SpeakError::TooShort { .. })));
}

/// Replaces the GPT's sizes in a manifest, with a valid checksum: a checksum does not prove that values make sense.
fn with_sizes(model: &std::path::Path, gpt: &serde_json::Value) {
    let path = model.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["parts"]["gpt"] = gpt.clone();
    manifest.as_object_mut().unwrap().remove("checksum");
    let body = serde_json::to_string_pretty(&manifest).unwrap();
    let body = body.trim_start_matches('{').trim_start_matches('\n').to_owned() + "\n";
    let text = format!("{{\"checksum\": \"{}\",\n{body}", blake3::hash(body.as_bytes()));
    std::fs::write(path, text).unwrap();
}

/// JSON pointers of all integers in a value.
fn numbers(value: &serde_json::Value, at: String, found: &mut Vec<(String, i64)>) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| numbers(value, format!("{at}/{name}"), found));
        }
        value => found.extend(value.as_i64().map(|number| (at, number))),
    }
}

#[test]
fn edited_sizes_of_a_model_panicked_or_took_all_memory_or_were_accepted() {
    let (at, folder) = folder(&[Part::Dvae]);
    let path = at.path().join("model");
    let vocabulary = folder.text("vocab.json").unwrap().unwrap();
    let tokens = myxtts_data::tokenizer::Tokenizer::from_bytes(&vocabulary, &path).unwrap();
    let mut sizes = myxtts_model::GptSizes::of(2, tiny::WIDTH, 2, tokens.vocabulary_size(), tiny::CODES);
    (sizes.max_text, sizes.max_audio) = (60, tiny::MAX_AUDIO);
    (sizes.start_text, sizes.stop_text) = (tokens.start_id(), tokens.stop_id());
    let sizes = serde_json::to_value(sizes).unwrap();
    drop(folder);
    let open = || Synthesizer::open(&ModelFolder::open(&path).unwrap(), Device::Cpu).map(|_| ());
    with_sizes(&path, &sizes);
    open().unwrap();
    let mut places = Vec::new();
    numbers(&sizes, String::new(), &mut places);
    assert!(places.len() > 20, "{places:?}");
    // Shapes do not determine these: any valid value is accepted.
    let free =
        ["/heads", "/groups", "/start_text", "/stop_text", "/start_audio", "/stop_audio", "/code_stride"];
    let mut refused = 0;
    for (place, was) in &places {
        for edited in [0, 1, 3, 7, -1, was + 1, 1_000_000, i64::MAX] {
            let mut other = sizes.clone();
            *other.pointer_mut(place).unwrap() = edited.into();
            with_sizes(&path, &other);
            match open() {
                Err(error) => {
                    assert!(error.to_string().contains("cannot speak"), "{place} = {edited}: {error}");
                    refused += 1;
                }
                Ok(()) => {
                    // Invalid sizes are ignored; the tensors then determine them.
                    let unread = serde_json::from_value::<myxtts_model::GptSizes>(other).is_err();
                    let is_free = free.iter().any(|name| place.ends_with(name));
                    assert!(
                        is_free || unread || edited == *was,
                        "{place} = {edited} instead of {was} speaks"
                    );
                }
            }
        }
    }
    assert!(refused > 4 * places.len(), "{refused} of {} edits were refused", 8 * places.len());
}

#[test]
fn letters_missing_in_the_vocabulary_were_spoken_as_a_second_of_noise() {
    let (_at, folder) = folder(&[Part::Dvae]);
    let mut synthesizer = Synthesizer::open(&folder, Device::Cpu).unwrap();
    let reference = synthesizer.encode_voice(&[speech(0)]).unwrap();
    let options = SamplingOptions { greedy: true, ..SamplingOptions::default() };
    let mut speak = |text: &str| synthesizer.speak(text, "en", &reference, &options);
    let error = speak("漢字 漢字").unwrap_err();
    assert!(matches!(error, SpeakError::UnknownLetters { .. }), "{error}");
    assert!(error.to_string().contains('漢') && error.to_string().contains("en"), "{error}");
    // Single unknown letters are skipped and reported.
    assert_eq!(speak("hello 漢").unwrap().unknown, ['漢']);
    // Terminal colours are not text.
    let spoken = speak("\u{1b}[1;31mhello\u{1b}[0m world").unwrap();
    assert_eq!(spoken.cleaned, "hello world");
}

#[test]
fn a_run_that_was_stopped_before_its_gpt_was_opened_as_the_largest_model() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("model");
    tiny::write(&path, &[Part::Dvae]);
    let vocabulary = std::fs::read(path.join("vocab.json")).unwrap();
    // The state of a run after its first stage: only statistics in the GPT's file.
    let mut folder = FolderWriter::create(&OsDisk, &path, true).unwrap();
    let stats = TensorSpec { name: "mel_stats".to_owned(), kind: ElementType::F32, shape: vec![80] };
    let mut ones = |_| Ok(std::borrow::Cow::Owned(1f32.to_le_bytes().repeat(80)));
    folder.tensors(Part::Gpt, &[stats], &mut ones).unwrap();
    folder.text("vocab.json", &vocabulary).unwrap();
    folder.manifest().parts.insert("dvae".to_owned(), serde_json::json!({ "channels": 80 }));
    folder.finish().unwrap();
    let error = Synthesizer::open(&ModelFolder::open(&path).unwrap(), Device::Cpu).err().unwrap().to_string();
    assert!(error.contains("it has no GPT") && error.contains("--resume"), "{error}");
}
