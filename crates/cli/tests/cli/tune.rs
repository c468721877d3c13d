//! `myxtts tune`: a short sweep that writes settings; and a run that reports and keeps what was tuned.

use std::fs;

use crate::train::{corpus, done, myxtts, resume};
use serde_json::Value;

#[test]
fn a_sweep_is_measured_and_its_settings_can_be_trained_with() {
    let folder = corpus();
    let folder = folder.path();
    let mut arguments =
        vec!["tune", "corpus", "--device", "cpu", "--preset", "tiny", "--steps", "1", "--json"];
    arguments.extend(["--write", "tuned.yaml", "--num-workers", "1"]);
    let output = myxtts(folder, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let batches: Vec<u64> = rows.iter().map(|row| row["batch"].as_u64().unwrap()).collect();
    assert_eq!(batches, [4, 8], "there are fifteen clips");
    assert!(rows.iter().all(|row| row["rate"].as_f64().unwrap() > 0.0 && row["workers"] == 1), "{rows:?}");
    assert_eq!(report["left_alone"], serde_json::json!(["data.num_workers"]));
    let batch = report["chosen"]["batch"].as_u64().unwrap();
    let steps = report["accumulate"].as_u64().unwrap();
    assert!(batches.contains(&batch) && batch * steps == 16, "{batch} x {steps}");

    // Every command can read the file, and it has no setting that the user made.
    let shown = myxtts(folder, &["config", "show", "--json", "--config", "tuned.yaml"]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["plan"]["data"]["batch_size"], batch);
    assert_eq!(shown["plan"]["training"]["gradient_accumulation_steps"], steps);
    assert!(!fs::read_to_string(folder.join("tuned.yaml")).unwrap().contains("num_workers:"));
    let again = myxtts(folder, &arguments).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "a file was overwritten");
    let absent = myxtts(folder, &["tune", "corpus", "--device", "cuda:99"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(2), "{}", String::from_utf8_lossy(&absent.stderr));
}

#[test]
fn a_run_reports_its_tuning_and_is_tuned_once() {
    let folder = corpus();
    let folder = folder.path();
    let mut arguments = vec!["train", "corpus", "--name", "tuned", "--device", "cpu", "--preset", "tiny"];
    for setting in [
        "data.prefetch_buffer_size=3",
        "data.val_fraction=0",
        "training.dvae_steps=1",
        "training.gpt_steps=1",
        "training.decoder_steps=0",
    ] {
        arguments.extend(["--set", setting]);
    }
    let path = folder.join("runs/tuned/plan.json");
    let plan = || serde_json::from_slice::<Value>(&fs::read(&path).unwrap()).unwrap();
    let printed = done(&mut myxtts(folder, &arguments));
    assert!(
        printed.contains("tuned for this machine: ") && printed.contains("data.batch_size = 16 ("),
        "{printed}"
    );
    let kept = plan();
    assert_eq!((&kept["data"]["batch_size"], &kept["data"]["prefetch_buffer_size"]), (&16.into(), &3.into()));
    let changed = kept["tuning"]["changed"].as_array().unwrap();
    let batch = changed.iter().find(|change| change["setting"] == "data.batch_size").unwrap();
    assert_eq!((&batch["instead_of"], &batch["value"]), (&56.into(), &16.into()));
    assert!(changed.iter().all(|change| change["setting"] != "data.prefetch_buffer_size"), "{changed:?}");

    // A run that was tuned on another machine keeps its settings.
    let with = |batch: u64, open: Option<&str>| {
        let mut plan = plan();
        plan["data"]["batch_size"] = batch.into();
        if let Some(open) = open {
            plan["tuning"]["open"] = vec![open].into();
        }
        fs::write(&path, plan.to_string()).unwrap();
    };
    with(8, None);
    done(&mut resume(folder, "tuned"));
    assert_eq!(plan()["data"]["batch_size"], 8);
    // A run that was stopped before tuning is tuned when it resumes.
    with(8, Some("data.batch_size"));
    done(&mut resume(folder, "tuned"));
    assert_eq!((&plan()["data"]["batch_size"], &plan()["tuning"]["open"]), (&16.into(), &Value::Null));
}
