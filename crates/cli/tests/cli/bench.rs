//! `myxtts bench`: a real stage on the CPU, with clips that are computed on demand.

use crate::train::{corpus, myxtts};
use serde_json::Value;

#[test]
fn feeding_without_a_cache_is_measured_as_json_and_drawn() {
    let folder = corpus();
    let folder = folder.path();
    let mut arguments = vec!["bench", "corpus", "--device", "cpu", "--preset", "tiny", "--stage", "dvae"];
    arguments.extend(["--steps", "3", "--warm", "1", "--only", "per sample", "--json", "--svg", "chart.svg"]);
    let output = myxtts(folder, &arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
    assert!(words.contains("no cache: features are computed"), "{words}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((rows.len(), rows[0]["way"].as_str()), (1, Some("per sample")));
    for figure in ["samples_per_second", "step_ms", "step_p99_ms", "cores", "wait_p99_ms"] {
        assert!(rows[0][figure].as_f64().unwrap() > 0.0, "{figure}: {}", rows[0]);
    }
    assert!(!folder.join("corpus/.myxtts-cache/index.bin").exists(), "a cache was made");
    let chart = std::fs::read_to_string(folder.join("chart.svg")).unwrap();
    assert_eq!(chart.matches("class=\"rate\"").count(), 1, "{chart}");
}

/// Fewer than two steps have no period between them: two were timed in silence.
#[test]
fn fewer_than_two_steps_were_accepted() {
    let folder = tempfile::tempdir().unwrap();
    for steps in ["0", "1"] {
        let output = myxtts(folder.path(), &["bench", "corpus", "--steps", steps]).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && words.contains("--steps"), "{steps}: {words}");
    }
}
