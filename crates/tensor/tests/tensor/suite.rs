//! Checks every operation in two ways: its gradient against finite differences on the CPU, and the device against
//! the CPU, forward and backward. An operation without a case fails the suite.

use crate::ops;
use half::bf16;
use myxtts_tensor::random::Stream;
use myxtts_tensor::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Creates inputs and an operation on them, and returns its outputs.
type Builder = Box<dyn Fn(&mut Build<'_>) -> Vec<Value>>;

/// One use of an operation, at random shapes.
pub struct Case {
    /// Name in messages.
    pub name: &'static str,
    /// Builds it: inputs through the `Build`, outputs returned.
    pub build: Builder,
    /// Number of random shapes to try.
    pub rounds: u64,
    /// Step of the finite differences; smaller for strongly curved functions.
    pub step: f32,
    /// Whether finite differences are meaningful (not where the function jumps).
    pub smooth: bool,
    /// Relative tolerance between CPU and device in bf16, for operations that are not plain sums.
    pub bf16: f64,
    /// Relative tolerance between CPU and device in f32.
    pub f32: f64,
}

impl Case {
    pub fn new(name: &'static str, build: impl Fn(&mut Build<'_>) -> Vec<Value> + 'static) -> Case {
        Case { name, build: Box::new(build), rounds: 4, step: 1e-2, smooth: true, bf16: 2e-2, f32: 1e-5 }
    }

    pub fn step(self, step: f32) -> Case {
        Case { step, ..self }
    }

    pub fn not_smooth(self) -> Case {
        Case { smooth: false, ..self }
    }

    pub fn rounds(self, rounds: u64) -> Case {
        Case { rounds, ..self }
    }

    pub fn tolerances(self, f32: f64, bf16: f64) -> Case {
        Case { f32, bf16, ..self }
    }
}

enum Data {
    Floats(Vec<f32>),
    Integers(Vec<i32>),
}

/// The context a case builds in.
pub struct Build<'a> {
    pub tape: &'a mut Tape,
    pub random: Stream,
    inputs: Vec<(Value, Data)>,
}

impl Build<'_> {
    /// A random size in `from ..= to`.
    pub fn size(&mut self, from: usize, to: usize) -> usize {
        from + self.random.below(to - from + 1)
    }

    /// A differentiable activation with normal samples.
    pub fn variable(&mut self, shape: impl Into<Shape>) -> Value {
        let shape = shape.into();
        let data = self.random.normals(shape.len());
        self.variable_of(shape, data)
    }

    /// A differentiable activation with the given values.
    pub fn variable_of(&mut self, shape: impl Into<Shape>, data: Vec<f32>) -> Value {
        let value = self.tape.variable(shape);
        self.inputs.push((value, Data::Floats(data)));
        value
    }

    /// A differentiable weight in the activation type, with an f32 gradient.
    pub fn weight(&mut self, shape: impl Into<Shape>) -> Value {
        let (shape, dtype) = (shape.into(), self.tape.dtype());
        let value = self.tape.weight(shape, dtype);
        let data = self.random.normals(shape.len());
        self.inputs.push((value, Data::Floats(data)));
        value
    }

    /// A differentiable weight in f32, as from `Tape::master`.
    pub fn master(&mut self, shape: impl Into<Shape>) -> Value {
        let shape = shape.into();
        let value = self.tape.weight(shape, DType::F32);
        let data = self.random.normals(shape.len());
        self.inputs.push((value, Data::Floats(data)));
        value
    }

    /// Constant f32 values.
    pub fn constant(&mut self, shape: impl Into<Shape>, data: Vec<f32>) -> Value {
        let value = self.tape.input(shape, DType::F32);
        self.inputs.push((value, Data::Floats(data)));
        value
    }

    /// Constant integers.
    pub fn integers(&mut self, shape: impl Into<Shape>, data: Vec<i32>) -> Value {
        let value = self.tape.input(shape, DType::I32);
        self.inputs.push((value, Data::Integers(data)));
        value
    }
}

struct BuiltCase {
    tape: Tape,
    inputs: Vec<(Value, Data)>,
    outputs: Vec<Value>,
    gradients: Vec<(Value, Value)>,
    loss: Value,
}

/// The case with a loss that weights every output at random, and gradients.
fn build_case(case: &Case, round: u64, precision: Precision) -> BuiltCase {
    let mut tape = Tape::new(Arc::new(Layout::empty()), precision);
    let mut build = Build { tape: &mut tape, random: Stream::new(round * 7919 + 17), inputs: Vec::new() };
    let outputs = (case.build)(&mut build);
    let (mut random, mut inputs) = (build.random, build.inputs);
    let mut loss = None;
    for &output in &outputs {
        if tape.info(output).dtype == DType::I32 {
            continue;
        }
        let shape = tape.shape(output);
        let w = tape.input(shape, DType::F32);
        // Positive on the whole, so that the loss is not a difference of large numbers.
        inputs.push((w, Data::Floats((0..shape.len()).map(|_| random.normal()).collect())));
        loss = Some(tape.dot(output, w, loss));
    }
    let loss = loss.unwrap();
    // Every other round recomputes what it can, so that both modes are tested.
    let recompute = if round % 2 == 1 { Recompute::Cheap } else { Recompute::Marked };
    tape.backward(loss, Backward { recompute, accumulate: false });
    tape.keep(loss);
    let mut gradients = Vec::new();
    for (value, _) in &inputs {
        if let Some(gradient) = tape.gradient(*value) {
            tape.keep(gradient);
            gradients.push((*value, gradient));
        }
    }
    outputs.iter().for_each(|&o| tape.keep(o));
    BuiltCase { tape, inputs, outputs, gradients, loss }
}

struct CaseRun {
    engine: Engine,
    program: Program,
    inputs: Vec<(Value, Data)>,
    /// Inputs that have gradients.
    variables: Vec<Value>,
    loss: f32,
    outputs: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
}

fn control() -> Control {
    Control { seed: 0x1234_5678_9abc, ..Control::default() }
}

fn run_case(device: Device, built: BuiltCase, round_inputs: bool) -> CaseRun {
    let precision = if built.tape.dtype() == DType::Bf16 { Precision::Bf16 } else { Precision::F32 };
    let mut engine =
        Engine::new(device, Arc::new(Layout::empty()), precision, EngineOptions::default()).unwrap();
    let BuiltCase { tape, mut inputs, outputs, gradients, loss } = built;
    let mut program = engine.load(tape).unwrap();
    for (value, data) in &mut inputs {
        match data {
            Data::Floats(data) => {
                if round_inputs {
                    data.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32());
                }
                engine.write(&program, *value, data).unwrap();
            }
            Data::Integers(data) => engine.write_i32(&program, *value, data).unwrap(),
        }
    }
    engine.run(&mut program, &control()).unwrap();
    let floats = |v: Value| match program.tape().info(v).dtype {
        DType::I32 => engine.read_i32(&program, v).unwrap().iter().map(|&i| i as f32).collect(),
        _ => engine.read(&program, v).unwrap(),
    };
    let outputs = outputs.iter().map(|&o| floats(o)).collect();
    let grads = gradients.iter().map(|(_, g)| floats(*g)).collect();
    let loss = floats(loss)[0];
    let variables = gradients.iter().map(|(v, _)| *v).collect();
    CaseRun { engine, program, inputs, variables, loss, outputs, gradients: grads }
}

fn relative(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let size = norm(&mut b.iter().map(|b| f64::from(*b)));
    // A gradient that is nearly zero in exact arithmetic, as a difference of larger numbers, is compared relative
    // to their size.
    apart / size.max(0.1 * (b.len() as f64).sqrt())
}

fn loss_at(ran: &mut CaseRun, value: Value, data: &[f32], loss: Value) -> f64 {
    ran.engine.write(&ran.program, value, data).unwrap();
    ran.engine.run(&mut ran.program, &control()).unwrap();
    f64::from(ran.engine.read(&ran.program, loss).unwrap()[0])
}

fn check_gradients(case: &Case, round: u64) {
    let built = build_case(case, round, Precision::F32);
    let loss = built.loss;
    let mut ran = run_case(Device::Cpu, built, false);
    assert!(ran.loss.is_finite(), "{}: the loss is {}", case.name, ran.loss);
    assert!(!ran.variables.is_empty(), "{}: no gradient flows to any input", case.name);
    let mut random = Stream::new(round + 99);
    // Rounding errors of many outputs partly cancel.
    let squares = ran.outputs.iter().flatten().map(|y| f64::from(*y).powi(2)).sum::<f64>();
    let rounded = 0.25 * squares.sqrt();
    let inputs = std::mem::take(&mut ran.inputs);
    for (value, gradient) in ran.variables.clone().into_iter().zip(ran.gradients.clone()) {
        let Some((_, Data::Floats(data))) = inputs.iter().find(|(v, _)| *v == value) else { continue };
        let size =
            (gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>() / gradient.len() as f64).sqrt();
        // A few single elements, and a direction in which all move.
        let mut directions: Vec<Vec<f32>> = Vec::new();
        for _ in 0..5 {
            let mut one = vec![0.0; data.len()];
            one[random.below(data.len())] = 1.0;
            directions.push(one);
        }
        let scale = 1.0 / (data.len() as f32).sqrt();
        directions.push((0..data.len()).map(|_| random.normal() * scale).collect());
        for direction in directions {
            let moved =
                |by: f32| -> Vec<f32> { data.iter().zip(&direction).map(|(x, d)| x + by * d).collect() };
            let ahead = loss_at(&mut ran, value, &moved(case.step), loss);
            let behind = loss_at(&mut ran, value, &moved(-case.step), loss);
            let found = (ahead - behind) / (2.0 * f64::from(case.step));
            let said: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
            // Resolution of the difference of two losses in f32: each is a weighted sum of rounded outputs.
            let noise = 4e-7 * (1.0 + ahead.abs().max(behind.abs()) + rounded) / f64::from(case.step);
            let allowed = 1e-2 * found.abs().max(said.abs()).max(size) + noise;
            assert!(
                (found - said).abs() <= allowed,
                "{} round {round}: finite differences: {found:.6}, gradient: {said:.6} (allowed {allowed:.2e})",
                case.name
            );
        }
        loss_at(&mut ran, value, data, loss);
    }
}

fn check_device(case: &Case, round: u64, precision: Precision, worst: &mut f64) {
    let rounded = precision == Precision::Bf16;
    let cpu = run_case(Device::Cpu, build_case(case, round, Precision::F32), rounded);
    let gpu = run_case(Device::Cuda(0), build_case(case, round, precision), rounded);
    let tolerance = if rounded { case.bf16 } else { case.f32 };
    let pairs = gpu.outputs.iter().zip(&cpu.outputs).map(|p| ("result", p));
    for (what, (a, b)) in pairs.chain(gpu.gradients.iter().zip(&cpu.gradients).map(|p| ("gradient", p))) {
        let error = relative(a, b);
        *worst = worst.max(error / tolerance);
        assert!(
            error <= tolerance,
            "{} round {round} {precision:?}: a {what} of {} elements differs from the CPU's by {error:.2e}",
            case.name,
            a.len()
        );
    }
}

/// Names of all operations, read from the source.
fn operation_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops");
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for part in text.split("fn name(").skip(1) {
                let body = part.split("\n    }").next().unwrap();
                names.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    names
}

/// Operations that are not a function of their inputs alone, and where they are tested.
const ELSEWHERE: &[(&str, &str)] = &[
    ("all_reduce", "replicas"),
    ("clock_start", "replicas"),
    ("clock_end", "replicas"),
    ("zero", "training"),
    ("guard", "training"),
    ("adamw", "training"),
    ("commit", "training"),
    ("note", "training"),
    ("tell", "training"),
];

fn case_filter() -> Option<String> {
    std::env::var("MYXTTS_CASE").ok()
}

fn cases() -> Vec<Case> {
    let all = ops::cases();
    match case_filter() {
        Some(name) => all.into_iter().filter(|c| c.name.contains(&name)).collect(),
        None => all,
    }
}

#[test]
fn every_operation_has_a_case() {
    let mut covered: BTreeSet<String> = ELSEWHERE.iter().map(|(name, _)| (*name).to_owned()).collect();
    for case in ops::cases() {
        for round in 0..case.rounds {
            let built = build_case(&case, round, Precision::F32);
            covered.extend(built.tape.nodes().iter().map(|n| n.op.name().to_owned()));
        }
    }
    let missing: Vec<String> = operation_names().difference(&covered).cloned().collect();
    assert!(missing.is_empty(), "no case covers {missing:?}");
    assert!(operation_names().len() > 5, "the source was not read");
}

#[test]
fn gradients_agree_with_differences() {
    for case in cases().iter().filter(|c| c.smooth) {
        for round in 0..case.rounds {
            check_gradients(case, round);
        }
    }
}

#[test]
fn the_device_agrees_with_the_cpu() {
    let Some(_gpu) = crate::gpu::present("the_device_agrees_with_the_cpu") else { return };
    let mut failures = Vec::new();
    for case in &cases() {
        let mut worst = [0.0; 2];
        for (which, precision) in [Precision::F32, Precision::Bf16].into_iter().enumerate() {
            for round in 0..case.rounds {
                let check = || {
                    let mut seen = worst[which];
                    check_device(case, round, precision, &mut seen);
                    seen
                };
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
                    Ok(seen) => worst[which] = seen,
                    Err(reason) => failures.push(
                        reason
                            .downcast_ref::<String>()
                            .cloned()
                            .unwrap_or_else(|| format!("{}: panicked", case.name)),
                    ),
                }
            }
        }
        println!("{:<32} f32 {:.2} bf16 {:.2} of the tolerance", case.name, worst[0], worst[1]);
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
