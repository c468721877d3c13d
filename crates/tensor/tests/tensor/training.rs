//! Whole training steps: a small GPT that learns, and the invariants that must hold on every device.

use crate::gpu;
use crate::network::{Build, Gpt, Sizes, Step};
use cudarc::driver::result;
use myxtts_tensor::collective::Replica;
use myxtts_tensor::engine::{Arena, EngineState, Streams};
use myxtts_tensor::op::{CpuIo, CudaIo, Op};
use myxtts_tensor::ops::adamw::AdamW;
use myxtts_tensor::random::Stream;
use myxtts_tensor::tape::{Gradients, Spec};
use myxtts_tensor::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SMALL: Sizes = Sizes { layers: 2, width: 64, heads: 2, vocabulary: 40, batch: 4, time: 24 };

fn engine(gpt: &Gpt, device: Device, precision: Precision, mode: Mode) -> Engine {
    engine_on(gpt, device, precision, mode, Streams::One)
}

fn engine_on(gpt: &Gpt, device: Device, precision: Precision, mode: Mode, streams: Streams) -> Engine {
    let training = Training::AdamWithAverage;
    let options = EngineOptions { training, mode, streams, seed: 3, ..EngineOptions::default() };
    Engine::new(device, Arc::clone(&gpt.layout), precision, options).unwrap()
}

fn with_average() -> Build {
    Build { adam: AdamW { average: true, ..AdamW::default() }, ..Build::default() }
}

/// Sequences with a rule, so that there is something to learn: each id follows from the previous one. One in five
/// targets is random, so that the loss has a floor above zero and losses can be compared.
fn training_batch(sizes: Sizes, batch: u64) -> (Vec<i32>, Vec<i32>) {
    let mut random = Stream::new(1000 + batch);
    let (mut ids, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..sizes.batch {
        let (mut id, step) = (random.below(sizes.vocabulary), 1 + random.below(5));
        for _ in 0..sizes.time {
            ids.push(id as i32);
            id = (id * 3 + step) % sizes.vocabulary;
            let chance = random.uniform() < 0.2;
            targets.push(if chance { random.below(sizes.vocabulary) } else { id } as i32);
        }
    }
    (ids, targets)
}

fn feed(engine: &Engine, program: &Program, step: Step, (ids, targets): &(Vec<i32>, Vec<i32>)) {
    engine.write_i32(program, step.ids, ids).unwrap();
    engine.write_i32(program, step.targets, targets).unwrap();
}

fn control(step: u64) -> Control {
    Control { rate: 3e-3, clip: 1.0, average: 0.99, seed: step, ..Control::default() }
}

/// All state a step may change.
fn all_state(engine: &Engine) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average]
        .map(|arena| engine.read_arena(arena).unwrap().iter().map(|x| x.to_bits()).collect())
        .to_vec();
    all.push(vec![engine.state().unwrap().steps as u32]);
    all
}

fn train(
    device: Device,
    precision: Precision,
    mode: Mode,
    build: Build,
    steps: u64,
) -> (Vec<f32>, Vec<Vec<u32>>) {
    let gpt = Gpt::new(SMALL);
    let engine = engine(&gpt, device, precision, mode);
    train_with(&gpt, engine, build, steps)
}

fn train_with(gpt: &Gpt, mut engine: Engine, build: Build, steps: u64) -> (Vec<f32>, Vec<Vec<u32>>) {
    let precision = engine.precision();
    let (tape, step) = gpt.step(precision, build);
    let mut program = engine.load(tape).unwrap();
    let mut losses = Vec::new();
    for i in 0..steps {
        feed(&engine, &program, step, &training_batch(SMALL, i));
        let report = engine.run(&mut program, &control(i)).unwrap();
        assert!(report.good && report.steps == i + 1, "{report:?}");
        losses.push(report.loss);
    }
    (losses, all_state(&engine))
}

#[test]
fn a_small_gpt_learns_on_the_cpu() {
    let (losses, _) = train(Device::Cpu, Precision::F32, Mode::Captured, with_average(), 100);
    assert!(losses[0] > 3.5 && losses[99] < 0.85 * losses[0], "{losses:?}");
}

/// A gradient far beyond the limit is dropped; one that is only too long is clipped.
#[test]
fn an_exploded_gradient_is_dropped() {
    let gpu = gpu::present("an_exploded_gradient_is_dropped");
    for device in [Device::Cpu].into_iter().chain(gpu.is_some().then_some(Device::Cuda(0))) {
        let moved = |clip: f32| {
            let gpt = Gpt::new(SMALL);
            let mut engine = engine(&gpt, device, Precision::F32, Mode::Captured);
            let (tape, step) = gpt.step(Precision::F32, with_average());
            let mut program = engine.load(tape).unwrap();
            feed(&engine, &program, step, &training_batch(SMALL, 0));
            let report = engine.run(&mut program, &Control { clip, ..control(0) }).unwrap();
            assert!(report.good && report.steps == 1, "{device}: {report:?}");
            let moments = engine.read_arena(Arena::Moment1).unwrap();
            (report.norm, moments.iter().map(|x| x.abs()).fold(0.0, f32::max))
        };
        let (norm, _) = moved(0.0);
        assert!(moved(norm / 900.0).1 > 0.0, "{device}: a long gradient is clipped");
        assert!(moved(norm / 1100.0).1 == 0.0, "{device}: an explosion changes no weights");
    }
}

#[test]
fn checked_mode_changes_no_bit_and_names_the_first_nonfinite_output() {
    let plain = train(Device::Cpu, Precision::F32, Mode::Captured, with_average(), 3);
    assert!(plain == train(Device::Cpu, Precision::F32, Mode::Checked, with_average(), 3));
    let gpt = Gpt::new(SMALL);
    let mut engine = engine(&gpt, Device::Cpu, Precision::F32, Mode::Checked);
    let (tape, step) = gpt.step(Precision::F32, with_average());
    let mut program = engine.load(tape).unwrap();
    feed(&engine, &program, step, &training_batch(SMALL, 0));
    assert!(engine.run(&mut program, &control(0)).unwrap().good);
    assert_eq!(engine.take_first_nonfinite(), None, "a good step has no NaN or Inf");
    // Set weights to NaN: the first operation that reads them is named.
    let mut weights = engine.read_arena(Arena::Weights).unwrap();
    weights.fill(f32::NAN);
    engine.write_arena(Arena::Weights, &weights).unwrap();
    assert!(!engine.run(&mut program, &control(1)).unwrap().good);
    let nonfinite = engine.take_first_nonfinite().expect("a step with a NaN loss must name an operation");
    assert!(nonfinite.inputs_nonfinite && nonfinite.nan + nonfinite.infinite > 0, "{nonfinite:?}");
    assert!(nonfinite.number <= nonfinite.operations, "{nonfinite:?}");
    assert!(nonfinite.to_string().contains(&format!("`{}`", nonfinite.op)), "{nonfinite}");
    assert_eq!(engine.take_first_nonfinite(), None, "it is reported once");
}

#[test]
fn recomputation_changes_no_bit() {
    let plain = train(Device::Cpu, Precision::F32, Mode::Captured, with_average(), 4);
    let cheap = Build { recompute: Recompute::Cheap, ..with_average() };
    let blocks = Build { checkpoint: true, ..with_average() };
    for build in [cheap, blocks, Build { checkpoint: true, ..cheap }] {
        assert!(plain == train(Device::Cpu, Precision::F32, Mode::Captured, build, 4), "{build:?}");
    }
}

#[test]
fn recomputation_saves_memory() {
    let gpt = Gpt::new(Sizes { layers: 6, ..SMALL });
    let bytes = |build: Build| memory::MemoryPlan::new(&gpt.step(Precision::F32, build).0).scratch_bytes;
    let plain = bytes(with_average());
    let cheap = bytes(Build { recompute: Recompute::Cheap, ..with_average() });
    let blocks = bytes(Build { checkpoint: true, ..with_average() });
    assert!(cheap < plain && blocks < cheap, "{plain} {cheap} {blocks}");
}

#[test]
fn the_plan_is_close_to_the_lower_bound() {
    let gpt = Gpt::new(Sizes { layers: 8, ..SMALL });
    for build in [with_average(), Build { recompute: Recompute::Cheap, ..with_average() }] {
        let plan = memory::MemoryPlan::new(&gpt.step(Precision::F32, build).0);
        let waste = plan.scratch_bytes as f64 / plan.alive_bytes as f64;
        assert!((1.0..1.1).contains(&waste), "{plan:?}");
    }
}

#[test]
fn accumulated_steps_equal_one_step_on_the_whole_batch() {
    let whole = Gpt::new(SMALL);
    let part = Gpt::new(Sizes { batch: SMALL.batch / 2, ..SMALL });
    let data = training_batch(SMALL, 0);
    let (mut one, mut two) = (
        engine(&whole, Device::Cpu, Precision::F32, Mode::Captured),
        engine(&part, Device::Cpu, Precision::F32, Mode::Captured),
    );
    let (tape, step) = whole.step(Precision::F32, with_average());
    let mut program = one.load(tape).unwrap();
    feed(&one, &program, step, &data);
    let report = one.run(&mut program, &control(0)).unwrap();
    let half = data.0.len() / 2;
    let builds = [Build { no_update: true, ..with_average() }, Build { accumulate: true, ..with_average() }];
    let mut losses = 0.0;
    for (i, build) in builds.into_iter().enumerate() {
        let (tape, step) = part.step(Precision::F32, build);
        let mut program = two.load(tape).unwrap();
        let range = i * half..(i + 1) * half;
        feed(&two, &program, step, &(data.0[range.clone()].to_vec(), data.1[range].to_vec()));
        losses += two.run(&mut program, &Control { weight: 0.5, ..control(0) }).unwrap().loss / 2.0;
    }
    assert!((losses - report.loss).abs() < 1e-5);
    close(&one, &two, 1e-5);
}

fn close(one: &Engine, two: &Engine, tolerance: f64) {
    let (a, b) = (one.read_arena(Arena::Gradients).unwrap(), two.read_arena(Arena::Gradients).unwrap());
    let norm = a.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let apart = a.iter().zip(&b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
    assert!(apart < tolerance * norm, "gradients differ by {apart:.3e} of {norm:.3e}");
}

#[test]
fn replicas_equal_one_device_with_the_summed_batch() {
    for world in [2, 3, 4] {
        let whole = Gpt::new(Sizes { batch: 12, ..SMALL });
        let part = Gpt::new(Sizes { batch: 12 / world, ..SMALL });
        let data = training_batch(whole.sizes, 5);
        let mut one = engine(&whole, Device::Cpu, Precision::F32, Mode::Captured);
        let (tape, step) = whole.step(Precision::F32, with_average());
        let mut program = one.load(tape).unwrap();
        feed(&one, &program, step, &data);
        one.run(&mut program, &control(0)).unwrap();
        let engines: Vec<Engine> = std::thread::scope(|scope| {
            let threads: Vec<_> = Replica::group(world)
                .into_iter()
                .enumerate()
                .map(|(rank, replica)| {
                    let (part, data) = (&part, &data);
                    scope.spawn(move || {
                        let mut engine = engine(part, Device::Cpu, Precision::F32, Mode::Captured);
                        engine.join(Arc::new(replica));
                        let (tape, step) =
                            part.step(Precision::F32, Build { reduce: Some(20_000), ..with_average() });
                        let mut program = engine.load(tape).unwrap();
                        let n = data.0.len() / world;
                        let range = rank * n..(rank + 1) * n;
                        feed(
                            &engine,
                            &program,
                            step,
                            &(data.0[range.clone()].to_vec(), data.1[range].to_vec()),
                        );
                        let weight = 1.0 / world as f32;
                        assert!(engine.run(&mut program, &Control { weight, ..control(0) }).unwrap().good);
                        engine
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for engine in &engines {
            close(&one, engine, 1e-5);
            assert!(all_state(engine) == all_state(&engines[0]), "replicas must hold the same bits");
        }
    }
}

/// Copies its input, and puts a NaN into the copy or into its gradient.
#[derive(Debug)]
struct Poison {
    forward: bool,
    backward: bool,
}

impl Op for Poison {
    fn name(&self) -> &'static str {
        "poison"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let x = io.f32(0);
        let y = io.accumulate(0);
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
        if self.forward {
            y[0] = f32::NAN;
        }
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        assert_eq!(io.base(0), 0, "the test uses every value once");
        let bytes = io.shape(0).len() * io.dtype(0).size();
        let failed = |e| Error::driver("copy in a test", e);
        // SAFETY: input and output have that many bytes.
        unsafe { result::memcpy_dtod_async(io.output(0), io.input(0), bytes, io.stream()) }
            .map_err(failed)?;
        if self.forward {
            // SAFETY: the output holds at least one element. All bits set is a NaN in both types.
            unsafe { result::memset_d8_async(io.output(0), 0xff, io.dtype(0).size(), io.stream()) }
                .map_err(failed)?;
        }
        Ok(())
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let gradient = g.result_gradient();
        let target = g.target(0);
        g.push(Poison { forward: self.backward, backward: false }, &[gradient], &[target]);
    }
}

/// Injects a NaN at each position of the network in turn, forward and backward, after three good steps.
fn poisoned(device: Device, precision: Precision) {
    let gpt = Gpt::new(SMALL);
    let mut engine = engine(&gpt, device, precision, Mode::Captured);
    let (tape, step) = gpt.step(precision, with_average());
    let mut program = engine.load(tape).unwrap();
    for i in 0..3 {
        feed(&engine, &program, step, &training_batch(SMALL, i));
        engine.run(&mut program, &control(i)).unwrap();
    }
    let before = all_state(&engine);
    let mut places = 0;
    loop {
        let mut count = 0;
        for backward in [false, true] {
            count = 0;
            let (tape, step) = gpt.step_with(precision, with_average(), &mut |tape, value| {
                count += 1;
                if count - 1 != places {
                    return value;
                }
                let info = tape.info(value);
                let spec = Spec::new(info.shape, info.dtype);
                tape.push_one(Poison { forward: !backward, backward }, &[value], spec)
            });
            if places >= count {
                break;
            }
            let mut bad = engine.load(tape).unwrap();
            feed(&engine, &bad, step, &training_batch(SMALL, 3));
            // The second run is the captured one.
            for _ in 0..2 {
                let report = engine.run(&mut bad, &control(3)).unwrap();
                assert!(!report.good && report.steps == 3, "position {places}: {report:?}");
            }
            assert!(
                all_state(&engine) == before,
                "a NaN at position {places} (backward: {backward}) changed the state"
            );
        }
        if places >= count {
            break;
        }
        places += 1;
    }
    assert!(places >= 14, "only {places} positions");
    println!("{} positions, state unchanged", 2 * places);
    // Training continues.
    feed(&engine, &program, step, &training_batch(SMALL, 3));
    assert!(engine.run(&mut program, &control(3)).unwrap().good);
    assert!(all_state(&engine) != before);
}

#[test]
fn a_nan_anywhere_changes_no_state() {
    poisoned(Device::Cpu, Precision::F32);
}

#[test]
fn a_run_resumes_from_its_arenas_bit_for_bit() {
    let gpt = Gpt::new(SMALL);
    let mut first = engine(&gpt, Device::Cpu, Precision::F32, Mode::Captured);
    let (tape, step) = gpt.step(Precision::F32, with_average());
    let mut program = first.load(tape).unwrap();
    for i in 0..6 {
        if i == 3 {
            let saved: Vec<(Arena, Vec<f32>)> =
                [Arena::Weights, Arena::Moment1, Arena::Moment2, Arena::Average]
                    .map(|a| (a, first.read_arena(a).unwrap()))
                    .to_vec();
            let EngineState { steps } = first.state().unwrap();
            let mut second = engine(&gpt, Device::Cpu, Precision::F32, Mode::Captured);
            for (arena, data) in &saved {
                second.write_arena(*arena, data).unwrap();
            }
            second.set_state(EngineState { steps }).unwrap();
            let (tape, step) = gpt.step(Precision::F32, with_average());
            let mut other = second.load(tape).unwrap();
            for j in 3..6 {
                feed(&second, &other, step, &training_batch(SMALL, j));
                second.run(&mut other, &control(j)).unwrap();
            }
            for j in 3..6 {
                feed(&first, &program, step, &training_batch(SMALL, j));
                first.run(&mut program, &control(j)).unwrap();
            }
            assert!(all_state(&first) == all_state(&second));
            return;
        }
        feed(&first, &program, step, &training_batch(SMALL, i));
        first.run(&mut program, &control(i)).unwrap();
    }
}

#[test]
fn a_frozen_parameter_has_no_gradient_and_never_moves() {
    let mut builder = LayoutBuilder::new();
    let group = builder.group("all", 0.1, 1.0);
    let frozen = builder.add("frozen", [8, 8], Role::Frozen, Init::Normal(0.3));
    let trained = builder.add("trained", [8, 8], Role::Trained(group), Init::Normal(0.3));
    let unused = builder.add("unused", [8], Role::Trained(group), Init::Constant(1.0));
    let layout = Arc::new(builder.finish());
    let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
    let x = tape.input([4, 8], DType::F32);
    let (w, v) = (tape.parameter(trained), tape.parameter(frozen));
    let y = tape.linear(x, w, None);
    let y = tape.linear(y, v, None);
    let ones = tape.input([4, 8], DType::F32);
    let loss = tape.dot(y, ones, None);
    tape.backward(loss, Backward::default());
    tape.update(loss, AdamW::default());
    tape.note(2, loss);
    let options = EngineOptions { training: Training::Adam, ..EngineOptions::default() };
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, options).unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, x, &Stream::new(1).normals(32)).unwrap();
    engine.write(&program, ones, &[1.0; 32]).unwrap();
    let before = [frozen, trained, unused].map(|p| engine.read_parameter(p).unwrap());
    // Gradients left from an earlier step must not affect a parameter that this one does not use.
    engine.write_arena(Arena::Gradients, &vec![5.0; engine.layout().trained_len()]).unwrap();
    let report = engine.run(&mut program, &Control { rate: 0.1, ..Control::default() }).unwrap();
    let after = [frozen, trained, unused].map(|p| engine.read_parameter(p).unwrap());
    assert_eq!(report.notes[2], report.loss);
    assert_eq!(before[0], after[0]);
    assert_ne!(before[1], after[1]);
    assert_eq!(engine.read_gradient(unused).unwrap(), vec![0.0; 8]);
    assert_eq!(after[2], vec![1.0 - 0.1 * 0.1; 8], "an unused parameter only decays");
}

#[test]
fn state_is_committed_by_good_steps_only() {
    let mut builder = LayoutBuilder::new();
    let state = builder.add("running", [4], Role::State, Init::Zeros);
    let layout = Arc::new(builder.finish());
    let mut tape = Tape::new(Arc::clone(&layout), Precision::F32);
    let (x, ones) = (tape.input([4], DType::F32), tape.input([4], DType::F32));
    let loss = tape.dot(x, ones, None);
    tape.commit(state, x);
    tape.report_loss(loss);
    let mut engine = Engine::new(Device::Cpu, layout, Precision::F32, EngineOptions::default()).unwrap();
    let mut program = engine.load(tape).unwrap();
    engine.write(&program, ones, &[1.0; 4]).unwrap();
    engine.write(&program, x, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    assert!(engine.run(&mut program, &Control::default()).unwrap().good);
    engine.write(&program, x, &[1.0, f32::NAN, 3.0, 4.0]).unwrap();
    assert!(!engine.run(&mut program, &Control::default()).unwrap().good);
    assert_eq!(engine.read_parameter(state).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn running_out_of_memory_reports_the_plan() {
    let Some(_gpu) = gpu::present("what_does_not_fit_is_an_error_with_the_plan") else { return };
    let gpt = Gpt::new(Sizes { batch: 4096, time: 4096, layers: 8, ..SMALL });
    let mut engine = engine(&gpt, Device::Cuda(0), Precision::Bf16, Mode::Captured);
    let (tape, _) = gpt.step(Precision::Bf16, with_average());
    match engine.load(tape) {
        Err(Error::OutOfMemory { need, free, .. }) => assert!(need.total() > free),
        other => panic!("{other:?}"),
    }
}

#[test]
fn captured_steps_equal_eager_ones_bit_for_bit() {
    let Some(_gpu) = gpu::present("recorded_steps_equal_eager_ones_bit_for_bit") else { return };
    for precision in [Precision::F32, Precision::Bf16] {
        let captured = train(Device::Cuda(0), precision, Mode::Captured, with_average(), 50);
        let again = train(Device::Cuda(0), precision, Mode::Captured, with_average(), 50);
        assert!(captured == again, "two runs of 50 steps in {precision:?} differ");
        let eager = train(Device::Cuda(0), precision, Mode::Eager, with_average(), 50);
        assert!(captured == eager, "eager and captured steps in {precision:?} differ");
        for mode in [Mode::Captured, Mode::Eager] {
            let gpt = Gpt::new(SMALL);
            let engine = engine_on(&gpt, Device::Cuda(0), precision, mode, Streams::Two);
            assert!(
                captured == train_with(&gpt, engine, with_average(), 50),
                "two streams differ in {precision:?}"
            );
        }
        println!(
            "{precision:?}: 50 steps twice and eagerly, {} weights, all bits equal",
            captured.1[0].len()
        );
    }
}

#[test]
fn the_cpu_reports_no_busy_time() {
    let gpt = Gpt::new(SMALL);
    assert_eq!(engine(&gpt, Device::Cpu, Precision::F32, Mode::Captured).busy(), None);
}

/// More runs than the rings hold, with only the last report read: each run's time is counted exactly once.
#[test]
fn busy_time_counts_every_run_once() {
    let Some(_gpu) = gpu::present("busy_time_counts_every_run_once") else { return };
    let gpt = Gpt::new(SMALL);
    let mut engine = engine(&gpt, Device::Cuda(0), Precision::F32, Mode::Captured);
    assert_eq!(engine.busy(), Some(Duration::ZERO));
    let (tape, step) = gpt.step(Precision::F32, with_average());
    let mut program = engine.load(tape).unwrap();
    feed(&engine, &program, step, &training_batch(SMALL, 0));
    let began = Instant::now();
    let mut last = engine.submit(&mut program, &control(0)).unwrap();
    engine.wait(last).unwrap();
    let one = engine.busy().unwrap();
    assert!(one > Duration::ZERO);
    for step in 1..100 {
        last = engine.submit(&mut program, &control(step)).unwrap();
    }
    engine.wait(last).unwrap();
    let all = engine.busy().unwrap();
    assert!(all > one && all <= began.elapsed(), "{all:?} after {one:?} of {:?}", began.elapsed());
    engine.wait(last).unwrap();
    assert_eq!(engine.busy(), Some(all), "a run was counted twice");
}

#[test]
fn bf16_training_reaches_the_loss_of_f32() {
    let Some(_gpu) = gpu::present("bf16_training_reaches_the_loss_of_f32") else { return };
    let tail = |losses: &[f32]| losses[losses.len() - 50..].iter().sum::<f32>() / 50.0;
    let single = tail(&train(Device::Cuda(0), Precision::F32, Mode::Captured, with_average(), 500).0);
    let half = tail(&train(Device::Cuda(0), Precision::Bf16, Mode::Captured, with_average(), 500).0);
    println!("mean loss of the last 50 of 500 steps: f32 {single:.5}, bf16 {half:.5}");
    assert!((single - half).abs() < 0.01 * single, "f32 {single}, bf16 {half}");
}

#[test]
fn a_nan_anywhere_on_the_device_changes_no_state() {
    let Some(_gpu) = gpu::present("a_nan_anywhere_on_the_device_leaves_everything_as_it_was") else { return };
    poisoned(Device::Cuda(0), Precision::Bf16);
    poisoned(Device::Cuda(0), Precision::F32);
}

#[test]
fn training_on_the_device_matches_the_cpu() {
    let Some(_gpu) = gpu::present("training_on_the_device_matches_the_cpu") else { return };
    let (cpu, _) = train(Device::Cpu, Precision::F32, Mode::Captured, with_average(), 20);
    let (gpu, _) = train(Device::Cuda(0), Precision::F32, Mode::Captured, with_average(), 20);
    for (a, b) in cpu.iter().zip(&gpu) {
        assert!((a - b).abs() < 1e-3 * a, "{cpu:?}\n{gpu:?}");
    }
}

#[test]
fn nccl_reduces_inside_a_captured_step() {
    let Some(_gpu) = gpu::present("nccl_reduces_inside_a_recorded_step") else { return };
    let build = Build { reduce: Some(40_000), ..with_average() };
    let alone = train(Device::Cuda(0), Precision::Bf16, Mode::Captured, with_average(), 5);
    let gpt = Gpt::new(SMALL);
    let mut engine = engine(&gpt, Device::Cuda(0), Precision::Bf16, Mode::Captured);
    let nccl = myxtts_tensor::cuda::nccl::Nccl::load().unwrap();
    engine.join_nccl(Arc::new(nccl.communicators(&[0]).unwrap().remove(0)));
    let (tape, step) = gpt.step(Precision::Bf16, build);
    let mut program = engine.load(tape).unwrap();
    for i in 0..5 {
        feed(&engine, &program, step, &training_batch(SMALL, i));
        engine.run(&mut program, &control(i)).unwrap();
    }
    assert!(program.captured_nodes().is_some());
    assert!(all_state(&engine) == alone.1, "a group of one must change nothing");
}
