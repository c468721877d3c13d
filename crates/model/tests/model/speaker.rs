//! Tests the speaker encoder against the reference: every layer, and the vector.

use crate::goldens::{self, Tensor};
use crate::rig::{Rig, TRAINED, assert_near, assert_released, devices, transposed};
use myxtts_model::declare::Declare;
use myxtts_model::speaker::{PREFIX, SpeakerEncoder, SpeakerLayer, SpeakerSizes, Statistics};
use myxtts_tensor::random::Stream;
use myxtts_tensor::{Control, DType, Device};
use std::collections::BTreeMap;

type Shapes = BTreeMap<String, Vec<usize>>;

/// Whether a release tensor is not a weight: constants of the features, and batch counts.
fn is_not_a_weight(name: &str) -> bool {
    name.contains("torch_spec.") || name.ends_with("num_batches_tracked")
}

fn shapes() -> Shapes {
    let table: BTreeMap<String, (Vec<usize>, String)> =
        serde_json::from_value(goldens::json("speaker/tensors.json")).unwrap();
    table.into_iter().map(|(name, (shape, _))| (name, shape)).collect()
}

fn clips() -> Vec<String> {
    goldens::json("mel/meta.json").as_object().unwrap().keys().cloned().collect()
}

/// The rule that generates the goldens' weights, so that no file of 32 MB is needed.
fn filled(name: &str, shape: &[usize], seed: u64) -> Vec<f32> {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let state = hash ^ seed;
    let fan: usize = shape.iter().skip(1).product();
    let one = |i: u64| {
        let mut z = state.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let u = (z >> 40) as f64 / f64::from(1 << 23) - 1.0;
        let x = if name.ends_with("running_mean") || name.ends_with(".bias") {
            0.1 * u
        } else if name.ends_with("running_var") {
            1.0 + 0.5 * u.abs()
        } else if shape.len() == 1 {
            1.0 + 0.1 * u
        } else {
            u * (6.0 / fan as f64).sqrt()
        };
        x as f32
    };
    (0..shape.iter().product::<usize>() as u64).map(one).collect()
}

fn seed() -> u64 {
    goldens::json("speaker/fill_check.json")["seed"].as_u64().unwrap()
}

#[test]
fn golden_weights_follow_their_rule() {
    let check = goldens::json("speaker/fill_check.json");
    let (seed, tensors) = (seed(), check["tensors"].as_object().unwrap());
    assert!(!tensors.is_empty());
    for (name, check) in tensors {
        let shape: Vec<usize> = serde_json::from_value(check["shape"].clone()).unwrap();
        let first: Vec<f32> = serde_json::from_value(check["first"].clone()).unwrap();
        let data = filled(name, &shape, seed);
        assert_eq!(data[..first.len()], first, "{name}");
        let sum: f64 = data.iter().map(|x| f64::from(*x)).sum();
        assert!((sum - check["sum"].as_f64().unwrap()).abs() < 1e-6, "{name}: {sum}");
    }
}

/// Converts our `[time, mels, channels]` to the reference's `[channels, mels, time]`.
fn as_theirs(data: &[f32], [time, mels, channels]: [usize; 3]) -> Vec<f32> {
    let at = |c: usize, m: usize, t: usize| data[(t * mels + m) * channels + c];
    let mut out = Vec::with_capacity(data.len());
    for c in 0..channels {
        for m in 0..mels {
            out.extend((0..time).map(|t| at(c, m, t)));
        }
    }
    out
}

/// Compares with the reference's summary of an activation.
fn assert_activation(what: &str, found: &[f32], wanted: &serde_json::Value) {
    let shape: Vec<usize> = serde_json::from_value(wanted["shape"].clone()).unwrap();
    assert_eq!(found.len(), shape.iter().product::<usize>(), "{what} is {shape:?}");
    let list = |name: &str| -> Vec<f32> { serde_json::from_value(wanted[name].clone()).unwrap() };
    let (first, last) = (list("first"), list("last"));
    let n = found.len() as f64;
    let mean = found.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
    let spread = found.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
    let sum = found.iter().map(|x| f64::from(x.abs())).sum::<f64>();
    let number = |name: &str| wanted[name].as_f64().unwrap();
    let std = number("std");
    let spread = (spread / (n - 1.0)).sqrt() / std;
    println!("{what}: mean {mean:.6}, deviation {spread:.6} of theirs");
    assert!((mean - number("mean")).abs() < 1e-5 * std, "{what}: mean {mean}");
    assert!((spread - 1.0).abs() < 1e-5, "{what}: deviation {spread} of theirs");
    assert!((sum / number("abs_sum") - 1.0).abs() < 1e-5, "{what}: sum {sum}");
    let allowed = 1e-4 * (1.0 + std as f32);
    assert_near(&format!("{what} first"), &found[..first.len()], &first, allowed);
    assert_near(&format!("{what} last"), &found[found.len() - last.len()..], &last, allowed);
}

#[test]
fn vectors_and_intermediates_match_the_reference() {
    let shapes = shapes();
    let activations = goldens::json("speaker/activations.json");
    let seed = seed();
    for device in devices("vectors_and_intermediates_match_the_reference") {
        let mut heard_clips = 0;
        for clip in clips() {
            let features: Tensor = goldens::npy(&format!("mel/{clip}/speaker_features.npy"));
            let &[mels, time] = &features.shape[..] else { panic!("{:?}", features.shape) };
            let mut declare = Declare::new(0.0, &|_| false);
            let sizes = SpeakerSizes::of_shapes(&|name| shapes.get(name).cloned()).unwrap();
            assert_eq!(sizes.mels, mels);
            let encoder = SpeakerEncoder::declare(&mut declare, &sizes);
            let mut rig = Rig::new(device, declare, |name| {
                shapes.get(name).map(|shape| (shape.clone(), filled(name, shape, seed)))
            });
            let ours = shapes.keys().filter(|name| !is_not_a_weight(name)).count();
            assert_eq!(rig.released.len(), ours, "every tensor of the reference has a parameter");
            let mut tape = rig.tape();
            let input = tape.input([1, time, mels], DType::F32);
            let heard = encoder.forward(&mut tape, input, Statistics::Running);
            let pictures: Vec<_> = [heard.first].into_iter().chain(heard.layers).collect();
            let rest = [heard.attention, heard.pooled, heard.projected, heard.embedding];
            pictures.iter().chain(&rest).for_each(|&v| tape.keep(v));
            let mut program = rig.engine.load(tape).unwrap();
            rig.engine.write(&program, input, &transposed(features.floats(), &[1, mels, time])).unwrap();
            rig.engine.run(&mut program, &Control::default()).unwrap();
            let read = |v| rig.engine.read(&program, v).unwrap();
            if let Some(wanted) = activations.get(&clip) {
                for (i, &picture) in pictures.iter().enumerate() {
                    let name = if i == 0 { "bn1".to_owned() } else { format!("layer{i}") };
                    let shape = program.tape().shape(picture);
                    let found = as_theirs(&read(picture), [shape.dim(1), shape.dim(2), shape.last()]);
                    assert_activation(&format!("{device} {clip} {name}"), &found, &wanted[&name]);
                }
                let shape = program.tape().shape(heard.attention);
                let attention = transposed(&read(heard.attention), shape.dims());
                assert_activation(&format!("{device} {clip} attention"), &attention, &wanted["attention"]);
                let what = format!("{device} {clip} pooled");
                assert_activation(&what, &read(heard.pooled), &wanted["pooled"]);
                assert_activation(&format!("{device} {clip} fc"), &read(heard.projected), &wanted["fc"]);
                heard_clips += 1;
            }
            let wanted = goldens::npy(&format!("speaker/{clip}.embedding.npy"));
            let found = read(heard.embedding);
            assert_near(&format!("{device} {clip} vector"), &found, wanted.floats(), 1e-4);
            let cosine: f64 =
                found.iter().zip(wanted.floats()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((cosine - 1.0).abs() < 1e-6, "{device} {clip}: cosine {cosine}");
        }
        assert!(heard_clips > 0, "no clip has activations to compare with");
    }
}

/// Steps on a single repeated batch move the running statistics to that batch's: training and evaluation mode then
/// agree.
#[test]
fn running_statistics_follow_batch_statistics() {
    let layers = [(1, 8, 1), (2, 16, 2)];
    let sizes = SpeakerSizes {
        mels: 8,
        layers: layers.map(|(blocks, channels, stride)| SpeakerLayer { blocks, channels, stride }).to_vec(),
        reduction: 8,
        attention: 6,
        result: 5,
    };
    let mut declare = Declare::new(0.0, TRAINED);
    let encoder = SpeakerEncoder::declare(&mut declare, &sizes);
    let mut rig = Rig::fresh(Device::Cpu, declare);
    // Enough items that the variance over n - 1, which is stored, is close to that over n, which is used.
    let shape = [40, 24, sizes.mels];
    let mut tapes = [Statistics::Batch, Statistics::Running].map(|statistics| {
        let mut tape = rig.tape();
        let input = tape.input(shape, DType::F32);
        let vector = encoder.forward(&mut tape, input, statistics).embedding;
        tape.keep(vector);
        let loss = tape.mse_to_constant(vector, 1.0);
        tape.report_loss(loss);
        (rig.engine.load(tape).unwrap(), input, vector)
    });
    let features = Stream::new(4).normals(shape.iter().product());
    let mut hear = |which: usize| {
        let (program, input, vector) = &mut tapes[which];
        rig.engine.write(program, *input, &features).unwrap();
        rig.engine.run(program, &Control::default()).unwrap();
        rig.engine.read(program, *vector).unwrap()
    };
    let (batch, before) = (hear(0), hear(1));
    assert!(batch.iter().zip(&before).any(|(a, b)| (a - b).abs() > 0.05), "there is nothing to follow");
    for _ in 0..80 {
        hear(0);
    }
    assert_near("vectors by running statistics", &hear(1), &batch, 5e-3);
}

#[test]
fn names_and_shapes_match_a_release() {
    let mut declare = Declare::new(0.0, &|_| true);
    SpeakerEncoder::declare(&mut declare, &SpeakerSizes::v2());
    assert_released(declare, PREFIX, is_not_a_weight, 8_028_492);
}
