//! Settings: changed with `--resume`, from older files, without effect, and for a corpus that cannot be written to.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::formats::{RUN, first_set};
use super::train::{corpus, done, myxtts, resume};

/// A minimal run with checkpoints.
fn train(folder: &Path, name: &str, more: &[&str]) -> Command {
    let mut arguments =
        vec!["train", "corpus", "--name", name, "--device", "cpu", "--preset", "tiny", "--stage", "dvae"];
    for setting in
        ["training.dvae_steps=2", "data.dvae_batch_size=2", "data.num_workers=1", "training.sample_every=0"]
    {
        arguments.extend(["--set", setting]);
    }
    arguments.extend(more);
    myxtts(folder, &arguments)
}

/// Stderr of a command that exits with this code.
fn ended(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words}");
    words
}

#[test]
fn resume_applies_changeable_settings_and_refuses_others_by_name() {
    let folder = corpus();
    let folder = folder.path();
    done(&mut train(folder, "a", &["--set", "training.checkpoint_every=1"]));
    let resume = |more: &[&str]| {
        let mut command = myxtts(folder, &["train", "--resume", "a", "--device", "cpu"]);
        command.args(more);
        command
    };
    let plan = || fs::read_to_string(folder.join("runs/a/plan.json")).unwrap();
    let begun = plan();
    let refused = ended(&mut resume(&["--batch-size", "9", "--seed", "8", "--learning-rate", "1e-5"]), 2);
    for expected in ["data.batch_size", "-> 9 (--batch-size)", "training.seed: 1234 -> 8", "cannot change"] {
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(plan(), begun, "what is refused changes nothing");
    let over = ended(&mut resume(&["--dvae-steps", "5"]), 2);
    assert!(over.contains("the stage `dvae` of this run is finished"), "{over}");
    fs::write(
        folder.join("c.yaml"),
        "training:\n  learning_rate: 0.001\n  keep_checkpoints: 2\n  fused_kernels: true\n",
    )
    .unwrap();
    let taken = done(&mut resume(&["--config", "c.yaml"]));
    for expected in [
        "training.learning_rate: null -> 0.001",
        "training.keep_checkpoints: 3 -> 2",
        "c.yaml:4",
        "no longer has any effect",
    ] {
        assert!(taken.contains(expected), "{taken}");
    }
    assert!(plan().contains("\"learning_rate\": 0.001"));
    assert!(
        !done(&mut resume(&["--config", "c.yaml"])).contains("changed "),
        "the change was stored by the last resume"
    );
}

/// They were accepted, and no stage used them.
#[test]
fn steps_of_a_stage_that_a_run_does_not_train_were_accepted() {
    let folder = corpus();
    let folder = folder.path();
    let printed = done(&mut train(folder, "a", &["--gpt-steps", "7"]));
    assert!(
        printed.contains("no effect with --stage dvae, which trains no other stage: training.gpt_steps"),
        "{printed}"
    );
    let refused = ended(resume(folder, "a").args(["--gpt-steps", "9"]), 2);
    let why = "training.gpt_steps: 7 -> 9 (--gpt-steps): this run trains the stage `dvae` only";
    assert!(refused.contains(why) && refused.contains("--from runs/a/model --stage gpt"), "{refused}");
}

/// The corpus of the flag was ignored.
#[test]
fn a_corpus_was_named_as_an_argument_and_another_by_a_flag() {
    let folder = corpus();
    let folder = folder.path();
    for other in [&["--train-data", "other"][..], &["--set", "data.train_data=other"]] {
        let refused = ended(&mut train(folder, "a", other), 2);
        assert!(
            refused.contains("CORPUS gives data.train_data = corpus") && refused.contains("gives other"),
            "{refused}"
        );
        let refused = ended(myxtts(folder, &["check", "corpus"]).args(other), 2);
        assert!(refused.contains("one of them would be ignored"), "{refused}");
    }
    done(
        myxtts(folder, &["check", "corpus", "--train-data", "corpus"]).args(["--set", "data.num_workers=1"]),
    );
}

/// The size was ignored once the cache had a vocabulary.
#[test]
fn the_size_of_a_vocabulary_was_ignored_if_the_cache_had_one() {
    let folder = corpus();
    done(&mut train(folder.path(), "a", &[]));
    let printed = done(&mut train(folder.path(), "b", &["--set", "data.vocab_size=96"]));
    assert!(printed.contains("data.vocab_size = 96 only applies to a new one"), "{printed}");
    let elsewhere = ["--set", "data.vocab_size=130", "--cache-dir", "elsewhere"];
    let printed = done(&mut train(folder.path(), "c", &elsewhere));
    assert!(printed.contains("vocabulary: 130 pieces trained"), "{printed}");
}

#[test]
fn a_resumed_stage_trains_with_the_changed_rate() {
    let resumed = |more: &[&str]| {
        let folder = first_set();
        let printed = done(resume(folder.path(), RUN).args(more));
        let run = folder.path().join("runs").join(RUN);
        let weights = fs::read(run.join("model/dvae.safetensors")).unwrap();
        (printed, weights, fs::read_to_string(run.join("events.jsonl")).unwrap())
    };
    let (printed, unchanged, _) = resumed(&[]);
    assert!(printed.contains("dvae 4/4"), "{printed}");
    let (_, weights, events) = resumed(&["--learning-rate", "1e-6"]);
    assert_ne!(weights, unchanged, "the steps after the checkpoint used the old learning rate");
    assert!(events.contains("1e-6") || events.contains("0.000001"), "{events}");
}

#[test]
fn settings_without_effect_are_reported_before_the_run() {
    let folder = corpus();
    let printed = done(&mut train(
        folder.path(),
        "a",
        &[
            "--set",
            "data.keep_on_device=true",
            "--lora-rank",
            "2",
            "--max-text-tokens",
            "4000",
            "--set",
            "data.max_mel_frames=60000",
        ],
    ));
    for note in
        ["no effect on a CPU", "data.keep_on_device", "apply to the GPT stage only: training.lora_rank"]
    {
        assert!(printed.contains(note), "{printed}");
    }
    assert!(printed.contains("leaves out clips of more than 402 tokens"), "{printed}");
    assert!(printed.contains("data.max_mel_frames = 60000"), "{printed}");
    // The memory that steps will take is said before the first one.
    let [memory, step] = ["planned for training steps", "dvae 2/2"].map(|text| printed.find(text));
    assert!(memory.is_some() && step.is_none_or(|step| memory < Some(step)), "{printed}");
}

#[test]
fn fine_tuning_keeps_the_preprocessing_of_the_base_model() {
    let folder = corpus();
    // It cannot clean Persian, of which the corpus has some.
    let stored = ["--set", "data.trim_db=30", "--set", "data.loudness_lufs=-23"];
    let coqui = [&["--cleaner", "coqui", "--failure-budget", "0.9"][..], &stored].concat();
    done(&mut train(folder.path(), "a", &coqui));
    let manifest = fs::read_to_string(folder.path().join("runs/a/model/manifest.json")).unwrap();
    assert!(
        manifest.contains("\"cleaner\": \"coqui\"") && manifest.contains("\"trim_db\": 30.0"),
        "{manifest}"
    );
    assert!(manifest.contains("\"loudness_lufs\": -23.0"), "{manifest}");
    // Fine-tuning the DVAE changes the meaning of the GPT's codes.
    let from = ["--from", "runs/a/model", "--cleaner", "default"];
    let printed = done(&mut train(folder.path(), "b", &from));
    assert!(printed.contains("changes the meaning of its codes"), "{printed}");
    assert!(printed.contains("the model was trained with data.cleaner coqui"), "{printed}");
}

#[test]
fn a_read_only_corpus_is_trained_on_without_a_cache() {
    let folder = corpus();
    // No user can create folders there, not even root.
    let closed = "/sys/myxtts-cache";
    if cfg!(target_os = "linux") && Path::new("/sys").is_dir() {
        let printed = done(&mut train(folder.path(), "a", &["--cache-dir", closed]));
        assert!(printed.contains("give another folder with --cache-dir"), "{printed}");
        assert!(printed.contains("stay in memory once computed"), "{printed}");
        let strict = ["--cache-dir", closed, "--preprocessing-mode", "precompute"];
        let refused = ended(&mut train(folder.path(), "b", &strict), 74);
        assert!(refused.contains(closed), "{refused}");
    }
    // No cache is written if that is requested.
    let printed = done(&mut train(folder.path(), "c", &["--set", "data.native_loading=false"]));
    assert!(printed.contains("are read in pieces"), "{printed}");
}
