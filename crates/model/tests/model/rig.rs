//! Shared by the tests of networks: devices, engines with weights, layouts, comparisons.

use myxtts_model::{Declare, Released, TrainedFilter};
use myxtts_tensor::{Device, Engine, EngineOptions, Layout, Precision, Role, Tape, Training};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All parameters are trained.
pub const TRAINED: TrainedFilter<'static> = &|_| true;

/// Devices a test runs on: the CPU, and a GPU if there is one.
pub fn devices(test: &str) -> Vec<Device> {
    match myxtts_tensor::cuda::Cuda::open(0, &Default::default()) {
        Ok(_) => vec![Device::Cpu, Device::Cuda(0)],
        Err(reason) => {
            println!("{test}: on the CPU alone, no CUDA device: {reason}");
            vec![Device::Cpu]
        }
    }
}

/// Networks with their weights on a device.
pub struct Rig {
    pub engine: Engine,
    pub layout: Arc<Layout>,
    pub released: Vec<Released>,
}

impl Rig {
    /// Every parameter gets the tensor of its release name from `weights`, which must have the release shape.
    pub fn new(
        device: Device,
        declare: Declare,
        weights: impl Fn(&str) -> Option<(Vec<usize>, Vec<f32>)>,
    ) -> Rig {
        let mut rig = Rig::fresh(device, declare);
        for one in &rig.released {
            let (shape, data) =
                weights(&one.name).unwrap_or_else(|| panic!("there are no weights for {}", one.name));
            assert_eq!(shape, one.shape, "{}", one.name);
            rig.engine.write_parameter(one.id, &one.to_ours(&data)).unwrap();
        }
        rig
    }

    /// Parameters with their initial values.
    pub fn fresh(device: Device, declare: Declare) -> Rig {
        let (layout, released) = declare.finish();
        let options = EngineOptions { training: Training::Adam, seed: 1, ..EngineOptions::default() };
        let engine = Engine::new(device, Arc::clone(&layout), Precision::F32, options).unwrap();
        Rig { engine, layout, released }
    }

    pub fn tape(&self) -> Tape {
        Tape::new(Arc::clone(&self.layout), Precision::F32)
    }

    fn one(&self, name: &str) -> &Released {
        self.released.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("no parameter {name}"))
    }

    /// A parameter in its release layout.
    pub fn weight(&self, name: &str) -> Vec<f32> {
        let one = self.one(name);
        one.to_released(&self.engine.read_parameter(one.id).unwrap())
    }

    /// A parameter's gradient in its release layout.
    pub fn gradient(&self, name: &str) -> Vec<f32> {
        let one = self.one(name);
        one.to_released(&self.engine.read_gradient(one.id).unwrap())
    }
}

/// Names and shapes of a release under `prefix`, and whether each is a buffer.
pub fn release(prefix: &str) -> BTreeMap<String, (Vec<usize>, bool)> {
    let table = include_str!("../../testdata/xtts_v2_tensors.tsv");
    let mut all = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, shape, kind] = fields[..] else { panic!("{line}") };
        let Some(name) = name.strip_prefix(prefix) else { continue };
        all.insert(name.to_owned(), (serde_json::from_str(shape).unwrap(), kind == "buffer"));
    }
    all
}

/// Asserts that the declared parameters are those of a release under `prefix`, except the names that `absent` selects,
/// and that its weights have `count` elements.
pub fn assert_released(declare: Declare, prefix: &str, absent: impl Fn(&str) -> bool, count: usize) {
    let (layout, released) = declare.finish();
    let state = |one: &Released| layout.get(one.id).role == Role::State;
    let found: BTreeMap<String, (Vec<usize>, bool)> = released
        .iter()
        .map(|one| {
            let name = one.name.strip_prefix(prefix).unwrap_or(&one.name);
            (name.to_owned(), (one.shape.clone(), state(one)))
        })
        .collect();
    let mut wanted = release(prefix);
    wanted.retain(|name, _| !absent(name));
    assert!(!wanted.is_empty(), "the release has no tensors under {prefix}");
    for (name, one) in &wanted {
        assert_eq!(found.get(name), Some(one), "{prefix}{name}");
    }
    let more: Vec<&String> = found.keys().filter(|name| !wanted.contains_key(*name)).collect();
    assert!(more.is_empty(), "not in a release: {more:?}");
    let weights = released.iter().filter(|one| !state(one));
    assert_eq!(weights.map(|one| one.shape.iter().product::<usize>()).sum::<usize>(), count);
}

/// Transposes `[batch, channels, time]` to `[batch, time, channels]`, or back.
pub fn transposed(data: &[f32], shape: &[usize]) -> Vec<f32> {
    let &[batch, rows, columns] = shape else { panic!("{shape:?} does not have three dimensions") };
    let mut out = Vec::with_capacity(data.len());
    for b in 0..batch {
        for c in 0..columns {
            out.extend((0..rows).map(|r| data[(b * rows + r) * columns + c]));
        }
    }
    out
}

/// Asserts that no element is further than `allowed` from the expected one, and prints the maximum difference.
pub fn assert_near(what: &str, found: &[f32], wanted: &[f32], allowed: f32) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let far = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    let far = far.fold(0.0, |far: f32, d| if d > far || d.is_nan() { d } else { far });
    println!("{what}: {far:.1e} of {allowed:.0e}");
    assert!(far <= allowed, "{what}: differs by {far}, {allowed} is allowed");
}

/// Euclidean norm.
pub fn length(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

/// Asserts that the distance is at most `allowed` times the norm of the expected vector.
pub fn assert_near_by_length(what: &str, found: &[f32], wanted: &[f32], allowed: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let apart: Vec<f32> = found.iter().zip(wanted).map(|(a, b)| a - b).collect();
    let far = length(&apart) / length(wanted);
    println!("{what}: {far:.1e} of {allowed:.0e}");
    assert!(far <= allowed, "{what}: differs by {far} of its norm, {allowed} is allowed");
}
