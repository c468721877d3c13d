//! `myxtts diagnose`: a real stage on the CPU, and a report in three forms.

use crate::train::{corpus, myxtts};
use serde_json::Value;

#[test]
fn a_real_stage_is_diagnosed_as_text_json_and_page() {
    let folder = corpus();
    let folder = folder.path();
    let with = |more: &[&str]| {
        let mut arguments =
            vec!["diagnose", "corpus", "--device", "cpu", "--preset", "tiny", "--stage", "dvae"];
        arguments.extend(["--num-batches", "6", "--num-workers", "1", "--batch-size", "2"]);
        arguments.extend(more);
        let output = myxtts(folder, &arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}");
        String::from_utf8(output.stdout).unwrap()
    };
    let report: Value = serde_json::from_str(&with(&["--json", "--html", "page.html"])).unwrap();
    assert_eq!((report["device"].as_str(), report["stage"].as_str()), (Some("cpu"), Some("dvae")));
    assert_eq!(report["culprit"], report["findings"][0]["culprit"]);
    let batches = report["trace"]["batches"].as_array().unwrap();
    assert_eq!(batches.len(), 6);
    for batch in batches {
        let time = |part: &str| batch[part].as_f64().unwrap();
        assert!(["read", "fill", "step"].iter().all(|part| time(part) > 0.0), "{batch}");
        assert!(time("wait") + time("step") <= time("period") + 1e-6, "{batch}");
    }
    assert!(!report["trace"]["alone"].as_array().unwrap().is_empty(), "the step was not replayed alone");
    for part in ["trained", "replayed", "alone"] {
        assert!(report["compared"][part].as_f64().unwrap() > 0.0, "{part} of {}", report["compared"]);
    }
    assert!(report["headroom"].as_f64().unwrap() >= 0.0);
    assert_eq!(report["trace"]["no_gpu"].as_str(), Some("the stage runs on the CPU"));
    assert!(report["planted"].is_null() && report["found"].is_null());
    assert!(report["seconds"]["step"]["p99"].as_f64() >= report["seconds"]["step"]["p50"].as_f64());
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    assert_eq!(page.matches("<title>batch ").count(), 6);
    assert!(page.contains("replayed from the device"), "{page}");

    let words = with(&["--plant", "slow-decode"]);
    let told = ["planted      slow-decode", "replayed from the device", "features computed on demand"];
    assert!(told.iter().all(|part| words.contains(part)), "{words}");
    for part in ["dvae on cpu: tiny", "p99", "1. ", "evidence: ", "fix: ", "gain: "] {
        assert!(words.contains(part), "{part} in {words}");
    }
}

#[test]
fn unknown_and_inapplicable_faults_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (["--plant", "slow-cat", "--stage", "gpt"], "slow-disk"),
        (["--plant", "shape-churn", "--stage", "dvae"], "needs --stage gpt"),
    ] {
        let output = myxtts(folder.path(), &["diagnose"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{arguments:?}");
    }
}

#[test]
fn too_few_batches_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = myxtts(folder.path(), &["diagnose", "--num-batches", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("4..=100000"));
}
