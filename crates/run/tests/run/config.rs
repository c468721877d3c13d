//! Origins of values: fixtures, precedence, tuning, limits, notes, and the file that `config init` writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use myxtts_run::config::{
    ConfigError, Flag, HostResources, KEYS, Key, Origin, Section, Sources, Tuned, Value, ValueKind,
    parse_yaml, template,
};
use myxtts_run::plan::{Masks, OptimizationLevel, Plan, PreprocessingMode, Preset, StageKind};
use myxtts_run::schedule::Decay;
use proptest::prelude::*;

/// A machine on which no setting is tuned or limited.
fn large() -> HostResources {
    HostResources { cores: 64, memory_bytes: Some(256 << 30) }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/configs").join(name)
}

fn plan_from(file: &str) -> Plan {
    Plan::resolve(&Sources { file: Some(fixture(file)), ..Sources::for_host(large()) })
        .expect("a fixture loads")
}

fn with_yaml(text: &str, host: HostResources) -> Result<Plan, ConfigError> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("settings.yaml");
    std::fs::write(&file, text).expect("a file");
    Plan::resolve(&Sources { file: Some(file), ..Sources::for_host(host) })
}

/// Every value by its path, as text.
fn shown(plan: &Plan) -> BTreeMap<&'static str, String> {
    plan.values.iter().map(|resolved| (resolved.key.path, resolved.value.to_string())).collect()
}

/// Asserts that a fixture changes exactly these values.
fn assert_changes(file: &str, expected: &[(&str, &str)]) {
    let defaults = shown(&Plan::resolve(&Sources::for_host(large())).expect("the defaults are valid"));
    let plan = plan_from(file);
    let written: BTreeMap<_, _> = plan
        .values
        .iter()
        .filter(|resolved| matches!(&resolved.origin, Origin::File { .. }))
        .map(|resolved| (resolved.key.path, resolved.value.to_string()))
        .collect();
    let expected: BTreeMap<_, _> = expected.iter().map(|(path, value)| (*path, value.to_string())).collect();
    assert_eq!(written, expected);
    for (path, value) in shown(&plan) {
        assert_eq!(&value, expected.get(path).unwrap_or(&defaults[path]), "{path}");
    }
}

#[test]
fn fixtures_load_unchanged() {
    assert_changes(
        "bottleneck_fix.yaml",
        &[
            ("data.preprocessing_mode", "precompute"),
            ("data.native_loading", "true"),
            ("data.enhanced_gpu_prefetch", "true"),
            ("data.optimize_cpu_gpu_overlap", "true"),
            ("data.batch_size", "48"),
            ("data.num_workers", "16"),
            ("data.prefetch_buffer_size", "12"),
        ],
    );
    assert_changes("multi_gpu.yaml", &[("training.multi_gpu", "true"), ("training.visible_gpus", "0,1,2")]);
    assert_changes(
        "oscillation_fix.yaml",
        &[
            ("data.native_loading", "true"),
            ("data.prefetch_to_gpu", "true"),
            ("data.enhanced_gpu_prefetch", "true"),
            ("data.optimize_cpu_gpu_overlap", "true"),
            ("data.num_workers", "16"),
            ("data.prefetch_buffer_size", "16"),
            ("training.enable_graph_mode", "true"),
            ("training.enable_eager_debug", "false"),
        ],
    );
    assert_changes(
        "small_gpu.yaml",
        &[
            ("data.batch_size", "8"),
            ("data.num_workers", "8"),
            ("data.prefetch_buffer_size", "8"),
            ("data.native_loading", "true"),
            ("training.gradient_accumulation_steps", "2"),
        ],
    );
    let all = std::fs::read_dir(fixture("")).unwrap().count();
    assert_eq!(all, 4, "a new fixture needs its line here");
}

#[test]
fn documented_defaults_hold() {
    let Plan { data, model, training, .. } = Plan::resolve(&Sources::for_host(large())).unwrap();
    assert_eq!((data.batch_size, data.num_workers), (56, 18));
    assert_eq!((data.prefetch_buffer_size, data.buffer_size), (12, 50));
    assert_eq!(data.model_start_delay, 2.0);
    assert_eq!((data.data_gpu, data.model_gpu.clone()), (None, None));
    assert_eq!(data.preprocessing_mode, PreprocessingMode::Auto);
    assert!(data.native_loading && data.enhanced_gpu_prefetch && data.optimize_cpu_gpu_overlap);
    assert!(data.prefetch_to_gpu && data.auto_tune_performance);
    assert_eq!((data.max_mel_frames, data.max_text_tokens), (1000, 400));
    assert!((data.longest_seconds() - 11.61).abs() < 0.01);
    assert_eq!(data.cache_columns, ["tokens", "dvae_mel", "conditioning_mel"]);
    assert_eq!(model.preset, Preset::Normal);
    assert_eq!((training.multi_gpu, training.visible_gpus), (false, None));
    assert_eq!(training.gradient_accumulation_steps, 1);
    assert!(training.enable_graph_mode && !training.enable_eager_debug);
    assert_eq!(training.optimization_level, OptimizationLevel::Enhanced);
    assert_eq!(training.seed, 1234);
    assert_eq!((model.masks, training.memory_limit), (Masks::Corrected, None));
    assert_eq!((training.keep_checkpoints, training.bad_step_budget), (3, 50));
}

#[test]
fn lora_and_frozen_layers_exclude_each_other() {
    let error = with_yaml("training: {lora_rank: 8, freeze_layers: 2}", large()).unwrap_err().to_string();
    assert!(error.contains("training.lora_rank freezes all layers"), "{error}");
    with_yaml("training: {lora_rank: 8}", large()).unwrap();
}

#[test]
fn memory_needs_a_unit() {
    let plan = with_yaml("training: {memory_limit: 24GiB}", large()).unwrap();
    assert_eq!(plan.training.memory_limit, Some(24 << 30));
    let error = with_yaml("training: {memory_limit: 24}", large()).unwrap_err().to_string();
    assert!(error.contains("24GiB"), "{error}");
}

#[test]
fn recipes_follow_level_and_preset_and_explicit_settings_override_them() {
    let recipe = |text: &str, stage, fine| with_yaml(text, large()).unwrap().recipe(stage, fine);
    let basic = "training: {optimization_level: basic}, model: {preset: v2}";
    let basic = recipe(&format!("{{{basic}}}"), StageKind::Gpt, true);
    assert_eq!((basic.schedule.decay, basic.schedule.warmup), (Decay::Constant, 0), "as upstream");
    assert_eq!((basic.schedule.at(0), basic.clip, basic.ema_decay), (5e-6, None, None), "as upstream");

    let rate =
        |preset: &str| recipe(&format!("model: {{preset: {preset}}}"), StageKind::Gpt, false).schedule.rate;
    let rates = ["tiny", "small", "normal", "big", "v2"].map(rate);
    assert!(rates.windows(2).all(|pair| pair[0] > pair[1]), "{rates:?}");
    let enhanced = recipe("", StageKind::Gpt, false);
    assert!(
        matches!(enhanced.schedule.decay, Decay::Cosine { steps, floor: 0.1 } if steps == enhanced.steps)
    );
    assert!(enhanced.schedule.warmup > 0 && enhanced.clip == Some(1.0) && enhanced.ema_decay == Some(0.999));
    let written = "training: {learning_rate: 0.01, gpt_steps: 100, warmup_steps: 7, gradient_clip: 0, ema_decay: 0, \
                   label_smoothing: 0.2, schedule: constant}";
    let written = recipe(written, StageKind::Gpt, false);
    assert_eq!((written.schedule.rate, written.schedule.warmup, written.steps), (0.01, 7, 100));
    assert_eq!((written.clip, written.ema_decay, written.label_smoothing), (None, None, 0.2));
    assert_eq!(written.schedule.decay, Decay::Constant);
    assert_ne!(recipe("training: {gpt_steps: 100}", StageKind::Dvae, false).steps, 100);
    let short = recipe("training: {decoder_steps: 100}", StageKind::Decoder, false);
    assert_eq!((short.steps, short.schedule.warmup), (100, 5));
    assert_eq!(
        recipe("training: {optimization_level: experimental}", StageKind::Gpt, false).label_smoothing,
        0.05
    );
}

#[test]
fn every_path_default_choice_and_limit_in_the_table_resolves() {
    let mut names = std::collections::HashSet::new();
    for key in KEYS {
        assert!(Section::find(key.section().name()).is_some());
        for name in key.aliases.iter().copied().chain([key.name()]) {
            // `lookup` points from the wrong section to the right one, which needs unique names.
            assert!(names.insert(name), "{name} occurs twice");
            assert_eq!(Key::find_in(key.section(), name), Some(key));
        }
        let values: Vec<String> = match key.kind {
            ValueKind::Choice(choices) => choices.iter().map(|word| word.to_string()).collect(),
            ValueKind::Choices(choices) => vec![choices.join(","), choices[0].to_owned()],
            // Limits may contradict another default (a frame budget of 16); the types must hold all the same.
            ValueKind::Int { min, max } => vec![min.to_string(), max.to_string()],
            ValueKind::Float { min, max } => vec![min.to_string(), max.to_string()],
            ValueKind::Size { min, max } => vec![format!("{min}B"), format!("{max}B")],
            ValueKind::Bool => vec!["true".into(), "false".into()],
            ValueKind::Gpu => vec!["7".into()],
            ValueKind::Gpus => vec!["3,1".into()],
            ValueKind::Language => vec!["fa".into()],
            ValueKind::Text | ValueKind::Path => vec!["a b/c".into()],
            ValueKind::Paths => vec!["a b/c".into(), "[a, b, c d]".into(), r#"["a, b", "c"]"#.into()],
        };
        for value in values.into_iter().chain([key.default.to_owned()]) {
            let set = Flag::Set(format!("{}={value}", key.path));
            let plan = Plan::resolve(&Sources { command_line: vec![set], ..Sources::for_host(large()) });
            match plan {
                Ok(plan) => assert_eq!(
                    plan.value(key.path).unwrap().origin.to_string(),
                    format!("--set {}", key.path)
                ),
                Err(error) => assert!(error.to_string().contains("data.m"), "{}={value}: {error}", key.path),
            }
        }
    }
}

#[test]
fn init_writes_the_defaults_commented_out() {
    let text = template::yaml();
    assert_eq!(parse_yaml(Path::new("t"), text.as_bytes()).unwrap(), [], "commented settings have no effect");

    let active: String = text
        .lines()
        .map(|line| match line.trim_start().strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("  {setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let settings = parse_yaml(Path::new("t"), active.as_bytes()).unwrap();
    assert_eq!(settings.len(), KEYS.len());
    for setting in settings {
        assert_eq!(setting.value, setting.key.default_value(), "{}", setting.key.path);
    }
}

#[test]
fn every_setting_is_documented() {
    let page = template::markdown();
    for key in KEYS {
        assert!(page.contains(&format!("| `{}`", key.name())), "{}", key.path);
    }
}

#[test]
fn tuning_overrides_defaults_only_and_can_be_switched_off() {
    let host = HostResources { memory_bytes: Some(1 << 28), ..large() };
    let buffers = |text| {
        let plan = with_yaml(text, host.clone()).unwrap();
        let resolved = plan.value("data.buffer_size").unwrap().clone();
        (plan.data.buffer_size, matches!(resolved.origin, Origin::Tuned { .. }))
    };
    assert_eq!(buffers(""), (4, true));
    assert_eq!(buffers("data: {buffer_size: 5}"), (5, false));
    assert_eq!(buffers("data: {auto_tune_performance: false}"), (50, false));
}

#[test]
fn workers_are_limited_to_the_cores_with_a_note() {
    let host = HostResources { cores: 4, ..large() };
    let plan = with_yaml("data:\n  num_workers: 16\n", host.clone()).unwrap();
    let workers = plan.value("data.num_workers").unwrap();
    assert_eq!((plan.data.num_workers, &workers.value), (4, &Value::Int(4)));
    let capped = workers.capped.as_ref().unwrap();
    assert_eq!((&capped.requested, capped.reason.as_str()), (&Value::Int(16), "this machine has 4 cores"));
    assert_eq!(plan.notes, ["data.num_workers is 4 instead of 16: this machine has 4 cores"]);

    // The default of 18 was not requested: it is limited and shown, but without a note.
    let plan = with_yaml("data: {auto_tune_performance: no}", host).unwrap();
    assert_eq!(plan.data.num_workers, 4);
    assert!(plan.value("data.num_workers").unwrap().capped.is_some());
    assert_eq!(plan.notes, [""; 0]);
}

#[test]
fn settings_without_effect_are_noted() {
    let note = |text: &str, expected: &str| {
        let notes = with_yaml(text, large()).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains(expected), "{text}: {notes:?}");
    };
    note("data: {val_data: v, val_fraction: 0.1}", "data.val_data takes precedence");
    note("data: {frame_budget: 20000, batch_size: 8}", "data.frame_budget takes precedence");
    note("data: {quadratic_frames: 500}", "without data.frame_budget");
    note("data: {max_seconds: 30}", "already limits clips to 11.6 s");
    note("data: {preprocessing_mode: runtime, cache_dir: c}", "data.cache_dir stores only the vocabulary");
    note("data: {memory_cache_mb: 64}", "data.memory_cache_mb has no effect with a cache");
    note("data: {native_loading: false, memory_cache_mb: 64}", "caches nothing");
    note("data: {model_start_delay: 1}", "without data.data_gpu");
    note("data: {prefetch_to_gpu: false, enhanced_gpu_prefetch: true}", "data.prefetch_to_gpu is off");
    note("data: {prefetch_buffer_size: 60}", "no more than 50 batches");
    note("training: {early_stop_patience: 3, validate_every: 0}", "training.validate_every is 0");
    note(
        "training: {enable_eager_debug: true, enable_graph_mode: true}",
        "training.enable_graph_mode has no effect",
    );
    assert_eq!(with_yaml("data: {data_gpu: 0, model_gpu: '1'}", large()).unwrap().notes, [""; 0]);
}

#[test]
fn a_plan_is_stored_as_json_with_unset_values_as_null() {
    let json = serde_json::to_value(Plan::resolve(&Sources::for_host(large())).unwrap()).unwrap();
    assert_eq!(json["data"]["train_data"], serde_json::Value::Null);
    assert_eq!(json["training"]["visible_gpus"], serde_json::Value::Null);
    assert_eq!(json["data"]["preprocessing_mode"], "auto");
    assert_eq!(json.as_object().unwrap().len(), 3, "origins and notes are not part of the plan");
}

/// A random valid value of a setting, as text.
fn text_for(key: &'static Key) -> BoxedStrategy<String> {
    match key.kind {
        ValueKind::Bool => any::<bool>().prop_map(|value| value.to_string()).boxed(),
        ValueKind::Int { min, max } => (min..=max).prop_map(|value| value.to_string()).boxed(),
        ValueKind::Float { min, max } => (min..=max).prop_map(|value| format!("{value:?}")).boxed(),
        ValueKind::Size { min, max } => (min..=max).prop_map(|value| format!("{value}B")).boxed(),
        ValueKind::Choice(choices) => prop::sample::select(choices).prop_map(str::to_owned).boxed(),
        ValueKind::Choices(choices) => {
            prop::sample::subsequence(choices, 1..=choices.len()).prop_map(|c| c.join(",")).boxed()
        }
        ValueKind::Text => "[a-zA-Z0-9:#'\"{} -]{0,20}[a-z]".boxed(),
        ValueKind::Path => "[a-zA-Z0-9/. -]{0,20}[a-z]".boxed(),
        ValueKind::Paths => {
            let one = "[a-zA-Z0-9/.,-]{0,20}[a-z]";
            prop_oneof![one, "x[a-z]{3}".prop_map(|a| format!("[{a}, y{a}, \"z, {a}\"]"))].boxed()
        }
        ValueKind::Language => "[a-z]{2}(-[a-z]{2})?".boxed(),
        ValueKind::Gpu => (0u32..8).prop_map(|id| id.to_string()).boxed(),
        ValueKind::Gpus => {
            prop::sample::subsequence(vec!["0", "1", "2", "3"], 1..4).prop_map(|ids| ids.join(",")).boxed()
        }
    }
}

/// A setting with an optional value for each of the four layers.
fn layers() -> impl Strategy<Value = (&'static Key, [Option<String>; 4])> {
    (0..KEYS.len()).prop_flat_map(|index| {
        let key = &KEYS[index];
        let text = || prop::option::of(text_for(key));
        (Just(key), [text(), text(), text(), text()])
    })
}

proptest! {
    #[test]
    fn the_layer_of_highest_precedence_wins((key, values) in layers()) {
        let [tuned, file, environment, command_line] = &values;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.yaml");
        let mut sources = Sources { tuned: Vec::new(), ..Sources::for_host(large()) };
        if let Some(value) = tuned {
            sources.tuned = vec![Tuned { path: key.path, value: value.clone(), reason: "test".into() }];
        }
        if let Some(text) = file {
            // `to_yaml` adds the quotes that a list of GPUs needs in a file.
            let value = key.read_text(text).unwrap().to_yaml();
            std::fs::write(&path, format!("{}:\n  {}: {value}\n", key.section().name(), key.name())).unwrap();
            sources.file = Some(path.clone());
        }
        if let Some(value) = environment {
            sources.environment = vec![(key.variable().into(), value.into())];
        }
        if let Some(value) = command_line {
            sources.command_line = vec![Flag::Set(format!("{}={value}", key.path))];
        }
        let merged = sources.merge().unwrap().values;
        let winner = merged.iter().find(|assignment| assignment.key == key).unwrap();

        // The switch turns tuning off, so tuning cannot set the switch itself.
        let origins = [
            Origin::CommandLine { flag: format!("--set {}", key.path) },
            Origin::Environment { name: key.variable() },
            Origin::File { path, line: 2 },
            Origin::Tuned { reason: "test".into() },
        ];
        let switched_off = key.path == "data.auto_tune_performance"
            && [command_line, environment, file].into_iter().flatten().next().is_some_and(|text| text == "false");
        let expected = [command_line, environment, file, tuned].into_iter().zip(origins)
            .find_map(|(text, origin)| text.clone().map(|text| (text, origin)));
        match expected {
            Some((text, origin)) if !switched_off || !matches!(origin, Origin::Tuned { .. }) => {
                prop_assert_eq!(&winner.origin, &origin);
                prop_assert_eq!(&winner.value, &key.read_text(&text).unwrap());
            }
            _ => prop_assert_eq!(&winner.value, &key.default_value()),
        }
        prop_assert_eq!(merged.len(), KEYS.len());
        for other in merged.iter().filter(|assignment| assignment.key != key) {
            prop_assert_eq!(&other.origin, &Origin::Default);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(
                prop::sample::select(&[
                    "data", "training", "batch_size", ":", ": ", "\n", "  ", "- ", "[", "]", "{", "}", "&a ", "*a",
                    "!t ", "\"", "'", "|", ">", "#", "---\n", "...\n", "<<", "?", ",", "1", "\t", "\u{feff}", "%", "é",
                ][..]),
                0..60,
            ).prop_map(|words| words.concat().into_bytes()),
        ]
    ) {
        match parse_yaml(Path::new("f"), &bytes) {
            Ok(_) => {}
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
