//! Tests that every setting has an effect: one case for each setting of the table shows what changes with it. A setting without a
//! case fails. What a setting does on a GPU is observed where the plan becomes behaviour, which takes no GPU.
//!
//! A case must fail if its setting is disconnected: lines that only repeat a setting are no observation.

mod fake_server;
mod fixtures;
mod observations;

use std::collections::{BTreeMap, BTreeSet};

use myxtts_run::config::{GPU_ONLY, KEYS, Key};
use myxtts_run::plan::StageKind;
use myxtts_train::stage_context::ORDER;

use fixtures::TestFolder;
use observations::Observation;

/// One setting, its new value, and the observation that changes with it.
struct Case {
    key: &'static str,
    /// Other settings, the same before and after.
    with: &'static [&'static str],
    /// Its values before and after; unset before if `None`.
    values: (Option<&'static str>, &'static str),
    observed: (&'static str, Observation),
}

const fn case(key: &'static str, to: &'static str, observed: (&'static str, Observation)) -> Case {
    Case { key, with: &[], values: (None, to), observed }
}

impl Case {
    /// Adds other settings.
    const fn with(self, with: &'static [&'static str]) -> Case {
        Case { with, ..self }
    }

    /// Sets the value before.
    const fn from(self, from: &'static str) -> Case {
        Case { values: (Some(from), self.values.1), ..self }
    }
}

macro_rules! observations {
    ($($name:ident: $function:ident),* $(,)?) => {
        $(const $name: (&str, Observation) = (stringify!($function), observations::$function);)*
    };
}

observations! {
    CORPUS: corpus, RECORDS: records, SPLIT: split, FILES: files, BATCHES: batches, DECODER_BATCHES: decoder_batches,
    FED: fed, LOADING: loading, UPLOAD: upload, CONDITIONING: conditioning, MODE: mode, AHEAD: ahead, DEVICES: devices,
    DATA_GPU: data_gpu, REPLICAS: replicas, RESOLVED: resolved, ON_DEMAND: on_demand, GPT: gpt, SETUP: setup,
    DVAE_SETUP: dvae_setup, TRAINED: trained, STAGES: stages, SPIKES: spikes, NAN: nan, RUNS: runs, TRANSCRIPTS: transcripts,
}

/// A short decoder stage.
const DECODER: &[&str] = &["training.gpt_steps=1", "data.decoder_batch_size=2"];
const ONE_DECODER_STEP: &[&str] =
    &["training.gpt_steps=1", "data.decoder_batch_size=2", "training.decoder_steps=1"];
/// A recogniser that understands the same words in every file: it prints no character of the name of the file.
const TRANSCRIPT: &str = "printf 21%.0s {wav}";

#[rustfmt::skip] // one case, one line
const CASES: &[Case] = &[
    case("data.train_data", "@/other", CORPUS),
    case("data.val_data", "@/other", SPLIT),
    case("data.val_fraction", "0.5", SPLIT).from("0"),
    case("data.format", "folder", CORPUS),
    case("data.language", "fa", CORPUS),
    case("data.speaker", "somebody", CORPUS),
    case("data.failure_budget", "0", RECORDS),
    case("data.cleaner", "coqui", RECORDS).with(&["data.tokenizer=@/vocab.json"]),
    // Unset, `phonemes` is chosen for these texts.
    case("data.cleaner", "default", RECORDS),
    case("data.tokenizer", "@/vocab.json", RECORDS),
    case("data.vocab_size", "96", RECORDS),
    case("data.max_text_tokens", "12", RECORDS),
    case("data.max_mel_frames", "150", RECORDS),
    case("data.min_seconds", "1.2", RECORDS),
    case("data.max_seconds", "2", RECORDS),
    case("data.trim_silence", "false", RECORDS),
    case("data.trim_db", "20", RECORDS),
    case("data.loudness_lufs", "-30", RECORDS),
    case("data.preprocessing_mode", "runtime", FILES),
    case("data.cache_dir", "@/elsewhere", FILES),
    case("data.cache_columns", "tokens, dvae_mel", RECORDS),
    case("data.memory_cache_mb", "1", ON_DEMAND).with(&["data.preprocessing_mode=runtime"]),
    case("data.batch_size", "3", BATCHES),
    case("data.dvae_batch_size", "3", BATCHES),
    case("data.decoder_batch_size", "3", DECODER_BATCHES),
    case("data.frame_budget", "1000", BATCHES),
    case("data.quadratic_frames", "50", BATCHES).with(&["data.frame_budget=1000"]),
    case("data.buckets", "1", BATCHES),
    case("data.shuffle", "false", BATCHES),
    case("data.shuffle", "false", DECODER_BATCHES),
    case("data.worst_batch_first", "true", BATCHES),
    case("data.balance_temperature", "1", BATCHES),
    case("data.prefetch_buffer_size", "3", FED),
    case("data.num_workers", "3", LOADING),
    case("data.buffer_size", "20", LOADING),
    case("data.buffer_size", "20", DATA_GPU).with(&["data.data_gpu=0", "data.model_gpu=1"]),
    case("data.model_start_delay", "7", DATA_GPU).with(&["data.data_gpu=0", "data.model_gpu=1"]),
    case("data.auto_tune_performance", "true", RESOLVED),
    case("data.native_loading", "false", FILES),
    case("data.data_gpu", "0", DATA_GPU).with(&["data.model_gpu=1"]),
    case("data.model_gpu", "2", DEVICES),
    case("data.prefetch_to_gpu", "false", UPLOAD),
    case("data.enhanced_gpu_prefetch", "false", UPLOAD),
    case("data.keep_on_device", "false", CONDITIONING),
    case("data.optimize_cpu_gpu_overlap", "false", AHEAD),

    case("model.preset", "small", DVAE_SETUP),
    case("model.masks", "coqui", GPT),
    case("model.audio_codes", "32", SETUP),

    case("training.seed", "5", BATCHES),
    case("training.optimization_level", "basic", TRAINED),
    case("training.dvae_steps", "5", TRAINED),
    case("training.gpt_steps", "3", STAGES).with(&["training.decoder_steps=0"]),
    case("training.decoder_steps", "1", STAGES).from("0").with(DECODER),
    case("training.learning_rate", "0.01", GPT),
    case("training.warmup_steps", "9", GPT),
    case("training.schedule", "constant", TRAINED),
    case("training.learning_rate_floor", "0.5", TRAINED),
    case("training.weight_decay", "0.5", GPT),
    case("training.gradient_clip", "0.01", GPT),
    case("training.gradient_accumulation_steps", "2", GPT),
    case("training.ema_decay", "0", GPT),
    case("training.dropout", "0.5", GPT),
    case("training.label_smoothing", "0.3", GPT),
    case("training.code_masking", "0.5", GPT).from("0"),
    // The last batches of a stage are whole clips.
    case("training.recombination", "1", GPT).from("0").with(&["training.gpt_steps=20"]),
    case("training.alignment_weight", "1", GPT).from("0"),
    case("training.acoustic_weight", "1", GPT).from("0"),
    case("training.code_token_weight", "1", TRAINED).from("0"),
    case("training.diagonal_start", "true", GPT).from("false"),
    case("training.text_dropout", "0.9", GPT).from("0"),
    case("training.codebook_start", "true", GPT).from("false"),
    case("training.discriminator_start", "0", STAGES).with(ONE_DECODER_STEP),
    case("training.decoder_mel_weight", "5", STAGES).with(&["training.gpt_steps=1", "data.decoder_batch_size=2", "training.decoder_steps=1", "training.discriminator_start=0"]),
    case("training.lora_rank", "2", GPT),
    case("training.freeze_layers", "1", GPT),
    case("training.bad_step_budget", "1", NAN).with(&["training.bad_steps_in_a_row=100"]),
    case("training.bad_steps_in_a_row", "1", NAN),
    case("training.spike_limit", "2", SPIKES).from("1000").with(&["training.dvae_steps=40", "training.learning_rate=1e-9"]),
    case("training.early_stop_patience", "1", TRAINED).with(&["training.dvae_steps=8", "training.validate_every=1", "training.learning_rate=1"]),
    case("training.runs_dir", "@/elsewhere", RUNS),
    case("training.validate_every", "2", TRAINED),
    case("training.sample_every", "1", TRAINED),
    case("training.checkpoint_every", "1", TRAINED),
    case("training.keep_checkpoints", "1", TRAINED).with(&["training.checkpoint_every=1", "training.validate_every=1"]),
    case("training.keep_best", "3", TRAINED).with(&["training.keep_checkpoints=1", "training.checkpoint_every=1", "training.validate_every=1"]),
    case("training.multi_gpu", "true", DEVICES),
    case("training.reduce_bf16", "true", REPLICAS),
    case("training.visible_gpus", "3", DEVICES),
    case("training.memory_limit", "256MiB", SETUP).from("300MiB").with(&["data.dvae_batch_size=4096", "data.batch_size=2"]),
    case("training.recognizer_command", TRANSCRIPT, TRANSCRIPTS),
    case("training.recognizer_url", "http://127.0.0.1:1", TRANSCRIPTS),
    case("training.recognizer_model", "other", TRANSCRIPTS).with(&["training.recognizer_url=http://127.0.0.1:1"]),
    case("training.recognizer_digits", "true", TRANSCRIPTS).with(&["training.recognizer_url=http://127.0.0.1:1"]),
    case("training.enable_graph_mode", "false", MODE),
    case("training.enable_eager_debug", "true", NAN),
];

/// Observes a plan with the given settings. An error is an observation too.
fn observe(folder: &TestFolder, set: &[String], (_, observation): (&str, Observation)) -> String {
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    match folder.plan(&set) {
        Ok(plan) => observation(folder, &plan).unwrap_or_else(|error| format!("error: {error:#}")),
        Err(error) => format!("refused: {error}"),
    }
}

/// Asserts that every selected case changes its observation.
fn assert_effects(is_selected: impl Fn(&Case) -> bool) {
    let folder = TestFolder::new();
    let mut before: BTreeMap<(&str, Vec<String>), String> = BTreeMap::new();
    let mut without_effect = Vec::new();
    for case in CASES.iter().filter(|case| is_selected(case)) {
        let set = |value: Option<&str>| -> Vec<String> {
            let own = value.map(|value| format!("{}={value}", case.key));
            case.with.iter().map(|text| (*text).to_owned()).chain(own).collect()
        };
        let first = set(case.values.0);
        // Each observation is made once per settings, and must be the same when it is repeated.
        let is_new = !before.keys().any(|(observed, _)| *observed == case.observed.0);
        let was = before
            .entry((case.observed.0, first.clone()))
            .or_insert_with(|| observe(&folder, &first, case.observed));
        if is_new {
            assert_eq!(
                *was,
                observe(&folder, &first, case.observed),
                "{} differs when it is repeated",
                case.observed.0
            );
        }
        let is = observe(&folder, &set(Some(case.values.1)), case.observed);
        if *was == is {
            without_effect.push(format!(
                "{} = {} does not change `{}`: {was}",
                case.key, case.values.1, case.observed.0
            ));
        }
    }
    assert!(without_effect.is_empty(), "{}", without_effect.join("\n\n"));
}

#[test]
#[allow(clippy::print_stdout)] // reports the counts
fn every_setting_of_the_table_has_a_case() {
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.key).collect();
    for key in KEYS {
        assert!(cases.contains(key.path), "{} is new: give it a case in crates/cli/src/effects", key.path);
    }
    for path in &cases {
        assert!(Key::find(path).is_some(), "{path} is not a setting any more");
    }
    println!("{} settings, {} cases, no exceptions", KEYS.len(), CASES.len());
}

#[test]
fn settings_of_the_corpus_change_what_is_read() {
    assert_effects(|case| [CORPUS.0, RECORDS.0, SPLIT.0, FILES.0].contains(&case.observed.0));
}

#[test]
fn settings_of_batches_change_batches_and_feeds() {
    assert_effects(|case| {
        [BATCHES.0, DECODER_BATCHES.0, FED.0, LOADING.0, RESOLVED.0, ON_DEMAND.0, TRANSCRIPTS.0, DVAE_SETUP.0]
            .contains(&case.observed.0)
    });
}

/// On a CPU these settings only cause a note that they have no effect. A case that observed that note would still pass if a setting
/// did nothing on a GPU.
#[test]
fn settings_for_gpus_change_what_a_run_would_do_on_one() {
    assert_effects(|case| {
        [UPLOAD.0, CONDITIONING.0, MODE.0, AHEAD.0, DEVICES.0, DATA_GPU.0, REPLICAS.0]
            .contains(&case.observed.0)
    });
}

#[test]
fn notes_name_the_settings_without_effect_on_a_cpu_and_those_of_one_stage() {
    let folder = TestFolder::new();
    // Named here too: the list itself would not miss one.
    for path in [
        "data.keep_on_device",
        "data.prefetch_to_gpu",
        "data.enhanced_gpu_prefetch",
        "data.optimize_cpu_gpu_overlap",
        "training.enable_graph_mode",
    ] {
        assert!(GPU_ONLY.contains(&path), "{path}");
    }
    let gpt_only = [
        "training.dropout=0.5",
        "training.lora_rank=2",
        "training.freeze_layers=1",
        "training.label_smoothing=0.1",
        "training.gradient_accumulation_steps=2",
        "data.buckets=3",
        "data.worst_batch_first=true",
    ];
    for set in GPU_ONLY.iter().map(|path| format!("{path}=false")).chain(gpt_only.map(str::to_owned)) {
        let (path, _) = set.split_once('=').unwrap();
        let notes = |set: &[&str]| observations::notes(&folder.plan(set).unwrap());
        assert!(!notes(&[]).contains(path) && notes(&[&set]).contains(path), "{set}: {}", notes(&[&set]));
    }
}

#[test]
fn settings_of_the_recipe_change_the_weights_of_a_gpt() {
    assert_effects(|case| case.observed.0 == GPT.0);
}

/// The cases above pass if one of the stages uses the setting.
#[test]
fn settings_of_all_stages_act_in_each_of_them() {
    let folder = TestFolder::new();
    let short = [
        "training.dvae_steps=2",
        "training.gpt_steps=2",
        "training.decoder_steps=2",
        "data.decoder_batch_size=2",
    ];
    for kind in ORDER {
        for (key, from, to) in [
            ("training.seed", "1", "5"),
            ("training.learning_rate", "0.001", "0.01"),
            ("training.warmup_steps", "0", "9"),
            ("training.schedule", "constant", "cosine"),
            ("training.learning_rate_floor", "0.1", "0.9"),
            ("training.weight_decay", "0", "0.5"),
            ("training.gradient_clip", "0", "0.0001"),
            ("training.ema_decay", "0", "0.9"),
        ] {
            let of = |value: &str| {
                let own = format!("{key}={value}");
                let mut set = short.to_vec();
                // Otherwise the second step still has the highest rate.
                if key.contains("schedule") || key.contains("floor") {
                    set.push("training.warmup_steps=0");
                }
                set.push(&own);
                observations::weights_of(&folder, &folder.plan(&set).unwrap(), kind).unwrap()
            };
            assert_ne!(of(from), of(to), "{key} does nothing in {kind:?}");
        }
    }
    for kind in [StageKind::Dvae, StageKind::Gpt] {
        let of = |set: &str| observations::batches_of(&folder.plan(&[set]).unwrap(), kind).unwrap();
        assert_ne!(
            of("data.shuffle=true"),
            of("data.shuffle=false"),
            "data.shuffle does nothing in {kind:?}"
        );
    }
}

#[test]
fn modes_reach_the_engine_of_every_stage() {
    let folder = TestFolder::new();
    for (set, mode) in [
        ("training.enable_eager_debug=true", "Checked"),
        ("training.enable_graph_mode=false", "Eager"),
        ("training.enable_graph_mode=true", "Captured"),
    ] {
        let plan = folder.plan(&[set, "training.gpt_steps=1", "data.decoder_batch_size=2"]).unwrap();
        for kind in ORDER {
            assert_eq!(observations::engine_mode(&folder, &plan, kind).unwrap(), mode, "{set} {kind:?}");
        }
    }
}

#[test]
fn settings_of_a_run_change_its_messages_and_files() {
    assert_effects(|case| [TRAINED.0, STAGES.0, SPIKES.0, NAN.0, RUNS.0, SETUP.0].contains(&case.observed.0));
}

#[test]
fn the_demo_is_cleaned_to_letters() {
    let mut settings = crate::settings::Settings::default();
    settings.prefer_for_training(myxtts_train::ComputeDevice::CPU).unwrap();
    assert_eq!(settings.plan().unwrap().data.cleaner.as_deref(), Some("default"));
}
