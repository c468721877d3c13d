//! Samples during training, which must not change the training.

use crate::small;
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
    /// Events with error rates.
    rates: Vec<serde_json::Value>,
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
    let rates = small::events(runs.path(), "recognized");
    Trained { ended, said, events, rates, bits: small::everything(&*stage), samples }
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
        trained.rates.iter().map(|event| event["wer"].as_f64().unwrap()).collect()
    };
    assert_eq!(rates(&right), [0.0; 3]);
    assert!(rates(&wrong).iter().all(|rate| (rate - 2.0 / 3.0).abs() < 1e-9), "{:?}", wrong.rates);
    assert!(right.said.iter().any(|line| line.contains("WER 0 %")), "{:?}", right.said);
    assert!(broken.rates.is_empty());
    let complaints = broken.said.iter().filter(|line| line.contains("no model")).count();
    assert_eq!(complaints, 1, "{:?}", broken.said);
}
