//! Samples during training, which must not change the training.

use crate::small;
use myxtts_data::audio::wav;
use myxtts_data::utterance::{Origin, Utterance};
use myxtts_run::folder::RunFolder;
use myxtts_run::plan::StageKind;
use myxtts_text::Cleaner;
use myxtts_train::samples::{Samples, Sentence, choose};
use myxtts_train::session::StageEnd;
use myxtts_train::{ComputeDevice, Model, TrainError};

fn utterance(id: &str, speaker: &str) -> Utterance {
    Utterance {
        id: id.to_owned(),
        audio: format!("{id}.wav").into(),
        text: format!("This is {id}."),
        speaker: speaker.to_owned(),
        language: "en".to_owned(),
        origin: Origin { file: "metadata.csv".into(), line: None },
    }
}

#[test]
fn every_speaker_is_chosen_before_any_twice_with_another_recording_as_reference() {
    let [a, b, c, d] =
        [("a/1", "ann"), ("a_1", "ann"), ("a3", "ann"), ("b", "ben")].map(|(id, who)| utterance(id, who));
    let known = [utterance("known-ann", "ann"), utterance("known-too", "ann")];
    let held_out = [(4, &a), (7, &b), (8, &c), (9, &d)];
    let chosen = choose(&held_out, &known.iter().collect::<Vec<_>>(), 3);
    let found: Vec<_> = chosen.iter().map(|s| (s.name.as_str(), s.record, s.text.as_str())).collect();
    // Ben has no other recording. Ids that would give the same file name get different ones.
    assert_eq!(found, [("a_1", 4, "This is a/1."), ("b", 9, "This is b."), ("a_1_", 7, "This is a_1.")]);
    let heard: Vec<_> = chosen.iter().map(|s| s.reference.to_str().unwrap()).collect();
    assert_eq!(heard, ["known-ann.wav", "b.wav", "known-ann.wav"]);
    assert_eq!(choose(&[], &[], 3), []);
    assert_eq!(choose(&[(0, &utterance("../up\\ئ", "x"))], &[], 3)[0].name, "___up_ئ");
}

/// The result of a few steps.
struct Trained {
    ended: Result<StageEnd, TrainError>,
    said: Vec<String>,
    events: usize,
    /// Events with the figures of samples.
    figures: Vec<serde_json::Value>,
    bits: Vec<Vec<u32>>,
    /// Files in the folder of samples.
    samples: Vec<String>,
}

/// Trains a few steps. Sentences are spoken every three steps, unless folders occupy the names of their files.
fn run(heard: Option<(&[Sentence], bool)>, recognizer: Option<&str>) -> Trained {
    let runs = tempfile::tempdir().unwrap();
    let mut plan = small::plan(StageKind::Dvae, 8);
    plan.training.sample_every = 3;
    plan.training.recognizer_command = recognizer.map(str::to_owned);
    let clips = small::Clips::default();
    let mut stage = small::stage(StageKind::Dvae, &plan, clips, 1, ComputeDevice::CPU);
    if let Some((_, false)) = heard {
        let folder = RunFolder::create(runs.path(), Some("run"), &plan).unwrap();
        for step in [3, 6, 8] {
            std::fs::create_dir(folder.samples().join(format!("dvae-00000{step}-five.wav"))).unwrap();
        }
    }
    let empty = Model::default();
    let samples = heard.map(|(sentences, _)| Samples {
        sentences,
        source: &clips,
        model: &empty,
        machine: ComputeDevice::CPU,
        cleaner: Cleaner::Default,
        memory_limit: None,
    });
    let (ended, said) = small::run_with_samples(runs.path(), &plan, &mut *stage, u64::MAX, samples.as_ref());
    let files = std::fs::read_dir(runs.path().join("run/samples")).into_iter().flatten();
    let mut samples: Vec<String> = files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    samples.sort();
    let events = small::events(runs.path(), "sample").len();
    let figures = small::events(runs.path(), "measured");
    Trained { ended, said, events, figures, bits: small::everything(&*stage), samples }
}

#[test]
fn samples_do_not_change_the_weights_and_a_failure_is_only_reported() {
    let one = utterance("five", "one");
    let sentences: Vec<Sentence> = choose(&[(5, &one)], &[], 3);
    let silent = run(None, None);
    let heard = run(Some((&sentences, true)), None);
    let refused = run(Some((&sentences, false)), None);
    for one in [&silent, &heard, &refused] {
        assert_eq!(*one.ended.as_ref().unwrap(), StageEnd::Done);
        assert!(one.bits == silent.bits, "speaking changed the weights");
    }
    assert!(silent.samples.is_empty() && silent.events == 0, "{:?}", silent.samples);
    let files =
        ["3", "6", "8"].map(|step| ["png", "wav"].map(|kind| format!("dvae-00000{step}-five.{kind}")));
    assert_eq!(heard.samples, files.concat());
    assert_eq!(heard.events, 3);
    let lines =
        refused.said.iter().filter(|line| line.contains("\"This is five.\" was not spoken after step"));
    assert_eq!(lines.count(), 3, "{:?}", refused.said);
}

#[cfg(unix)]
#[test]
fn a_recogniser_reports_error_rates_and_a_failing_one_does_not_end_the_run() {
    let one = utterance("five", "one");
    let sentences: Vec<Sentence> = choose(&[(5, &one)], &[], 3);
    let silent = run(None, None);
    let right = run(Some((&sentences, true)), Some("sh -c 'echo This is five!' {wav}"));
    let wrong = run(Some((&sentences, true)), Some("sh -c 'echo That is nine.' {wav}"));
    let broken = run(Some((&sentences, true)), Some("sh -c 'echo no model >&2; exit 1' {wav}"));
    for one in [&right, &wrong, &broken] {
        assert_eq!(*one.ended.as_ref().unwrap(), StageEnd::Done);
        assert!(one.bits == silent.bits, "listening changed the weights");
        assert_eq!(one.events, 3);
    }
    let rates = |trained: &Trained| -> Vec<f64> {
        trained.figures.iter().map(|event| event["wer"].as_f64().unwrap()).collect()
    };
    assert_eq!(rates(&right), [0.0; 3]);
    assert!(rates(&wrong).iter().all(|rate| (rate - 2.0 / 3.0).abs() < 1e-9), "{:?}", wrong.figures);
    assert!(right.said.iter().any(|line| line.contains("WER 0.0 %")), "{:?}", right.said);
    assert!(broken.figures.iter().all(|event| event["wer"].is_null()), "{:?}", broken.figures);
    let complaints = broken.said.iter().filter(|line| line.contains("no model")).count();
    assert_eq!(complaints, 1, "{:?}", broken.said);
}

/// Samples had error rates only: whether they came closer to the recordings was not logged.
#[test]
fn samples_were_not_compared_with_their_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = utterance("five", "one");
    let missing: Vec<Sentence> = choose(&[(5, &one)], &[], 3);
    one.audio = folder.path().join("five.wav");
    let hum: Vec<f32> = (0..22_050).map(|i| 0.3 * (i as f32 * 0.05).sin()).collect();
    std::fs::write(&one.audio, wav::encode_pcm16(&hum, 22_050)).unwrap();
    let present: Vec<Sentence> = choose(&[(5, &one)], &[], 3);
    let compared = run(Some((&present, true)), None);
    assert_eq!(compared.figures.len(), 3);
    for event in &compared.figures {
        assert!(
            event["distortion"].as_f64().unwrap() > 0.0 && event["duration_ratio"].as_f64().unwrap() > 0.0
        );
        assert_eq!((&event["stage"], &event["sentences"]), (&"dvae".into(), &1.into()));
    }
    assert!(compared.said.iter().any(|line| line.contains("mel-cepstral distortion")), "{:?}", compared.said);
    // Without the recording the rest is measured, and the reason is said once.
    let alone = run(Some((&missing, true)), None);
    assert!(alone.figures.iter().all(|event| event["distortion"].is_null() && event["seconds"].is_number()));
    let notes = alone.said.iter().filter(|line| line.contains("not compared with their recordings"));
    assert_eq!(notes.count(), 1, "{:?}", alone.said);
}
