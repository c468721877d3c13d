//! The rules over many machines, the forecast compared with a real stage, and the choice of a sweep.

use crate::small::{CLIPS, Clips, dvae_settings, gpt_settings, plan as small_plan, stage};
use myxtts_data::tokenizer::{self, TrainOptions};
use myxtts_model::dvae::DvaeSizes;
use myxtts_run::config::{Flag, HostResources, Sources, Tuned};
use myxtts_run::plan::{Plan, StageKind, TUNABLE};
use myxtts_run::progress::Silent;
use myxtts_tensor::Control;
use myxtts_train::bench::timed_stage::SegmentStep;
use myxtts_train::pipeline::Request;
use myxtts_train::replica_slice::Replicas;
use myxtts_train::stage_context::StageContext;
use myxtts_train::stages::RecordSplit;
use myxtts_train::stages::gpt::GptForecast;
use myxtts_train::training_data::Corpus;
use myxtts_train::tune::facts::{Facts, GpuMemory};
use myxtts_train::tune::lengths::Lengths;
use myxtts_train::tune::race::{self};
use myxtts_train::tune::rules::{Memory, budget, choose, first_rows};
use myxtts_train::tune::sweep;
use myxtts_train::{ComputeDevice, Model, TrainError, tune};
use std::sync::Arc;

const GB: u64 = 1_000_000_000;

/// A network of the given bytes, plus bytes per row.
struct TestMemory {
    held: u64,
    row: u64,
}

impl Memory for TestMemory {
    fn planned(&self, rows: usize, accumulate: usize) -> Result<u64, TrainError> {
        // The programs of a step of several batches have separate inputs.
        Ok(self.held + rows as u64 * self.row + accumulate.min(3) as u64 * 1_000_000)
    }

    fn waiting(&self, rows: usize) -> Result<u64, TrainError> {
        Ok(rows as u64 * 170_000)
    }
}

/// About the memory of XTTS-v2's GPT for clips of 11 s, and of a small one.
const LARGE: TestMemory = TestMemory { held: 9 * GB, row: 350_000_000 };
const SMALL: TestMemory = TestMemory { held: GB, row: 40_000_000 };

fn gpu(total: u64, cores: usize) -> Facts {
    // A tenth of a gigabyte of other programs, and the driver's own.
    let free = total - total.min(700_000_000);
    Facts { gpu: Some(GpuMemory { total, free }), replicas: 1, cores, ram_free: Some(64 * GB) }
}

fn cpu(cores: usize) -> Facts {
    Facts { gpu: None, replicas: 1, cores, ram_free: Some(16 * GB) }
}

/// A plan with these settings; the others are to be tuned.
fn plan(set: &[&str]) -> Plan {
    let host = HostResources { cores: 64, memory_bytes: None };
    let command_line = set.iter().map(|said| Flag::Set((*said).to_owned())).collect();
    let mut plan = Plan::resolve(&Sources { command_line, ..Sources::for_host(host) }).unwrap();
    plan.begin_tuning();
    plan
}

fn value(chosen: &[Tuned], path: &str) -> Option<usize> {
    chosen.iter().find(|tuned| tuned.path == path).map(|tuned| tuned.value.parse().unwrap())
}

/// Batch size and batches per step.
fn batch(facts: &Facts, set: &[&str], memory: &TestMemory) -> (usize, usize) {
    let chosen = choose(facts, &plan(set), Some(memory)).unwrap();
    let of = |path, otherwise| value(&chosen, path).unwrap_or(otherwise);
    (of("data.batch_size", 0), of("training.gradient_accumulation_steps", 1))
}

#[test]
fn batches_fit_the_machine_and_steps_keep_their_size() {
    // (machine, large network, small network): batch size and batches per step.
    for (facts, large, small) in [
        (gpu(141 * GB, 16), (64, 1), (64, 1)),
        (gpu(25 * GB, 16), (32, 2), (64, 1)),
        (gpu(16 * GB, 8), (12, 4), (48, 1)),
        (gpu(12 * GB, 8), (3, 16), (48, 1)),
        (gpu(8 * GB, 8), (1, 32), (32, 1)),
        (cpu(2), (1, 16), (16, 1)),
        (cpu(16), (1, 16), (16, 1)),
    ] {
        assert_eq!(batch(&facts, &[], &LARGE), large, "{facts:?}");
        assert_eq!(batch(&facts, &[], &SMALL), small, "{facts:?}");
        let (rows, parts) = batch(&facts, &[], &LARGE);
        assert_eq!(rows * parts, first_rows(&facts), "{facts:?}");
    }
}

#[test]
fn choices_are_bounded_and_grow_with_memory() {
    for memory in [&SMALL, &LARGE] {
        let mut last = 0;
        for free in (10..24).map(|n| n * GB) {
            let total = 24 * GB;
            let facts = Facts { gpu: Some(GpuMemory { total, free }), ..gpu(total, 16) };
            let chosen = choose(&facts, &plan(&[]), Some(memory)).unwrap();
            let rows = value(&chosen, "data.batch_size").unwrap();
            assert!(rows >= last, "{rows} rows with {free} bytes, {last} with less");
            last = rows;
            let parts = value(&chosen, "training.gradient_accumulation_steps").unwrap_or(1);
            let most = budget(&facts, None).unwrap();
            assert!(most < free, "there must be a margin");
            let planned = memory.planned(rows, parts).unwrap() + 4 * memory.waiting(rows).unwrap();
            assert!(planned <= most || rows == 1, "{planned} bytes planned of {most}");
            let ready = value(&chosen, "data.prefetch_buffer_size").unwrap() as u64;
            assert!((2..=12).contains(&ready), "{ready}");
            assert!(ready == 2 || ready * memory.waiting(rows).unwrap() <= total / 32);
        }
    }
    // The number of clips per step grows with the GPU as well.
    let steps = [8, 12, 24, 80, 141].map(|n| first_rows(&gpu(n * GB, 16)));
    assert_eq!(steps, [32, 48, 64, 64, 64]);
    // With little RAM buffers shrink, but to no less than two.
    for ram in [100_000_000, GB, 8 * GB] {
        let facts = Facts { ram_free: Some(ram), ..gpu(141 * GB, 16) };
        let chosen = choose(&facts, &plan(&[]), Some(&SMALL)).unwrap();
        let (ready, all) = (
            value(&chosen, "data.prefetch_buffer_size").unwrap(),
            value(&chosen, "data.buffer_size").unwrap(),
        );
        let bytes = SMALL.waiting(64).unwrap();
        assert!(ready >= 2 && all >= ready && all <= 50, "{ready} of {all}");
        assert!(ready == 2 || ready as u64 * bytes <= ram / 16, "{ready} with {ram} bytes");
        assert!(all == ready || all as u64 * bytes <= ram / 8, "{all} with {ram} bytes");
    }
}

#[test]
fn the_launching_thread_keeps_its_core_and_cpu_training_all_but_one() {
    for (facts, expected) in [
        (gpu(24 * GB, 1), 1),
        (gpu(24 * GB, 2), 1),
        (gpu(24 * GB, 16), 15),
        (gpu(24 * GB, 128), 18),
        (cpu(2), 1),
        (cpu(16), 2),
    ] {
        let chosen = choose(&facts, &plan(&[]), None).unwrap();
        assert_eq!(value(&chosen, "data.num_workers"), Some(expected), "{facts:?}");
        assert_eq!(value(&chosen, "data.batch_size"), None, "without a memory plan no batch size is chosen");
    }
    let chosen = choose(&cpu(2), &plan(&[]), Some(&SMALL)).unwrap();
    assert_eq!(value(&chosen, "data.prefetch_buffer_size"), Some(4));
    assert_eq!(value(&chosen, "data.buffer_size"), Some(8));
}

#[test]
fn settings_of_the_user_stay_and_the_rest_is_fitted_around_them() {
    for setting in TUNABLE {
        for facts in [gpu(12 * GB, 8), cpu(2)] {
            let chosen = choose(&facts, &plan(&[&format!("{setting}=5")]), Some(&LARGE)).unwrap();
            assert_eq!(value(&chosen, setting), None, "{setting} was set");
            // Accumulation must not change a batch size that the user set.
            if setting == "data.batch_size" {
                assert_eq!(value(&chosen, "training.gradient_accumulation_steps"), None);
            }
        }
    }
    // With more batches ready than the rules choose, as many have to be in preparation.
    let deep = choose(&cpu(2), &plan(&["data.prefetch_buffer_size=40"]), Some(&SMALL)).unwrap();
    assert_eq!(value(&deep, "data.buffer_size"), Some(40));
    // Five batches per step are the user's choice: only the batch size follows the memory.
    let facts = gpu(25 * GB, 16);
    assert_eq!(batch(&facts, &["training.gradient_accumulation_steps=5"], &LARGE), (32, 1));
    assert_eq!(batch(&gpu(141 * GB, 16), &["training.memory_limit=12GiB"], &LARGE), (8, 8));
    let mut off = plan(&["data.auto_tune_performance=false"]);
    assert_eq!(choose(&facts, &off, Some(&LARGE)).unwrap(), []);
    off.finish_tuning(&choose(&facts, &off, Some(&LARGE)).unwrap());
    assert_eq!(off.data.batch_size, 56);
}

#[test]
fn replicas_share_a_batch_evenly() {
    for (replicas, expected) in [(1, 64), (2, 64), (3, 72), (4, 64), (5, 80), (7, 84), (8, 64)] {
        let facts = Facts { replicas, ..gpu(141 * GB, 16) };
        let (rows, parts) = batch(&facts, &[], &SMALL);
        assert_eq!((rows, parts), (expected, 1), "{replicas} replicas");
        let (rows, parts) = batch(&Facts { replicas, ..gpu(24 * GB, 16) }, &[], &LARGE);
        assert!(rows.is_multiple_of(replicas) && rows * parts == expected, "{rows} x {parts}");
    }
}

#[test]
fn tuned_settings_are_reported_with_their_reasons() {
    let mut tuned = plan(&["data.num_workers=3"]);
    tuned.finish_tuning(&choose(&gpu(25 * GB, 16), &tuned, Some(&LARGE)).unwrap());
    let line = tune::line(&tuned.tuning.as_ref().unwrap().changed).unwrap();
    for part in
        ["data.batch_size = 32 (64 would need 29.3 GiB of 20.4 GiB, this one 18.8 GiB)", "still has 64 clips"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("num_workers") && !line.contains("prefetch"), "{line}");
    assert_eq!(tune::line(&[]), None);
}

/// The forecast matches the built stage: weights, the inputs of every program, the activations of the largest.
#[test]
fn the_forecast_equals_the_memory_of_the_built_stage() {
    let records: Vec<u32> = (0..CLIPS as u32 - 1).collect();
    let sides = RecordSplit { train: &records, validation: &[CLIPS as u32 - 1] };
    let source = Clips::default();
    // With the lengths of the codes that the stage gets.
    let lengths = Lengths::new(&source, DvaeSizes::v2());
    for accumulate in [1, 2, 3] {
        let plan = small_plan(StageKind::Gpt, 4);
        let recipe = plan.recipe(StageKind::Gpt, false);
        let forecast = GptForecast::new(
            gpt_settings(accumulate),
            recipe,
            Replicas { machine: ComputeDevice::CPU, count: 1 },
            &lengths,
            sides,
        );
        let mut stage = stage(StageKind::Gpt, &plan, Clips::default(), accumulate, ComputeDevice::CPU);
        let queued = stage.submit(0, &Control::default()).unwrap();
        stage.wait(queued.ticket).unwrap();
        stage.validate().unwrap().unwrap();
        let planned = forecast.planned(2, accumulate as usize).unwrap();
        assert_eq!(planned, stage.engine().memory().total() as u64, "{accumulate} batches in a step");
        assert!(forecast.planned(4, accumulate as usize).unwrap() > planned);
    }
    // Two replicas have half of the rows each.
    let recipe = small_plan(StageKind::Gpt, 4).recipe(StageKind::Gpt, false);
    let of = |replicas, rows| {
        let forecast = GptForecast::new(
            gpt_settings(1),
            recipe,
            Replicas { machine: ComputeDevice::CPU, count: replicas },
            &lengths,
            RecordSplit { train: &records, validation: &[] },
        );
        (forecast.planned(rows, 1).unwrap(), forecast.waiting(rows).unwrap())
    };
    assert_eq!(of(2, 4).1, of(1, 2).1);
    assert!(of(2, 4).0 < of(1, 4).0);
}

#[test]
fn a_sweep_chooses_the_smallest_that_is_fast_enough() {
    let choose = |rates: &[(usize, f64)]| sweep::smallest_near_best(rates.iter().copied());
    assert_eq!(choose(&[(8, 50.0), (16, 98.1), (32, 100.0), (64, 99.0)]), Some(16));
    assert_eq!(choose(&[(8, 97.9), (16, 100.0)]), Some(16));
    assert_eq!(choose(&[(32, 98.1), (8, 100.0), (16, 90.0)]), Some(8));
    assert_eq!(choose(&[]), None);
    assert_eq!([4, 16, 24, 48, 64, 128].map(|batch| sweep::accumulate(64, batch)), [16, 4, 3, 1, 1, 1]);
    assert_eq!(sweep::workers(&gpu(24 * GB, 16)), [1, 2, 4, 8, 15]);
    assert_eq!(sweep::workers(&cpu(2)), [1, 2]);
    assert_eq!(sweep::batches(&cpu(2), 20), [4, 8, 16]);
    assert_eq!(sweep::batches(&gpu(24 * GB, 16), 1000).last(), Some(&128));
}

/// Candidates that differ by a known share, on a machine that is up to twice as slow from one round to the next, with rows
/// of many lengths and occasional disturbed segments.
fn raced(costs: &[f64], rounds: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut chance = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let rounds: Vec<Vec<Vec<SegmentStep>>> = (0..rounds)
        .map(|_| {
            let machine = 1.0 + chance();
            let segment = |(way, cost): (usize, &f64)| {
                let rows = 4 << way;
                let hit = if chance() < 0.1 { 3.0 } else { 1.0 };
                let steps = (0..32 / rows).map(|_| {
                    let places = 40.0 + 200.0 * chance();
                    let seconds = rows as f64 * (2.0 + 0.01 * places) * cost * machine * hit;
                    SegmentStep { rows: rows as f64, places, seconds: seconds * (0.95 + 0.1 * chance()) }
                });
                steps.collect()
            };
            costs.iter().enumerate().map(segment).collect()
        })
        .collect();
    race::rates(&rounds)
}

#[test]
fn a_race_finds_the_fastest_on_a_machine_of_varying_speed() {
    for seed in 0..200 {
        let costs = [1.0, 0.92, 0.97, 1.05];
        let rates = raced(&costs, 30, seed);
        for (cost, rate) in costs.iter().zip(&rates) {
            let relative = rate / rates[1] * cost / costs[1];
            assert!((relative - 1.0).abs() < 0.05, "seed {seed}: {relative} of {rates:?}");
        }
        assert!(rates[1] == rates.iter().copied().fold(0.0, f64::max), "seed {seed}: {rates:?}");
    }
    // Clips per second, of a machine that is on average 1.5 times as slow as at its best.
    let rate = raced(&[1.0], 300, 1)[0];
    assert!((1.0 / rate / (2.0 + 0.01 * 140.0) - 1.5).abs() < 0.1, "{rate}");
}

#[test]
fn a_race_runs_as_many_candidates_at_once_as_fit_in_memory() {
    let groups = |at_most| race::memory_groups(&[1, 2, 4, 8, 16], |&way| way as u64, at_most);
    assert_eq!(groups(31), [vec![1, 2, 4, 8, 16]]);
    assert_eq!(groups(17), [vec![1, 2, 4, 8], vec![1, 16]]);
    // Two at a time if not even they fit: alone there would be nothing to compare with.
    assert_eq!(groups(0), [[1, 2], [1, 4], [1, 8], [1, 16]]);
    assert_eq!(race::memory_groups(&[] as &[u64], |&way| way, 10), Vec::<Vec<u64>>::new());
    assert_eq!(race::memory_groups(&[7], |_| 100, 10), [[7]]);
}

#[test]
fn a_batch_that_takes_all_memory_of_the_machine_was_tried() {
    use myxtts_train::tune::host::{Host, StageBatches, check_host_memory, line};
    let need = |rows: usize| Ok((rows as u64) << 30);
    let host = Host { total: Some(20 << 30), free: Some(10 << 30) };
    let gpt = |rows, replicas| StageBatches { stage: StageKind::Gpt, rows, replicas, by_frames: false };
    let error = check_host_memory(gpt(4096, 1), host, need).unwrap_err();
    assert_eq!(error.exit(), myxtts_run::exit::Exit::Usage);
    assert!(
        error.to_string().contains("4096.0 GiB") && error.to_string().contains("data.batch_size = 16 fits"),
        "{error}"
    );
    // Rows that can be split over the replicas.
    assert!(
        check_host_memory(gpt(36, 3), host, need)
            .unwrap_err()
            .to_string()
            .contains("data.batch_size = 18 fits")
    );
    let error = check_host_memory(gpt(64, 1), host, |_| Ok(1 << 40)).unwrap_err();
    assert!(error.to_string().contains("no batch size fits"), "{error}");
    let said = |rows| line(&[(gpt(rows, 1), check_host_memory(gpt(rows, 1), host, need).unwrap())], host);
    let tight = said(12);
    assert!(
        tight.contains("GPT 12.0 GiB; 10.0 GiB are free") && tight.contains("lower data.batch_size"),
        "{tight}"
    );
    assert!(!said(4).contains("lower"));
    assert!(check_host_memory(gpt(1 << 20, 1), Host::default(), need).is_ok());
}

/// The synthetic clips as a corpus.
fn corpus() -> Corpus {
    let tokenizer = tokenizer::train(
        [("en", "hello world, this is a voice")],
        &TrainOptions { vocab_size: 64, ..Default::default() },
    );
    Corpus {
        source: Arc::new(Clips::default()),
        train: (0..CLIPS as u32 - 1).collect(),
        validation: vec![CLIPS as u32 - 1],
        tokenizer: tokenizer.unwrap(),
        sentences: Vec::new(),
        data_side: None,
    }
}

/// The message named `data.batch_size`, which a frame budget replaces, and said that no batch size fits.
#[test]
fn a_frame_budget_that_takes_all_memory_was_blamed_on_the_batch_size() {
    use myxtts_train::tune::host::{Host, StageBatches, check_host_memory, host_memory, line};
    let corpus = corpus();
    let host = Host { total: Some(4 << 30), free: Some(2 << 30) };
    let planned = |frames: usize| {
        let set = [&format!("data.frame_budget={frames}")[..], "model.preset=small"];
        let request = Request { only: Some(StageKind::Gpt), from: None };
        host_memory(&plan(&set), &request, &corpus, &[ComputeDevice::CPU], host)
    };
    let error = planned(4_000_000).unwrap_err();
    assert_eq!(error.exit(), myxtts_run::exit::Exit::Usage);
    let error = error.to_string();
    assert!(error.starts_with("data.frame_budget = 4000000 is planned to take"), "{error}");
    let fits = error.split("data.frame_budget = ").nth(2).unwrap_or_else(|| panic!("{error}"));
    let fits: usize = fits.split(' ').next().unwrap().parse().unwrap();
    assert!((16..4_000_000).contains(&fits) && !error.contains("batch_size"), "{error}");
    planned(fits).unwrap();
    // The smallest budget still has the longest clip.
    let frames = StageBatches { stage: StageKind::Gpt, rows: 1000, replicas: 1, by_frames: true };
    let error = check_host_memory(frames, host, |_| Ok(1 << 40)).unwrap_err().to_string();
    assert!(error.contains("no data.frame_budget fits: lower data.max_seconds"), "{error}");
    let tight = line(&[(frames, 3 << 30)], host);
    assert!(tight.contains("or lower data.frame_budget"), "{tight}");
}

/// The forecast had no heads, with weights that every corpus of little speech gets.
#[test]
fn heads_against_overfitting_were_left_out_of_the_forecast() {
    let (corpus, folder) = (corpus(), tempfile::tempdir().unwrap());
    let mut before = 0;
    for weights in [[0, 0], [1, 0], [1, 1]] {
        let [aligned, acoustic] = weights;
        let set = [
            "model.preset=tiny",
            "data.batch_size=2",
            "data.dvae_batch_size=2",
            &format!("training.alignment_weight={aligned}"),
            &format!("training.acoustic_weight={acoustic}"),
        ];
        let (plan, cpu) = (plan(&set), ComputeDevice::CPU);
        let planned = tune::with_forecast(&plan, &corpus, &[cpu], &Model::default(), false, |memory| {
            memory.planned(2, 1)
        });
        let context = StageContext::of(&plan, &corpus, cpu, folder.path(), &Silent);
        let mut model = context.untrained(StageKind::Gpt).unwrap();
        let recipe = plan.recipe(StageKind::Gpt, false);
        let mut stage = context.stage(StageKind::Gpt, &recipe, &mut model).unwrap();
        let queued = stage.submit(0, &Control::default()).unwrap();
        stage.wait(queued.ticket).unwrap();
        stage.validate().unwrap().unwrap();
        let (planned, taken) = (planned.unwrap(), stage.engine().memory().total() as u64);
        assert_eq!(planned, taken, "weights {weights:?}");
        assert!(planned > before, "a head takes no memory");
        before = planned;
    }
}

#[test]
fn a_decoder_stage_above_the_memory_limit_is_refused_by_the_name_of_its_setting() {
    let (corpus, folder) = (corpus(), tempfile::tempdir().unwrap());
    let built = |rows: &str| {
        let common = ["model.preset=tiny", "data.batch_size=2", "data.dvae_batch_size=2"];
        let plan = plan(&[&common[..], &["training.memory_limit=256MiB", rows]].concat());
        let context = StageContext::of(&plan, &corpus, ComputeDevice::CPU, folder.path(), &Silent);
        let mut model = context.untrained(StageKind::Decoder).unwrap();
        context.stage(StageKind::Decoder, &plan.recipe(StageKind::Decoder, false), &mut model).map(|_| ())
    };
    built("data.decoder_batch_size=2").unwrap();
    let error = built("data.decoder_batch_size=4096").unwrap_err();
    assert_eq!(error.exit(), myxtts_run::exit::Exit::Usage);
    let error = error.to_string();
    assert!(
        error.starts_with("the stage `decoder` needs") && error.contains("lower data.decoder_batch_size"),
        "{error}"
    );
}

#[test]
fn a_gpt_stage_above_the_memory_limit_is_refused_by_the_name_of_its_setting() {
    let (corpus, folder) = (corpus(), tempfile::tempdir().unwrap());
    let free = plan(&["model.preset=tiny", "data.batch_size=2", "data.dvae_batch_size=2"]);
    let before = StageContext::of(&free, &corpus, ComputeDevice::CPU, folder.path(), &Silent);
    let mut model = before.untrained(StageKind::Gpt).unwrap();
    let mut built = |limit| {
        let mut plan = free.clone();
        plan.training.memory_limit = limit;
        let context = StageContext::of(&plan, &corpus, ComputeDevice::CPU, folder.path(), &Silent);
        let stage = context.stage(StageKind::Gpt, &plan.recipe(StageKind::Gpt, false), &mut model)?;
        Ok::<_, TrainError>((stage.description().join("\n"), stage.engine().memory().total() as u64))
    };
    let (described, need) = built(None).unwrap();
    assert!(!described.contains("recomputed"), "{described}");
    let error = built(Some(1)).unwrap_err().to_string();
    assert!(error.contains("lower data.batch_size"), "{error}");
    // One byte too few: blocks are recomputed, or it is refused; the limit is never ignored.
    match built(Some(need - 1)) {
        Ok((described, taken)) => assert!(described.contains("recomputed") && taken < need, "{described}"),
        Err(error) => assert!(error.to_string().contains("lower data.batch_size"), "{error}"),
    }
}

/// Only the GPT's batches were planned: those of the other stages took all memory, after hours of training.
#[test]
fn batches_of_the_other_stages_took_all_memory_of_the_machine() {
    use myxtts_train::tune::host::{Host, host_memory};
    let corpus = corpus();
    let host = Host { total: Some(4 << 30), free: Some(2 << 30) };
    let planned = |set: &[&str], only| {
        let set = [&["model.preset=tiny", "data.batch_size=2"], set].concat();
        let request = Request { only, from: None };
        host_memory(&plan(&set), &request, &corpus, &[ComputeDevice::CPU], host)
    };
    let line = planned(&[], None).unwrap().unwrap();
    let named = ["DVAE ", "GPT ", "decoder ", "2.0 GiB are free"];
    assert!(named.iter().all(|stage| line.contains(stage)), "{line}");
    let line = planned(&["data.decoder_batch_size=4096"], Some(StageKind::Dvae)).unwrap().unwrap();
    assert!(!line.contains("decoder"), "the stage that runs alone: {line}");
    for (stage, setting) in
        [(StageKind::Dvae, "data.dvae_batch_size"), (StageKind::Decoder, "data.decoder_batch_size")]
    {
        // A window of the DVAE is small: this needs a network larger than the tiny one.
        let set = [&format!("{setting}=4096")[..], "model.preset=small"];
        let error = planned(&set, Some(stage)).unwrap_err();
        assert_eq!(error.exit(), myxtts_run::exit::Exit::Usage);
        let error = error.to_string();
        assert!(error.contains(&format!("{setting} = 4096 is planned to take")), "{error}");
        let fits = error.split(&format!("{setting} = ")).nth(2).unwrap_or_else(|| panic!("{error}"));
        let fits: usize = fits.split(' ').next().unwrap().parse().unwrap();
        assert!((1..4096).contains(&fits), "{error}");
        planned(&[&format!("{setting}={fits}"), set[1]], Some(stage)).unwrap();
    }
}

/// The memory forecast of both stages matches what their engines allocate.
#[test]
fn the_forecast_of_the_other_stages_equals_their_memory() {
    use myxtts_train::stages::dvae;
    let (plan, replicas) =
        (small_plan(StageKind::Dvae, 3), Replicas { machine: ComputeDevice::CPU, count: 1 });
    let made = stage(StageKind::Dvae, &plan, Clips::default(), 1, ComputeDevice::CPU);
    let settings = dvae_settings();
    let planned = dvae::forecast::planned(&settings, &plan.recipe(StageKind::Dvae, false), replicas).unwrap();
    let taken = made.engine().memory().total() as u64;
    let batch = 2 * 16 * 80 * 4;
    assert!((taken..=taken + 64 * batch).contains(&planned), "{planned} bytes planned, {taken} taken");
}
