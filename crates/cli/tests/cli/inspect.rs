//! `inspect batch`: the batches of a corpus are those of a run with the same settings.

use std::path::Path;

use serde_json::Value;

use super::train::{done, myxtts};

/// The clips of a batch and those that condition them, with the length of each in frames.
fn rows(folder: &Path, arguments: &[&str], settings: &[&str]) -> Vec<(String, String, u64)> {
    let output =
        myxtts(folder, &[&["inspect", "batch", "--json"], arguments, settings].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| (text(&row["id"]), text(&row["companion"]), row["frames"].as_u64().unwrap());
    report["rows"].as_array().unwrap().iter().map(row).collect()
}

/// The seed was another one, and the validation clips were not left out.
#[test]
fn inspect_batch_showed_other_batches_than_those_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, clips, seed) in [("a", "16", "1"), ("b", "4", "2")] {
        done(&mut myxtts(folder, &["demo-corpus", name, "--utterances", clips, "--seed", seed]));
    }
    for (run, val) in [("held", &[][..]), ("apart", &["--val-data", "b"][..])] {
        let mut settings = vec!["--preset", "tiny", "--seed", "7"];
        for setting in [
            "data.batch_size=3",
            "data.dvae_batch_size=3",
            "data.num_workers=1",
            "training.dvae_steps=1",
            "training.gpt_steps=1",
            "training.decoder_steps=0",
            "training.sample_every=0",
        ] {
            settings.extend(["--set", setting]);
        }
        settings.extend(val);
        done(&mut myxtts(
            folder,
            &[&["train", "a", "--name", run, "--device", "cpu"], &settings[..]].concat(),
        ));
        for stage in ["dvae", "gpt"] {
            let mut seen = Vec::new();
            for step in ["0", "1", "5", "63"] {
                let of = ["--stage", stage, "--step", step];
                let corpus = rows(folder, &[&["a"], &of[..]].concat(), &settings);
                assert_eq!(
                    corpus,
                    rows(folder, &[&["--run", run], &of[..]].concat(), &[]),
                    "{run}, {stage} {step}"
                );
                assert_eq!(corpus.len(), 3, "{run}, {stage} {step}");
                seen.push(corpus);
            }
            assert!(
                seen.windows(2).all(|pair| pair[0] != pair[1]),
                "{run}, {stage}: steps show the same batch"
            );
        }
    }
}
